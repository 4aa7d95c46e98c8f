"""Container options, image and mount rules, states, signed labels, and explanations of engine
errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.agent.runtimes.base import Launch, RuntimeObservation
from moorage.agent.runtimes.docker import ContainerRules
from moorage.agent.runtimes.docker import container_config as config
from moorage.agent.runtimes.docker.engine import StreamDemultiplexer
from moorage.agent.runtimes.docker.errors import explain
from moorage.agent.runtimes.docker.files import missing_entry, needs_passwd, owner_of
from moorage.agent.runtimes.docker.labels import OWNER, SIGNATURE, LabelSigner, load_label_signer
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
def test_image_patterns(image: str, pattern: str, allowed: bool) -> None:
    assert config.is_image_allowed(image, (pattern,)) is allowed
    assert not config.is_image_allowed(image, ())


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
def test_paths_outside_of_mounts(path: str, mounts: tuple[str, ...], outside: bool) -> None:
    assert config.is_outside(path, mounts) is outside


@pytest.mark.parametrize(
    ("state", "observed"),
    [
        ({"Status": "created"}, RuntimeObservation(S.CREATING)),
        ({"Status": "running"}, RuntimeObservation(S.RUNNING)),
        ({"Status": "paused"}, RuntimeObservation(S.RUNNING)),
        ({"Status": "exited", "ExitCode": 0, "StartedAt": "2026"}, RuntimeObservation(S.EXITED, 0)),
        (
            {"Status": "exited", "ExitCode": 255, "StartedAt": "2026"},
            RuntimeObservation(S.EXITED, 255),
        ),
        (
            {"Status": "exited", "ExitCode": 128, "StartedAt": "2026"},
            RuntimeObservation(S.EXITED, 128),
        ),
        (
            {"Status": "exited", "ExitCode": 143, "StartedAt": "2026"},
            RuntimeObservation(S.EXITED, -15),
        ),
        (
            {"Status": "exited", "ExitCode": 137, "OOMKilled": True, "StartedAt": "2026"},
            RuntimeObservation(S.EXITED, -9, oom=True),
        ),
        ({"Status": "dead", "ExitCode": 1, "StartedAt": "2026"}, RuntimeObservation(S.EXITED, 1)),
        (
            {"Status": "exited", "StartedAt": "0001-01-01T00:00:00Z", "Error": "no such device"},
            RuntimeObservation(S.EXITED, never_started=True, detail="no such device"),
        ),
    ],
)
def test_observation_from_container_state(
    state: dict[str, Any], observed: RuntimeObservation
) -> None:
    assert config.parse_state(state) == observed


@given(st.text(max_size=12))
def test_unknown_status_is_never_exited(status: str) -> None:
    exited = status in ("exited", "dead")
    assert (config.parse_state({"Status": status, "StartedAt": "2026"}).state is S.EXITED) is exited


def launch(**fields: Any) -> Launch:
    return Launch(
        **{"kernel_id": ID, "argv": ("run", "it"), "env": {"A": "b"}, "image": "img"} | fields
    )


def test_container_has_limits_and_no_privileges() -> None:
    rules = ContainerRules(
        mounts=("/models",), pids=99, shm_bytes=7, log_max_bytes=5000, log_keep_files=1
    )
    host = config.host_config(
        launch(port=4711, slots={"cpu": 1500, "mem": 64 << 20}), rules, "127.0.0.1", "some-net"
    )
    assert host["nano_cpus"] == 1_500_000_000
    assert host["mem_limit"] == host["memswap_limit"] == 64 << 20
    assert (host["pids_limit"], host["shm_size"], host["init"]) == (99, 7, True)
    assert (host["privileged"], host["cap_drop"], host["cap_add"]) == (False, ["ALL"], [])
    assert host["security_opt"] == ["no-new-privileges"]
    assert host["port_bindings"] == {"4711/tcp": ("127.0.0.1", 4711)}
    assert host["mounts"] == [
        {"Type": "bind", "Source": "/models", "Target": "/models", "ReadOnly": True}
    ]
    assert host["log_config"]["config"] == {"max-size": "5000", "max-file": "2"}
    assert "device_requests" not in host


def test_cluster_kernel_has_hostname_and_network() -> None:
    order = launch(port=4711, hostname="sub1", network="k0", hosts={"main1": "192.0.2.1"})
    options = config.container_config(order, ContainerRules(), {}, "net-k0")
    assert options["hostname"] == "sub1"
    assert options["networking_config"] == {"EndpointsConfig": {"net-k0": {"Aliases": ["sub1"]}}}
    host = config.host_config(order, ContainerRules(), "127.0.0.1", "net-k0")
    assert host["network_mode"] == "net-k0"
    assert "port_bindings" in host
    assert "extra_hosts" not in host
    alone = config.container_config(launch(), ContainerRules(), {}, "shared")
    assert {"hostname", "networking_config"}.isdisjoint(alone)


def test_host_network_has_extra_hosts_and_no_published_ports() -> None:
    order = launch(port=4711, hostname="sub1", hosts={"main1": "192.0.2.1"})
    host = config.host_config(order, ContainerRules(), "127.0.0.1", "host")
    assert host["extra_hosts"] == {"main1": "192.0.2.1"}
    assert "port_bindings" not in host
    assert "networking_config" not in config.container_config(order, ContainerRules(), {}, "host")


@pytest.mark.parametrize(
    ("user", "passwd_needed", "owner"),
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
def test_owner_of_files_in_a_container(
    user: str, passwd_needed: bool, owner: tuple[int, int]
) -> None:
    passwd = "root:x:0:0::/:/bin/sh\nann:x:1001:1002::/home/ann:/bin/sh\nnonsense\n"
    assert needs_passwd(user) is passwd_needed
    assert owner_of(user, passwd) == owner


def test_network_signature_covers_name_and_agent() -> None:
    signer = LabelSigner("a")
    other = LabelSigner("b")
    labels = signer.network_labels("net-1")
    assert signer.owns_network("net-1", labels)
    assert not signer.owns_network("net-2", labels)
    assert not other.owns_network("net-1", labels | {OWNER: other.owner})
    assert not signer.owns_network("net-1", labels | {SIGNATURE: "é"})
    assert signer.read("net-1", labels) is None


def test_gpus_are_requested_by_id() -> None:
    order = launch(devices=("GPU-a", "GPU-b"))
    host = config.host_config(order, ContainerRules(), "127.0.0.1", "some-net")
    assert host["device_requests"] == [
        {"Driver": "nvidia", "DeviceIDs": ["GPU-a", "GPU-b"], "Capabilities": [["gpu"]]}
    ]
    environment = config.container_config(order, ContainerRules(), {}, "n")["environment"]
    assert environment == {"A": "b", "NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"}


def test_container_without_gpus_sees_none() -> None:
    order = launch(env={"NVIDIA_VISIBLE_DEVICES": "all"})
    assert (
        config.container_config(order, ContainerRules(), {}, "n")["environment"][
            "NVIDIA_VISIBLE_DEVICES"
        ]
        == "void"
    )


def test_command_replaces_the_entry_point() -> None:
    options = config.container_config(launch(), ContainerRules(user="1000:100"), {"x": "y"}, "n")
    assert (options["entrypoint"], options["command"]) == (["run", "it"], [])
    assert (options["user"], options["labels"], options["name"]) == (
        "1000:100",
        {"x": "y"},
        f"moorage-{ID}",
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            'could not select device driver "nvidia" with capabilities: [[gpu]]',
            Reason.NO_NVIDIA_RUNTIME,
        ),
        ("Unknown runtime specified nvidia", Reason.NO_NVIDIA_RUNTIME),
        ("Bind for 127.0.0.1:80 failed: port is already allocated", Reason.PORT_TAKEN),
        ("listen tcp4 127.0.0.1:80: bind: address already in use", Reason.PORT_TAKEN),
        (
            "Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available",
            Reason.LIMIT_REFUSED,
        ),
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
def test_explanations_of_engine_errors(text: str, reason: Reason) -> None:
    assert explain(text)[0] is reason
    assert REASONS[reason].retryable


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_output_stream_is_split_at_any_position(payloads: list[bytes], step: int) -> None:
    stream = b"".join(
        b"\x01\0\0\0" + len(payload).to_bytes(4, "big") + payload for payload in payloads
    )
    demultiplexer = StreamDemultiplexer()
    pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
    frames = [frame for piece in pieces for frame in demultiplexer.feed(piece)]
    assert frames == [(1, payload) for payload in payloads]


def test_signature_covers_agent_name_and_port() -> None:
    signer = LabelSigner("key")
    labels = signer.labels(ID, 4711)
    name = f"moorage-{ID}"
    identity = signer.read(name, labels)
    assert identity is not None
    assert (identity.kernel_id, identity.port) == (ID, 4711)
    assert LabelSigner("another").read(name, labels) is None
    assert signer.read("something-else", labels) is None
    assert signer.read(name, {}) is None
    for label in labels:
        if label != OWNER:  # not signed: it only narrows the search
            assert signer.read(name, labels | {label: "1"}) is None

    assert signer.read(name, labels | {SIGNATURE: "é"}) is None


def test_key_is_created_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "docker.key"
    assert (
        load_label_signer(path, SystemClock()).owner == load_label_signer(path, SystemClock()).owner
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["docker.key"]


APPS = (AppPort("lab", 21001, inner=8888), AppPort("db", 21002, "tcp", inner=21002))


def test_service_ports_are_published_at_the_address() -> None:
    order = Launch(KernelId("k"), ("x",), {}, port=21000, image="i", apps=APPS)
    host = config.host_config(order, ContainerRules(), "127.0.0.1", "bridge")
    assert host["port_bindings"] == {
        "8888/tcp": ("127.0.0.1", 21001),
        "21002/tcp": ("127.0.0.1", 21002),
        "21000/tcp": ("127.0.0.1", 21000),
    }
    assert config.container_config(order, ContainerRules(), {}, "bridge")["ports"] == [
        8888,
        21000,
        21002,
    ]
    assert "port_bindings" not in config.host_config(order, ContainerRules(), "127.0.0.1", "host")


def test_signature_covers_service_ports() -> None:
    signer = LabelSigner("key")
    labels = signer.labels(KernelId("k"), 21000, APPS)
    identity = signer.read("moorage-k", labels)
    assert identity is not None
    assert (identity.port, identity.apps) == (21000, APPS)
    forged = labels | {"moorage.apps": labels["moorage.apps"].replace("21001", "22")}
    assert signer.read("moorage-k", forged) is None
    assert (
        signer.read("moorage-k", {k: v for k, v in labels.items() if k != "moorage.apps"}) is None
    )
    assert "moorage.apps" not in signer.labels(KernelId("k"), 21000)


@pytest.mark.parametrize(
    ("passwd", "uid", "group", "entry"),
    [
        ("root:x:0:0::/:/bin/sh\n", "1000", "", "moorage:x:1000:0:Moorage:/home/moorage:/bin/sh"),
        ("", "1000", "50", "moorage:x:1000:50:Moorage:/home/moorage:/bin/sh"),
        ("", "1000", "users", "moorage:x:1000:0:Moorage:/home/moorage:/bin/sh"),
        ("moorage:x:7:7::/:\n", "8", "8", "moorage-8:x:8:8:Moorage:/home/moorage:/bin/sh"),
        ("ann:x:1000:1000::/home/ann:/bin/sh\n", "1000", "", ""),
        ("ann:x:1000:1000::/home/ann:/bin/sh\n", "01000", "", ""),
        ("broken\nann:x:٣:1::/:\n", "3", "", "moorage:x:3:0:Moorage:/home/moorage:/bin/sh"),
    ],
)
def test_users_that_an_image_does_not_know_get_an_entry(
    passwd: str, uid: str, group: str, entry: str
) -> None:
    assert missing_entry(passwd, uid, group) == entry
