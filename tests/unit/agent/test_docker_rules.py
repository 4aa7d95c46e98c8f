"""What containers are given and refused, as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.agent.runtimes.base import Launch, RuntimeObservation
from moorage.agent.runtimes.docker import ContainerRules
from moorage.agent.runtimes.docker import container_config as policy
from moorage.agent.runtimes.docker.files import needs_accounts, owner_of
from moorage.agent.runtimes.docker.labels import OWNER, SEAL, LabelSigner, load_label_signer
from moorage.common.aio.clock import SystemClock
from moorage.common.model.ids import KernelId
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.service_ports import AppPort
from moorage.common.model.status import ObservedState as S

ID = KernelId("01900000-0000-7000-8000-000000000001")


@pytest.mark.parametrize(
    ("image", "pattern", "allowed"),
    [
        ("python:3", "*", True),
        ("python:3", "python:*", True),
        ("python:3", "docker.io/library/*", True),
        ("team/tool", "docker.io/team/*", True),
        ("registry.example.com/team/tool:1", "registry.example.com/team/*", True),
        ("registry.example.com/other/tool:1", "registry.example.com/team/*", False),
        ("localhost:5000/x", "docker.io/*", False),
        ("python:3", "registry.example.com/*", False),
        ("python:3", "", False),
    ],
)
def test_images_are_allowed_by_pattern(image: str, pattern: str, allowed: bool) -> None:
    assert policy.image_allowed(image, (pattern,)) is allowed
    assert not policy.image_allowed(image, ())


@pytest.mark.parametrize(
    ("path", "mounts", "outside"),
    [
        ("/models/a.gguf", ("/models",), False),
        ("/models", ("/models/",), False),
        ("/models-of-others/a", ("/models",), True),
        ("/etc/shadow", ("/models", "/data"), True),
        ("/etc/shadow", ("/",), False),
        ("/models/a", (), True),
    ],
)
def test_a_path_is_in_a_mount_or_not(path: str, mounts: tuple[str, ...], outside: bool) -> None:
    assert policy.outside(path, mounts) is outside


@pytest.mark.parametrize(
    ("state", "seen"),
    [
        ({"Status": "created"}, RuntimeObservation(S.CREATING)),
        ({"Status": "running"}, RuntimeObservation(S.RUNNING)),
        ({"Status": "paused"}, RuntimeObservation(S.RUNNING)),
        ({"Status": "exited", "ExitCode": 0, "StartedAt": "2026"}, RuntimeObservation(S.EXITED, 0)),
        ({"Status": "exited", "ExitCode": 255, "StartedAt": "2026"}, RuntimeObservation(S.EXITED, 255)),
        ({"Status": "exited", "ExitCode": 128, "StartedAt": "2026"}, RuntimeObservation(S.EXITED, 128)),
        ({"Status": "exited", "ExitCode": 143, "StartedAt": "2026"}, RuntimeObservation(S.EXITED, -15)),
        (
            {"Status": "exited", "ExitCode": 137, "OOMKilled": True, "StartedAt": "2026"},
            RuntimeObservation(S.EXITED, -9, oom=True),
        ),
        ({"Status": "dead", "ExitCode": 1, "StartedAt": "2026"}, RuntimeObservation(S.EXITED, 1)),
        (
            {"Status": "exited", "StartedAt": "0001-01-01T00:00:00Z", "Error": "no such device"},
            RuntimeObservation(S.EXITED, refused=True, detail="no such device"),
        ),
    ],
)
def test_what_the_engine_says_of_a_container(state: dict[str, Any], seen: RuntimeObservation) -> None:
    assert policy.look(state) == seen


@given(st.text(max_size=12))
def test_a_word_that_we_do_not_know_is_never_an_end(word: str) -> None:
    known = word in ("exited", "dead")
    assert (policy.look({"Status": word, "StartedAt": "2026"}).state is S.EXITED) is known


def launch(**fields: Any) -> Launch:
    return Launch(**{"kernel_id": ID, "argv": ("run", "it"), "env": {"A": "b"}, "image": "img"} | fields)


def test_a_container_has_its_limits_and_no_rights() -> None:
    rules = ContainerRules(mounts=("/models",), pids=99, shm_bytes=7, log_max_bytes=5000, log_keep_files=1)
    host = policy.host_config(
        launch(port=4711, slots={"cpu": 1500, "mem": 64 << 20}), rules, "127.0.0.1", "some-net"
    )
    assert host["nano_cpus"] == 1_500_000_000
    assert host["mem_limit"] == host["memswap_limit"] == 64 << 20
    assert (host["pids_limit"], host["shm_size"], host["init"]) == (99, 7, True)
    assert (host["privileged"], host["cap_drop"], host["cap_add"]) == (False, ["ALL"], [])
    assert host["security_opt"] == ["no-new-privileges"]
    assert host["port_bindings"] == {"4711/tcp": ("127.0.0.1", 4711)}
    assert host["mounts"] == [{"Type": "bind", "Source": "/models", "Target": "/models", "ReadOnly": True}]
    assert host["log_config"]["config"] == {"max-size": "5000", "max-file": "2"}
    assert "device_requests" not in host


def test_a_kernel_of_a_cluster_has_its_name_and_network() -> None:
    order = launch(port=4711, hostname="sub1", network="k0", hosts={"main1": "192.0.2.1"})
    rest = policy.container_config(order, ContainerRules(), {}, "net-k0")
    assert rest["hostname"] == "sub1"
    assert rest["networking_config"] == {"EndpointsConfig": {"net-k0": {"Aliases": ["sub1"]}}}
    host = policy.host_config(order, ContainerRules(), "127.0.0.1", "net-k0")
    assert host["network_mode"] == "net-k0"
    assert "port_bindings" in host
    assert "extra_hosts" not in host
    alone = policy.container_config(launch(), ContainerRules(), {}, "shared")
    assert {"hostname", "networking_config"}.isdisjoint(alone)


def test_on_the_network_of_its_node_names_are_told_and_nothing_is_published() -> None:
    order = launch(port=4711, hostname="sub1", hosts={"main1": "192.0.2.1"})
    host = policy.host_config(order, ContainerRules(), "127.0.0.1", "host")
    assert host["extra_hosts"] == {"main1": "192.0.2.1"}
    assert "port_bindings" not in host
    assert "networking_config" not in policy.container_config(order, ContainerRules(), {}, "host")


@pytest.mark.parametrize(
    ("user", "asks", "owner"),
    [
        ("", False, (0, 0)),
        ("1000", False, (1000, 0)),
        ("1000:100", False, (1000, 100)),
        ("ann", True, (1001, 1002)),
        ("ann:7", True, (1001, 7)),
        ("1001", False, (1001, 1002)),
        ("nobody-here", True, (0, 0)),
    ],
)
def test_whose_files_in_a_container_are(user: str, asks: bool, owner: tuple[int, int]) -> None:
    accounts = "root:x:0:0::/:/bin/sh\nann:x:1001:1002::/home/ann:/bin/sh\nnonsense\n"
    assert needs_accounts(user) is asks
    assert owner_of(user, accounts) == owner


def test_the_seal_of_a_network_is_for_its_name_and_agent() -> None:
    sealer, other = LabelSigner("a"), LabelSigner("b")
    labels = sealer.network("net-1")
    assert sealer.made("net-1", labels)
    assert not sealer.made("net-2", labels)
    assert not other.made("net-1", labels | {OWNER: other.owner})
    assert not sealer.made("net-1", labels | {SEAL: "é"})
    assert sealer.read("net-1", labels) is None


def test_gpus_are_asked_for_by_their_ids_and_the_environment_agrees() -> None:
    order = launch(devices=("GPU-a", "GPU-b"))
    host = policy.host_config(order, ContainerRules(), "127.0.0.1", "some-net")
    assert host["device_requests"] == [
        {"Driver": "nvidia", "DeviceIDs": ["GPU-a", "GPU-b"], "Capabilities": [["gpu"]]}
    ]
    environment = policy.container_config(order, ContainerRules(), {}, "n")["environment"]
    assert environment == {"A": "b", "NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"}


def test_without_gpus_it_sees_none_whatever_its_image_or_user_says() -> None:
    order = launch(env={"NVIDIA_VISIBLE_DEVICES": "all"})
    assert (
        policy.container_config(order, ContainerRules(), {}, "n")["environment"]["NVIDIA_VISIBLE_DEVICES"]
        == "void"
    )


def test_what_was_asked_for_is_what_runs() -> None:
    rest = policy.container_config(launch(), ContainerRules(user="1000:100"), {"x": "y"}, "n")
    assert (rest["entrypoint"], rest["command"]) == (["run", "it"], [])
    assert (rest["user"], rest["labels"], rest["name"]) == ("1000:100", {"x": "y"}, f"moorage-{ID}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('could not select device driver "nvidia" with capabilities: [[gpu]]', Reason.NO_NVIDIA_RUNTIME),
        ("Unknown runtime specified nvidia", Reason.NO_NVIDIA_RUNTIME),
        ("Bind for 127.0.0.1:80 failed: port is already allocated", Reason.PORT_TAKEN),
        ("listen tcp4 127.0.0.1:80: bind: address already in use", Reason.PORT_TAKEN),
        ("Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available", Reason.LIMIT_REFUSED),
        ("No such image: nothing:latest", Reason.IMAGE_MISSING),
        ("write /x: no space left on device", Reason.DISK_FULL),
        (
            "could not find an available, non-overlapping IPv4 address pool among the defaults",
            Reason.NO_NETWORK,
        ),
        ("cannot restrict inter-container communication: please ensure that", Reason.NO_NETWORK),
        ("all predefined address pools have been fully subnetted", Reason.NO_NETWORK),
        ("something new", Reason.CREATE_FAILED),
    ],
)
def test_the_engines_words_are_understood(text: str, reason: Reason) -> None:
    assert policy.meaning(text)[0] is reason
    assert REASONS[reason].retryable


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_a_log_stream_is_taken_apart_wherever_it_is_cut(words: list[bytes], step: int) -> None:
    stream = b"".join(b"\x01\0\0\0" + len(word).to_bytes(4, "big") + word for word in words)
    frames = policy.Frames()
    said = b"".join(frames.feed(stream[at : at + step]) for at in range(0, len(stream), step))
    assert said == b"".join(words)


def test_a_seal_is_of_one_agent_one_name_and_one_port() -> None:
    ours = LabelSigner("key")
    labels, name = ours.labels(ID, 4711), f"moorage-{ID}"
    marks = ours.read(name, labels)
    assert marks is not None
    assert (marks.kernel_id, marks.port) == (ID, 4711)
    assert LabelSigner("another").read(name, labels) is None
    assert ours.read("something-else", labels) is None
    assert ours.read(name, {}) is None
    for label in labels:
        if label != OWNER:  # it only narrows the search
            assert ours.read(name, labels | {label: "1"}) is None
    assert ours.read(name, labels | {SEAL: "é"}) is None


def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "docker.key"
    assert load_label_signer(path, SystemClock()).owner == load_label_signer(path, SystemClock()).owner
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["docker.key"]


APPS = (AppPort("lab", 21001, inner=8888), AppPort("db", 21002, "tcp", inner=21002))


def test_service_ports_are_published_where_the_proxy_reaches_them() -> None:
    order = Launch(KernelId("k"), ("x",), {}, port=21000, image="i", apps=APPS)
    host = policy.host_config(order, ContainerRules(), "127.0.0.1", "bridge")
    assert host["port_bindings"] == {
        "8888/tcp": ("127.0.0.1", 21001),
        "21002/tcp": ("127.0.0.1", 21002),
        "21000/tcp": ("127.0.0.1", 21000),
    }
    assert policy.container_config(order, ContainerRules(), {}, "bridge")["ports"] == [8888, 21000, 21002]
    assert "port_bindings" not in policy.host_config(order, ContainerRules(), "127.0.0.1", "host")


def test_service_ports_are_sealed_and_seals_of_before_are_known() -> None:
    ours = LabelSigner("key")
    labels = ours.labels(KernelId("k"), 21000, APPS)
    marks = ours.read("moorage-k", labels)
    assert marks is not None
    assert (marks.port, marks.apps) == (21000, APPS)
    forged = labels | {"moorage.apps": labels["moorage.apps"].replace("21001", "22")}
    assert ours.read("moorage-k", forged) is None
    assert ours.read("moorage-k", {k: v for k, v in labels.items() if k != "moorage.apps"}) is None
    assert "moorage.apps" not in ours.labels(KernelId("k"), 21000)
