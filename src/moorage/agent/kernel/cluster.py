"""Cluster view of one kernel: addresses, ports, environment and SSH files for reaching its peers. Pure."""

from __future__ import annotations

from zlib import crc32

from moorage.agent.runtimes.base import File
from moorage.common.model.cluster import ClusterMembership

# On a private network nothing else can hold these ports.
PRIVATE_MASTER_PORT, PRIVATE_SSH_PORT = 29_500, 2222
# On a shared network each cluster derives its ports from its id. The range lies below Linux's ephemeral
# ports and above the default ``agent.port_range``.
_SHARED_FIRST, _SHARED_PORTS = 25_000, 3_800
_HOST_KEY_ALIAS = "moorage-cluster"


def has_private_network(cluster: ClusterMembership, contained: bool) -> bool:
    return contained and cluster.mode == "single-node"


def addresses(cluster: ClusterMembership, contained: bool) -> tuple[str, ...]:
    """The address of each kernel as this kernel reaches it, by rank. Containers resolve the peers' host
    names; processes share the node's resolver, so they get the agents' addresses."""
    return tuple(peer.hostname if contained else peer.address for peer in cluster.members)


def master_port(cluster: ClusterMembership, contained: bool) -> int:
    """The port on which main1 may listen for the others."""
    if has_private_network(cluster, contained):
        return PRIVATE_MASTER_PORT
    return _shared_port(cluster)


def ssh_port(cluster: ClusterMembership, contained: bool, rank: int) -> int:
    """The port on which an SSH server of the kernel with this rank may listen."""
    if has_private_network(cluster, contained):
        return PRIVATE_SSH_PORT
    return _shared_port(cluster) + 1 + rank


def _shared_port(cluster: ClusterMembership) -> int:
    return _SHARED_FIRST + crc32(cluster.group.encode()) % _SHARED_PORTS


def default_environment(cluster: ClusterMembership, contained: bool) -> dict[str, str]:
    """Variables for torch.distributed and similar launchers, one process per kernel; a user may override
    them."""
    return {
        "MASTER_ADDR": addresses(cluster, contained)[0],
        "MASTER_PORT": str(master_port(cluster, contained)),
        "NODE_RANK": str(cluster.rank),
        "RANK": str(cluster.rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(len(cluster.members)),
    }


def fixed_environment(cluster: ClusterMembership, contained: bool, folder: str) -> dict[str, str]:
    """Variables that a user cannot override. ``folder``: the directory of the kernel's SSH files."""
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
    """Files for ``ssh -F FOLDER/config sub1``, and for a server that uses the same key as its host key. Only
    that key is trusted, which rules out a man in the middle."""
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
        f"Host *\n    IdentityFile {key}\n    IdentitiesOnly yes\n    HostKeyAlias {_HOST_KEY_ALIAS}\n"
        f"    UserKnownHostsFile {folder}/known_hosts\n    StrictHostKeyChecking yes\n"
    )
    return (
        File(key, cluster.private_key, 0o600),
        File(f"{key}.pub", public, 0o644),
        File(f"{folder}/authorized_keys", public, 0o600),
        File(f"{folder}/known_hosts", f"{_HOST_KEY_ALIAS} {public}", 0o644),
        File(f"{folder}/config", "".join(hosts) + common, 0o600),
    )
