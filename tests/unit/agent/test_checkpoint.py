"""Agent checkpoint: round trip, format on disk, and recovery from damage."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from moorage.agent.kernel.checkpoint import CheckpointFiles, KernelRecord
from moorage.agent.kernel.outcome import KernelOutcome, TerminationCause
from moorage.agent.runtimes import Handle
from moorage.common.aio.clock import ManualClock
from moorage.common.model.cluster import ClusterMember, ClusterMembership
from moorage.common.model.errors import InvalidInput
from moorage.common.model.ids import DeviceId, EndpointId, KernelId, SessionId
from moorage.common.model.kernel import (
    DeviceGrant,
    HpcJob,
    KernelInput,
    KernelReload,
    KernelSpec,
    KernelTasks,
    Reloaded,
)
from moorage.common.model.reasons import Reason
from moorage.common.model.service_ports import AppPort, ServicePort
from moorage.common.model.status import ObservedState, SessionType

MEMBERSHIP = ClusterMembership(
    "main1",
    "main",
    index=1,
    mode="single-node",
    group=KernelId("k4"),
    members=(ClusterMember("main1", "here"),),
    private_key="private",
    public_key="public",
)


def spec(kernel_id: str) -> KernelSpec:
    return KernelSpec(
        KernelId(kernel_id),
        SessionId("s"),
        session_name="name",
        session_type=SessionType.INFERENCE,
        runtime="process",
        engine="custom",
        served_name="served",
        args=("--a", "b"),
        command=("run", "it"),
        env={"A": "ü"},
        slots={"cpu": 1000},
        devices=(DeviceGrant("cuda.device", DeviceId("GPU-1"), 1000),),
        secret="hush",
        endpoint_id=EndpointId("e"),
    )


RECORDS = [
    KernelRecord(spec("k1"), created_at=12.5),
    KernelRecord(
        spec("k2"), 1.0, port=21000, handle=Handle("process", {"shim_pid": 7}), ready=True
    ),
    KernelRecord(
        replace(
            spec("k4"), ports=(ServicePort("lab", 8888, "http", True, True), ServicePort("db"))
        ),
        1.0,
        apps=(
            AppPort("lab", 21001, "http", True, 8888, True),
            AppPort("db", 21002, "tcp", inner=21002),
        ),
        handle=Handle("docker", {}, apps=(AppPort("lab", 21001),)),
    ),
    KernelRecord(
        replace(
            spec("k3"),
            cluster=MEMBERSHIP,
            outputs=("data", "best"),
            inputs=(KernelInput(SessionId("s"), "data", "inputs/a"),),
            hpc=HpcJob(partition="gpu", options={"a": "b"}),
            reload=KernelReload(signal="HUP"),
            reload_generation=5,
            tasks=KernelTasks(("echo", "{}"), workers=3, timeout_s=2.5),
        ),
        1.0,
        reload=Reloaded(5, "failed", "why"),
        termination=TerminationCause(Reason.START_TIMEOUT, "late"),
        outcome=KernelOutcome(ObservedState.EXITED, -9, Reason.KILLED, "by a user"),
        log_tail="last\nwords",
    ),
]


def test_started_flag_of_a_handle_is_not_restored(tmp_path: Path) -> None:
    """A restarted agent must observe the kernel again."""
    checkpoint = CheckpointFiles(tmp_path)
    checkpoint.write(replace(RECORDS[1], handle=Handle("process", {"shim_pid": 7}, started=True)))
    handle = checkpoint.load()[KernelId("k2")].handle
    assert handle is not None
    assert not handle.started


def test_round_trip(tmp_path: Path) -> None:
    checkpoint = CheckpointFiles(tmp_path)
    for record in RECORDS:
        checkpoint.write(record)

    checkpoint.write_generation(41)
    reopened = CheckpointFiles(tmp_path)
    assert reopened.load() == {record.kernel_id: record for record in RECORDS}
    assert reopened.generation() == 41
    for path in (tmp_path / "checkpoint").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    reopened.remove(KernelId("k1"))
    reopened.remove(KernelId("k1"))
    assert set(reopened.load()) == {"k2", "k3", "k4"}


def test_starts_are_numbered_upwards_whatever_the_clock_says(tmp_path: Path) -> None:
    """A manager treats a stream whose start has a smaller number as an older stream, and refuses
    it."""
    clock = ManualClock()
    first = CheckpointFiles(tmp_path).record_start(clock)
    assert first.start == clock.now().timestamp() * 1000
    numbers = [first.start]
    for seconds in (0.0, -86_400.0, -86_400.0, 3.0):
        clock.advance(seconds)
        again = CheckpointFiles(tmp_path).record_start(clock)
        assert again.identity == first.identity
        numbers.append(again.start)

    assert numbers == [first.start + n for n in range(5)]
    clock.advance(10 * 86_400.0)
    assert CheckpointFiles(tmp_path).record_start(clock).start == clock.now().timestamp() * 1000


def test_field_names_on_disk(tmp_path: Path) -> None:
    """The field names are part of the format: changing one requires a new version."""
    checkpoint = CheckpointFiles(tmp_path)
    for record in RECORDS:
        checkpoint.write(record)

    saved = {
        path.stem: json.loads(path.read_text()) for path in (tmp_path / "checkpoint").glob("*.json")
    }
    assert saved["k3"]["termination"] == {"reason": "start-timeout", "detail": "late"}
    assert saved["k3"]["spec"]["cluster"]["members"] == [{"hostname": "main1", "address": "here"}]
    assert set(saved["k1"]) == {
        *(
            "version",
            "spec",
            "created_at",
            "port",
            "apps",
            "handle",
            "ready",
            "termination",
            "outcome",
        ),
        *("log_tail", "reload"),
    }


def test_records_without_service_ports_are_readable(tmp_path: Path) -> None:
    checkpoint = CheckpointFiles(tmp_path)
    checkpoint.write(RECORDS[1])
    path = tmp_path / "checkpoint" / "k2.json"
    saved = json.loads(path.read_text())
    del saved["apps"], saved["handle"]["apps"], saved["spec"]["ports"], saved["reload"]
    del saved["spec"]["reload"], saved["spec"]["reload_generation"]
    path.write_text(json.dumps(saved))
    assert checkpoint.load() == {"k2": RECORDS[1]}
    assert (RECORDS[1].node_ports, RECORDS[2].node_ports) == ((21000,), (21001, 21002))


def test_new_checkpoint_is_empty(tmp_path: Path) -> None:
    assert (CheckpointFiles(tmp_path).load(), CheckpointFiles(tmp_path).generation()) == ({}, 0)


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        "null",
        '{"version": 99}',
        '{"version": 1}',
        "\x00\x00",
        '{"version": 1, "spec": {}}',
    ],
)
def test_damaged_file_is_renamed(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = CheckpointFiles(tmp_path)
    for record in RECORDS:
        checkpoint.write(record)

    (tmp_path / "checkpoint" / "k2.json").write_text(damage)
    (tmp_path / "agent.json").write_text(damage)
    assert set(checkpoint.load()) == {"k1", "k3", "k4"}
    assert checkpoint.generation() == 0
    assert (tmp_path / "checkpoint" / "k2.json.corrupt").read_text() == damage
    assert "k2.json.corrupt" in capsys.readouterr().out
    assert set(checkpoint.load()) == {"k1", "k3", "k4"}


def test_file_with_the_record_of_another_kernel_is_rejected(tmp_path: Path) -> None:
    checkpoint = CheckpointFiles(tmp_path)
    checkpoint.write(RECORDS[0])
    (tmp_path / "checkpoint" / "k1.json").rename(tmp_path / "checkpoint" / "k9.json")
    assert checkpoint.load() == {}


def test_interrupted_write_leaves_the_old_record(tmp_path: Path) -> None:
    checkpoint = CheckpointFiles(tmp_path)
    checkpoint.write(RECORDS[0])
    (tmp_path / "checkpoint" / "k1.json.tmp").write_text(json.dumps({"half": 1})[:5])
    assert checkpoint.load() == {KernelId("k1"): RECORDS[0]}
    assert not (tmp_path / "checkpoint" / "k1.json.tmp").exists()


@pytest.mark.parametrize("kernel_id", ["", "../x", "a/b", ".hidden", "x" * 65, "a b", "a\n"])
def test_ids_that_are_no_file_names_are_rejected(tmp_path: Path, kernel_id: str) -> None:
    with pytest.raises(InvalidInput):
        CheckpointFiles(tmp_path).write(KernelRecord(spec(kernel_id), 0.0))
