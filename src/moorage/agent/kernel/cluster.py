"""What a kernel of a cluster is told of the others: names, ports, environment, and its SSH files. Pure."""

from __future__ import annotations

from zlib import crc32

from moorage.agent.runtimes.base import File
from moorage.common.model.cluster import ClusterMembership

# On a network of their own nobody else is in the way.
OWN_MASTER_PORT, OWN_SSH_PORT = 29_500, 2222
# On a network that is shared with other clusters each has ports that follow from its id: below those that
# Linux gives away by itself, beyond those of ``agent.port_range``.
_SHARED_FROM, _SHARED_PORTS = 25_000, 3_800
_ALIAS = "moorage-cluster"


def private(cluster: ClusterMembership, contained: bool) -> bool:
    """Whether its kernels have a network of their own."""
    return contained and cluster.mode == "single-node"


def addresses(cluster: ClusterMembership, contained: bool) -> tuple[str, ...]:
    """How it reaches each kernel, by rank. Containers know the names; processes share the node's idea of
    names, so they are told the addresses of the agents."""
    return tuple(peer.hostname if contained else peer.address for peer in cluster.members)


def master_port(cluster: ClusterMembership, contained: bool) -> int:
    """Where main1 may listen for the others."""
    return OWN_MASTER_PORT if private(cluster, contained) else _shared(cluster)


def ssh_port(cluster: ClusterMembership, contained: bool, rank: int) -> int:
    """Where an SSH server of the kernel with this rank may listen."""
    return OWN_SSH_PORT if private(cluster, contained) else _shared(cluster) + 1 + rank


def _shared(cluster: ClusterMembership) -> int:
    return _SHARED_FROM + crc32(cluster.group.encode()) % _SHARED_PORTS


def defaults(cluster: ClusterMembership, contained: bool) -> dict[str, str]:
    """What torch and others read; a user may set them otherwise. One process for each kernel."""
    return {
        "MASTER_ADDR": addresses(cluster, contained)[0],
        "MASTER_PORT": str(master_port(cluster, contained)),
        "NODE_RANK": str(cluster.rank),
        "RANK": str(cluster.rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(len(cluster.members)),
    }


def facts(cluster: ClusterMembership, contained: bool, folder: str) -> dict[str, str]:
    """``folder``: where its SSH files are."""
    return {
        "MOORAGE_CLUSTER_SIZE": str(len(cluster.members)),
        "MOORAGE_CLUSTER_MODE": cluster.mode,
        "MOORAGE_CLUSTER_HOSTS": ",".join(peer.hostname for peer in cluster.members),
        "MOORAGE_CLUSTER_ADDRESSES": ",".join(addresses(cluster, contained)),
        "MOORAGE_CLUSTER_HOST": cluster.hostname,
        "MOORAGE_CLUSTER_ROLE": cluster.role,
        "MOORAGE_CLUSTER_IDX": str(cluster.index),
        "MOORAGE_CLUSTER_SSH": folder,
        "MOORAGE_CLUSTER_SSH_PORT": str(ssh_port(cluster, contained, cluster.rank)),
    }


def ssh_files(cluster: ClusterMembership, contained: bool, folder: str) -> tuple[File, ...]:
    """For ``ssh -F FOLDER/config sub1``, and for a server that takes the same key as its own. That key is the
    only one that is believed, so nobody in between is."""
    if not cluster.private_key:
        return ()
    key, public = f"{folder}/id_ed25519", f"{cluster.public_key}\n"
    hosts = [
        f"Host {peer.hostname}\n    HostName {address}\n    Port {ssh_port(cluster, contained, rank)}\n"
        for rank, (peer, address) in enumerate(
            zip(cluster.members, addresses(cluster, contained), strict=True)
        )
    ]
    common = (
        f"Host *\n    IdentityFile {key}\n    IdentitiesOnly yes\n    HostKeyAlias {_ALIAS}\n"
        f"    UserKnownHostsFile {folder}/known_hosts\n    StrictHostKeyChecking yes\n"
    )
    return (
        File(key, cluster.private_key, 0o600),
        File(f"{key}.pub", public, 0o644),
        File(f"{folder}/authorized_keys", public, 0o600),
        File(f"{folder}/known_hosts", f"{_ALIAS} {public}", 0o644),
        File(f"{folder}/config", "".join(hosts) + common, 0o600),
    )
