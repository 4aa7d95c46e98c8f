"""Encrypted network of a cluster over several nodes: the keys, addresses and ports of its WireGuard
peers. Pure.

Everything follows from the membership, so nothing has to be exchanged or stored before the kernels
start: each kernel has its cluster's SSH key and derives the WireGuard keys of all ranks from it.
The interfaces are in the containers' network namespaces, so different clusters can use the same
addresses.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from ipaddress import IPv4Address

from moorage.agent.runtimes.base import Overlay, OverlayPeer
from moorage.common.model.cluster import ClusterMembership

# From the shared address block for carriers (RFC 6598), which sites' networks rarely use.
_FIRST = IPv4Address("100.127.0.1")
_PURPOSE = b"moorage cluster network"


def interface(cluster: ClusterMembership, first_port: int) -> Overlay:
    """This kernel's interface. ``first_port``: the UDP port of main1 on its node; the others follow
    by rank. Keys differ between clusters, and between a session's attempts."""
    keys = [_private_key(cluster, rank) for rank in range(len(cluster.members))]
    peers = tuple(
        OverlayPeer(
            peer.hostname,
            _address(rank),
            public_key=_public_key(keys[rank]),
            endpoint=peer.address,
            port=first_port + rank,
        )
        for rank, peer in enumerate(cluster.members)
    )
    own = cluster.rank

    return Overlay(
        private_key=base64.b64encode(keys[own]).decode(),
        address=peers[own].address,
        port=peers[own].port,
        peers=peers[:own] + peers[own + 1 :],
    )


def hosts(cluster: ClusterMembership) -> dict[str, str]:
    """The address of each kernel on its cluster's network, by hostname."""
    return {peer.hostname: _address(rank) for rank, peer in enumerate(cluster.members)}


def _address(rank: int) -> str:
    return str(_FIRST + rank)


def _private_key(cluster: ClusterMembership, rank: int) -> bytes:
    message = b"\0".join((_PURPOSE, cluster.group.encode(), str(rank).encode()))
    return hmac.digest(cluster.private_key.encode(), message, hashlib.sha256)


def _public_key(private: bytes) -> str:
    # Imported here because most agents never run such a cluster and need no cryptography.
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = X25519PrivateKey.from_private_bytes(private).public_key()
    return base64.b64encode(public.public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()
