"""A kernel's view of its cluster: the addresses, ports, environment and SSH files for reaching its
peers. Pure."""

from __future__ import annotations

from enum import StrEnum
from zlib import crc32

from moorage.agent.runtimes.base import LOOPBACK, OVERLAY_INTERFACE, File
from moorage.common.model.cluster import ClusterMembership

# On a private network, no other program can use these ports.
PRIVATE_MASTER_PORT = 29_500
PRIVATE_SSH_PORT = 2222
# On a shared network, each cluster derives its ports from its id. The range lies below Linux's
# ephemeral ports and above the default ``agent.port_range``.
_SHARED_FIRST = 25_000
_SHARED_PORTS = 3_800
_HOST_KEY_ALIAS = "moorage-cluster"


class Network(StrEnum):
    """A cluster's network as one of its kernels sees it."""

    NODES = "nodes"  # the nodes' addresses, for processes, which share their node's resolver
    SHARED = "shared"  # one shared namespace, for sandboxed processes on one node
    NAMED = "named"  # the host network: the nodes' addresses and resolvable hostnames
    PRIVATE = "private"  # a separate network


def network(
    cluster: ClusterMembership, contained: bool, overlay: bool, *, sandboxed: bool = False
) -> Network:
    """The network of a kernel's cluster. ``overlay``: whether the runtime connects containers on
    several nodes through a separate network. ``sandboxed``: whether the kernel is a process in a
    sandbox."""
    if sandboxed:
        return Network.SHARED if cluster.mode == "single-node" else Network.PRIVATE
    if not contained:
        return Network.NODES
    return Network.PRIVATE if overlay or cluster.mode == "single-node" else Network.NAMED


def addresses(cluster: ClusterMembership, network: Network) -> tuple[str, ...]:
    """The addresses at which this kernel reaches each kernel, by rank."""
    if network is Network.SHARED:
        return (LOOPBACK,) * len(cluster.members)
    return tuple(
        peer.address if network is Network.NODES else peer.hostname for peer in cluster.members
    )


def master_port(cluster: ClusterMembership, network: Network) -> int:
    """The port on which main1 can listen for the others."""
    return PRIVATE_MASTER_PORT if network is Network.PRIVATE else _shared_port(cluster)


def ssh_port(cluster: ClusterMembership, network: Network, rank: int) -> int:
    """The port on which an SSH server in the kernel with this rank can listen."""
    return PRIVATE_SSH_PORT if network is Network.PRIVATE else _shared_port(cluster) + 1 + rank


def overlay_port(cluster: ClusterMembership) -> int:
    """The UDP port of main1 for the encrypted network; the others follow by rank."""
    return _shared_port(cluster)


def _shared_port(cluster: ClusterMembership) -> int:
    return _SHARED_FIRST + crc32(cluster.group.encode()) % _SHARED_PORTS


def default_environment(cluster: ClusterMembership, network: Network) -> dict[str, str]:
    """Variables for torch.distributed and similar launchers, with one process per kernel. A user
    can override them."""
    return {
        "MASTER_ADDR": addresses(cluster, network)[0],
        "MASTER_PORT": str(master_port(cluster, network)),
        "NODE_RANK": str(cluster.rank),
        "RANK": str(cluster.rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(len(cluster.members)),
    } | _interface(cluster, network)


def _interface(cluster: ClusterMembership, network: Network) -> dict[str, str]:
    """The interface that libraries must use. Containers in a cluster over several nodes have two,
    and libraries would choose the wrong one."""
    if network is not Network.PRIVATE or cluster.mode == "single-node":
        return {}
    return {"NCCL_SOCKET_IFNAME": OVERLAY_INTERFACE, "GLOO_SOCKET_IFNAME": OVERLAY_INTERFACE}


def fixed_environment(cluster: ClusterMembership, network: Network, folder: str) -> dict[str, str]:
    """Variables that a user cannot override. ``folder``: the directory of the kernel's SSH
    files."""
    return {
        "MOORAGE_CLUSTER_SIZE": str(len(cluster.members)),
        "MOORAGE_CLUSTER_MODE": cluster.mode,
        "MOORAGE_CLUSTER_HOSTS": ",".join(peer.hostname for peer in cluster.members),
        "MOORAGE_CLUSTER_ADDRESSES": ",".join(addresses(cluster, network)),
        "MOORAGE_CLUSTER_HOST": cluster.hostname,
        "MOORAGE_CLUSTER_ROLE": cluster.role,
        "MOORAGE_CLUSTER_IDX": str(cluster.index),
        "MOORAGE_CLUSTER_SSH": folder,
        "MOORAGE_CLUSTER_SSH_PORT": str(ssh_port(cluster, network, cluster.rank)),
    }


def ssh_files(cluster: ClusterMembership, network: Network, folder: str) -> tuple[File, ...]:
    """Files for ``ssh -F FOLDER/config sub1``, and for a server that uses the same key as its host
    key. Only that key is trusted, which prevents man-in-the-middle attacks."""
    if not cluster.private_key:
        return ()

    key = f"{folder}/id_ed25519"
    public = f"{cluster.public_key}\n"
    hosts = [
        f"Host {peer.hostname}\n    HostName {address}\n    Port "
        f"{ssh_port(cluster, network, rank)}\n"
        for rank, (peer, address) in enumerate(
            zip(cluster.members, addresses(cluster, network), strict=True)
        )
    ]
    common = (
        f"Host *\n    IdentityFile {key}\n    IdentitiesOnly yes\n    HostKeyAlias "
        f"{_HOST_KEY_ALIAS}\n"
        f"    UserKnownHostsFile {folder}/known_hosts\n    StrictHostKeyChecking yes\n"
    )

    return (
        File(key, cluster.private_key, 0o600),
        File(f"{key}.pub", public, 0o644),
        File(f"{folder}/authorized_keys", public, 0o600),
        File(f"{folder}/known_hosts", f"{_HOST_KEY_ALIAS} {public}", 0o644),
        File(f"{folder}/config", "".join(hosts) + common, 0o600),
    )
