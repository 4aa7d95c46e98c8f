"""Launch of a cluster's kernel: environment, ports, SSH files, and what a user may override."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moorage.agent.engines import ENGINES, NodeInfo
from moorage.agent.kernel.cluster import PRIVATE_MASTER_PORT, PRIVATE_SSH_PORT, master_port, ssh_port
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
    "sub2", "sub", 2, "single-node", KernelId("k0"), MEMBERS, "PRIVATE KEY", "ssh-ed25519 AAAA comment"
)


def launch(cluster: ClusterMembership | None, contained: bool, **env: str) -> Launch:
    spec = KernelSpec(
        KernelId("k2"), SessionId("s"), "train", SessionType.BATCH, "docker", "custom", "train",
        command=("x",), env=env, cluster=cluster,
    )  # fmt: skip
    context = LaunchContext(
        contained, "192.0.2.3", NodeInfo(), "/work", {"MASTER_ADDR": "from the agent", "PATH": "/bin"}
    )
    return build_launch(spec, build_invocation(ENGINES["custom"], spec, 0, context), 0, context)


def test_single_kernel_has_no_cluster_environment() -> None:
    single = launch(None, contained=True)
    assert not [name for name in single.env if "CLUSTER" in name or "MASTER" in name]
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
def test_cluster_environment(mode: str, contained: bool, network: str, master: str, addresses: str) -> None:
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


def test_ports_are_fixed_on_private_networks_and_derived_on_shared_ones() -> None:
    assert (master_port(SUB2, True), ssh_port(SUB2, True, 2)) == (PRIVATE_MASTER_PORT, PRIVATE_SSH_PORT)
    shared = replace(SUB2, mode="multi-node")
    ports = {master_port(shared, True), *(ssh_port(shared, True, rank) for rank in range(128))}
    assert len(ports) == 129
    assert min(ports) >= 25_000
    assert max(ports) < 32_768
    assert master_port(shared, True) == master_port(replace(shared, hostname="main1", role="main"), False)
    others = {master_port(replace(shared, group=KernelId(f"k{n}")), True) for n in range(100)}
    assert len(others) > 80


def test_user_overrides_torch_variables() -> None:
    env = launch(SUB2, True, MASTER_PORT="1234", WORLD_SIZE="24").env
    assert (env["MASTER_PORT"], env["WORLD_SIZE"], env["NODE_RANK"]) == ("1234", "24", "2")


@pytest.mark.parametrize(("contained", "folder"), [(True, "/etc/moorage/ssh"), (False, "/work/.ssh")])
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
