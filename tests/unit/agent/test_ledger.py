"""What an agent remembers survives it, and damage to it is contained."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from moorage.agent.kernel.outcome import Outcome, TerminationCause
from moorage.agent.runtimes import Handle
from moorage.agent.state.checkpoint import Checkpoint, KernelRecord
from moorage.common.model.cluster import ClusterMember, ClusterMembership
from moorage.common.model.errors import InvalidInput
from moorage.common.model.ids import DeviceId, EndpointId, KernelId, SessionId
from moorage.common.model.kernel import DeviceGrant, KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.service_ports import AppPort, ServicePort
from moorage.common.model.status import ObservedState, SessionType

MEMBERSHIP = ClusterMembership(
    "main1", "main", 1, "single-node", KernelId("k4"), (ClusterMember("main1", "here"),), "private", "public"
)


def spec(kernel_id: str) -> KernelSpec:
    return KernelSpec(
        KernelId(kernel_id),
        SessionId("s"),
        "name",
        SessionType.INFERENCE,
        "process",
        "custom",
        "served",
        args=("--a", "b"),
        command=("run", "it"),
        env={"A": "ü"},
        slots={"cpu": 1000},
        devices=(DeviceGrant("cuda.device", DeviceId("GPU-1"), 1000),),
        secret="hush",
        endpoint_id=EndpointId("e"),
    )


ENTRIES = [
    KernelRecord(spec("k1"), created_at=12.5),
    KernelRecord(spec("k2"), 1.0, port=21000, handle=Handle("process", {"shim_pid": 7}), ready=True),
    KernelRecord(
        replace(spec("k4"), ports=(ServicePort("lab", 8888, "http", True, True), ServicePort("db"))),
        1.0,
        apps=(AppPort("lab", 21001, "http", True, 8888, True), AppPort("db", 21002, "tcp", inner=21002)),
        handle=Handle("docker", {}, apps=(AppPort("lab", 21001),)),
    ),
    KernelRecord(
        replace(spec("k3"), cluster=MEMBERSHIP),
        1.0,
        termination=TerminationCause(Reason.START_TIMEOUT, "late"),
        outcome=Outcome(ObservedState.EXITED, -9, Reason.KILLED, "by somebody"),
        log_tail="last\nwords",
    ),
]


def test_what_had_just_started_when_it_was_written_is_looked_at_when_it_is_read(tmp_path: Path) -> None:
    ledger = Checkpoint(tmp_path)
    ledger.write(replace(ENTRIES[1], handle=Handle("process", {"shim_pid": 7}, started=True)))
    handle = ledger.load()[KernelId("k2")].handle
    assert handle is not None
    assert not handle.started


def test_what_was_written_is_read(tmp_path: Path) -> None:
    ledger = Checkpoint(tmp_path)
    for entry in ENTRIES:
        ledger.write(entry)
    ledger.write_generation(41)
    again = Checkpoint(tmp_path)
    assert again.load() == {entry.kernel_id: entry for entry in ENTRIES}
    assert again.generation() == 41
    for path in (tmp_path / "ledger").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again.remove(KernelId("k1"))
    again.remove(KernelId("k1"))
    assert set(again.load()) == {"k2", "k3", "k4"}


def test_what_an_agent_without_service_ports_wrote_is_read(tmp_path: Path) -> None:
    ledger = Checkpoint(tmp_path)
    ledger.write(ENTRIES[1])
    path = tmp_path / "ledger" / "k2.json"
    kept = json.loads(path.read_text())
    del kept["apps"], kept["handle"]["apps"], kept["spec"]["ports"]
    path.write_text(json.dumps(kept))
    assert ledger.load() == {"k2": ENTRIES[1]}
    assert (ENTRIES[1].node_ports, ENTRIES[2].node_ports) == ((21000,), (21001, 21002))


def test_a_new_agent_remembers_nothing(tmp_path: Path) -> None:
    assert (Checkpoint(tmp_path).load(), Checkpoint(tmp_path).generation()) == ({}, 0)


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", "null", '{"version": 99}', '{"version": 1}', "\x00\x00", '{"version": 1, "spec": {}}'],
)
def test_a_damaged_file_is_moved_aside(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Checkpoint(tmp_path)
    for entry in ENTRIES:
        ledger.write(entry)
    (tmp_path / "ledger" / "k2.json").write_text(damage)
    (tmp_path / "agent.json").write_text(damage)
    assert set(ledger.load()) == {"k1", "k3", "k4"}
    assert ledger.generation() == 0
    assert (tmp_path / "ledger" / "k2.json.corrupt").read_text() == damage
    assert "k2.json.corrupt" in capsys.readouterr().out
    assert set(ledger.load()) == {"k1", "k3", "k4"}


def test_a_file_about_another_kernel_is_not_believed(tmp_path: Path) -> None:
    ledger = Checkpoint(tmp_path)
    ledger.write(ENTRIES[0])
    (tmp_path / "ledger" / "k1.json").rename(tmp_path / "ledger" / "k9.json")
    assert ledger.load() == {}


def test_a_write_cut_short_leaves_the_old(tmp_path: Path) -> None:
    ledger = Checkpoint(tmp_path)
    ledger.write(ENTRIES[0])
    (tmp_path / "ledger" / "k1.json.tmp").write_text(json.dumps({"half": 1})[:5])
    assert ledger.load() == {KernelId("k1"): ENTRIES[0]}
    assert not (tmp_path / "ledger" / "k1.json.tmp").exists()


@pytest.mark.parametrize("kernel_id", ["", "../x", "a/b", ".hidden", "x" * 65, "a b", "a\n"])
def test_an_id_that_must_not_become_a_file(tmp_path: Path, kernel_id: str) -> None:
    with pytest.raises(InvalidInput):
        Checkpoint(tmp_path).write(KernelRecord(spec(kernel_id), 0.0))
