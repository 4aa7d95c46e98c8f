"""Launch of a cluster's kernel: environment, ports, SSH files, and what a user may override."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moorage.agent.engines import ENGINES, NodeInfo
from moorage.agent.kernel import overlay
from moorage.agent.kernel.cluster import (
    PRIVATE_MASTER_PORT,
    PRIVATE_SSH_PORT,
    Network,
    master_port,
    ssh_port,
)
from moorage.agent.kernel.launch import LaunchContext, build_invocation, build_launch
from moorage.agent.runtimes import Launch
from moorage.common.model.cluster import ClusterMember, ClusterMembership
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import SessionType

MEMBERS = (
    ClusterMember("main1", "192.0.2.1"),
    ClusterMember("sub1", "192.0.2.2"),
    ClusterMember("sub2", "192.0.2.3"),
)
SUB2 = ClusterMembership(
    "sub2",
    "sub",
    index=2,
    mode="single-node",
    group=KernelId("k0"),
    members=MEMBERS,
    private_key="PRIVATE KEY",
    public_key="ssh-ed25519 AAAA comment",
)


def launch(
    cluster: ClusterMembership | None,
    contained: bool,
    spans_nodes: bool = False,
    sandboxed: bool = False,
    **env: str,
) -> Launch:
    spec = KernelSpec(
        KernelId("k2"), SessionId("s"), "train", SessionType.BATCH, "docker", "custom", "train",
        command=("x",), env=env, cluster=cluster,
    )  # fmt: skip
    context = LaunchContext(
        contained,
        "192.0.2.3",
        node=NodeInfo(),
        work_dir="/work",
        agent_env={"MASTER_ADDR": "from the agent", "PATH": "/bin"},
        overlay=spans_nodes,
        own_user=sandboxed,
    )
    return build_launch(spec, build_invocation(ENGINES["custom"], spec, 0, context), 0, context)


def test_single_kernel_is_a_cluster_of_one() -> None:
    """Its program needs no case for it. The variables of torch.distributed stay unset, because
    libraries take them for a request to use several processes."""
    single = launch(None, contained=True)
    assert single.env["MOORAGE_CLUSTER_SIZE"] == "1"
    assert single.env["MOORAGE_CLUSTER_HOSTS"] == single.env["MOORAGE_CLUSTER_HOST"] == "main1"
    assert {"MASTER_ADDR", "RANK", "LOCAL_RANK", "WORLD_SIZE"}.isdisjoint(single.env)
    assert (single.hostname, single.network, single.files, single.hosts) == ("", "", (), {})


@pytest.mark.parametrize(
    ("mode", "contained", "network", "master", "addresses"),
    [
        ("single-node", True, "k0", "main1", "main1,sub1,sub2"),
        ("multi-node", True, "", "main1", "main1,sub1,sub2"),
        ("single-node", False, "", "192.0.2.1", "192.0.2.1,192.0.2.2,192.0.2.3"),
        ("multi-node", False, "", "192.0.2.1", "192.0.2.1,192.0.2.2,192.0.2.3"),
    ],
)
def test_cluster_environment(
    mode: str, contained: bool, network: str, master: str, addresses: str
) -> None:
    cluster = replace(SUB2, mode=mode)  # type: ignore[arg-type]
    launched = launch(cluster, contained)
    env = launched.env
    names = ("SIZE", "MODE", "HOSTS", "ADDRESSES", "HOST", "ROLE", "IDX")
    values = [env[f"MOORAGE_CLUSTER_{name}"] for name in names]
    assert values == ["3", mode, "main1,sub1,sub2", addresses, "sub2", "sub", "2"]
    assert [env[name] for name in ("MASTER_ADDR", "NODE_RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK")] == [
        master, "2", "2", "3", "0",
    ]  # fmt: skip
    assert (launched.network, launched.hostname) == (network, "sub2")
    assert launched.hosts == {"main1": "192.0.2.1", "sub1": "192.0.2.2", "sub2": "192.0.2.3"}


def test_sandboxed_processes_of_one_node_share_a_namespace() -> None:
    launched = launch(SUB2, contained=False, sandboxed=True)
    assert launched.env["MASTER_ADDR"] == "127.0.0.1"
    assert launched.env["MOORAGE_CLUSTER_ADDRESSES"] == "127.0.0.1,127.0.0.1,127.0.0.1"
    assert launched.hosts == dict.fromkeys(("main1", "sub1", "sub2"), "127.0.0.1")
    assert launched.overlay is None
    [config] = [file.text for file in launched.files if file.path.endswith("/config")]
    ports = {line.split()[1] for line in config.splitlines() if line.strip().startswith("Port ")}
    assert len(ports) == 3, "they share the ports, too"


def test_sandboxed_processes_of_several_nodes_have_a_network_of_their_own() -> None:
    launched = launch(replace(SUB2, mode="multi-node"), contained=False, sandboxed=True)
    assert launched.hosts == {"main1": "100.127.0.1", "sub1": "100.127.0.2", "sub2": "100.127.0.3"}
    assert launched.overlay is not None
    assert (launched.env["MASTER_ADDR"], launched.env["MASTER_PORT"]) == (
        "main1",
        str(PRIVATE_MASTER_PORT),
    )
    assert launched.env["NCCL_SOCKET_IFNAME"] == "moorage0"


def test_ports_are_fixed_on_private_networks_and_derived_on_shared_ones() -> None:
    private = Network.PRIVATE
    assert (master_port(SUB2, private), ssh_port(SUB2, private, 2)) == (
        PRIVATE_MASTER_PORT,
        PRIVATE_SSH_PORT,
    )
    named = Network.NAMED
    nodes = Network.NODES
    ports = {master_port(SUB2, named), *(ssh_port(SUB2, named, rank) for rank in range(128))}
    assert len(ports) == 129
    assert min(ports) >= 25_000
    assert max(ports) < 32_768
    assert master_port(SUB2, named) == master_port(
        replace(SUB2, hostname="main1", role="main"), nodes
    )
    others = {master_port(replace(SUB2, group=KernelId(f"k{n}")), named) for n in range(100)}
    assert len(others) > 80


def test_user_overrides_torch_variables() -> None:
    env = launch(SUB2, True, MASTER_PORT="1234", WORLD_SIZE="24").env
    assert (env["MASTER_PORT"], env["WORLD_SIZE"], env["NODE_RANK"]) == ("1234", "24", "2")


@pytest.mark.parametrize(
    ("contained", "folder"), [(True, "/etc/moorage/ssh"), (False, "/work/.ssh")]
)
def test_ssh_files(contained: bool, folder: str) -> None:
    launched = launch(SUB2, contained)
    files = {file.path: (file.mode, file.text) for file in launched.files}
    assert launched.env["MOORAGE_CLUSTER_SSH"] == folder
    assert files[f"{folder}/id_ed25519"] == (0o600, "PRIVATE KEY")
    assert files[f"{folder}/authorized_keys"] == (0o600, "ssh-ed25519 AAAA comment\n")
    mode, config = files[f"{folder}/config"]
    assert mode == 0o600
    for member in MEMBERS:
        assert f"Host {member.hostname}\n" in config

    assert f"IdentityFile {folder}/id_ed25519" in config
    assert "PRIVATE" not in repr(launched), "logs must not show it"
    assert "PRIVATE" not in repr(SUB2)


def test_containers_over_several_nodes_have_a_network_of_their_own() -> None:
    cluster = replace(SUB2, mode="multi-node")
    launched = launch(cluster, contained=True, spans_nodes=True)
    assert launched.network == "", "no bridge of a node connects them"
    assert launched.hosts == {"main1": "100.127.0.1", "sub1": "100.127.0.2", "sub2": "100.127.0.3"}
    interface = launched.overlay
    assert interface is not None
    assert interface.address == "100.127.0.3"
    assert [(peer.hostname, peer.endpoint) for peer in interface.peers] == [
        ("main1", "192.0.2.1"), ("sub1", "192.0.2.2"),
    ]  # fmt: skip
    assert [peer.port - interface.port for peer in interface.peers] == [-2, -1]
    assert launched.env["MASTER_PORT"] == str(PRIVATE_MASTER_PORT)
    assert launched.env["NCCL_SOCKET_IFNAME"] == launched.env["GLOO_SOCKET_IFNAME"] == "moorage0"
    assert launch(cluster, True, True, NCCL_SOCKET_IFNAME="ib0").env["NCCL_SOCKET_IFNAME"] == "ib0"
    assert interface.private_key not in repr(launched), "logs must not show it"


def test_network_over_several_nodes_needs_a_key() -> None:
    keyless = replace(SUB2, mode="multi-node", private_key="")
    assert launch(keyless, contained=True, spans_nodes=True).overlay is None


def test_all_kernels_of_a_cluster_derive_the_same_keys() -> None:
    cluster = replace(SUB2, mode="multi-node")
    ranks = [
        cluster,
        replace(cluster, hostname="main1", role="main", index=1),
        replace(cluster, hostname="sub1", index=1),
    ]
    interfaces = [overlay.interface(member, 25_000) for member in ranks]
    keys: dict[str, set[str]] = {}
    for interface in interfaces:
        for peer in interface.peers:
            keys.setdefault(peer.hostname, set()).add(peer.public_key)

    assert {name: len(found) for name, found in keys.items()} == {"main1": 1, "sub1": 1, "sub2": 1}
    assert len({interface.private_key for interface in interfaces}) == 3


@pytest.mark.parametrize("other", [{"group": KernelId("k1")}, {"private_key": "ANOTHER KEY"}])
def test_keys_differ_between_attempts_and_between_sessions(other: dict[str, str]) -> None:
    cluster = replace(SUB2, mode="multi-node")
    ours, theirs = (overlay.interface(c, 25_000) for c in (cluster, replace(cluster, **other)))  # type: ignore[arg-type]
    assert ours.private_key != theirs.private_key
    assert not {p.public_key for p in ours.peers} & {p.public_key for p in theirs.peers}
