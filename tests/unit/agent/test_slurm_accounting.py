"""Outcomes of Slurm jobs that are no longer in the queue, taken from the site's accounting. The
commands are scripts."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from moorage.agent.runtimes.base import Handle, RuntimeFailed
from moorage.agent.runtimes.batch import launcher
from moorage.agent.runtimes.slurm.commands import Slurm, parse_accounted
from moorage.agent.runtimes.slurm.folders import JobFolders, SlurmRecord
from moorage.agent.runtimes.slurm.interpretation import Exit, Marks, SlurmJob
from moorage.agent.runtimes.slurm.runtime import SlurmRules, SlurmRuntime
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import SystemClock
from moorage.common.model.ids import KernelId
from moorage.common.model.status import ObservedState as S

KERNEL = KernelId("01234567-89ab-7cde-8f01-23456789abcd")
DISABLED = "echo 'Slurm accounting storage is disabled' >&2; exit 1"


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


async def forgotten(tmp_path: Path, sacct: str) -> tuple[SlurmRuntime, Handle]:
    """A job that ran and is no longer listed by squeue."""
    commands = tmp_path / "bin"
    folders = JobFolders(tmp_path / "work", LogStore(tmp_path / "logs"))
    commands.mkdir()
    program(commands, "squeue", "exit 0")
    if sacct:
        program(commands, "sacct", f"echo $* >> {tmp_path}/asked; {sacct}")

    folders.prepare()
    folders.create(SlurmRecord(KERNEL, "mg-1", "77"), {}, "true")
    (folders.path(KERNEL) / "started.json").write_text('{"host": "cn1", "port": 7001}')
    runtime = SlurmRuntime(
        Slurm(str(commands)), folders, SlurmRules(1, "python3"), SystemClock(), identity="me"
    )

    return runtime, Handle("slurm", {"kernel_id": KERNEL, "name": "mg-1"})


@pytest.mark.parametrize(
    ("row", "state", "code", "walltime", "oom"),
    [
        ("77|COMPLETED|0:0|100|200", S.EXITED, 0, False, False),
        ("77|FAILED|3:0|100|200", S.EXITED, 3, False, False),
        ("77|FAILED|0:9|100|200", S.EXITED, -9, False, False),
        ("77|TIMEOUT|0:0|100|200", S.EXITED, -9, True, False),
        ("77|OUT_OF_MEMORY|0:125|100|200", S.EXITED, -9, False, True),
        ("77|CANCELLED by 1000|0:0|100|200", S.EXITED, -15, False, False),
        ("77|NODE_FAIL|0:0|100|Unknown", S.GONE, None, False, False),
        ("77|RUNNING|0:0|100|Unknown", S.GONE, None, False, False),  # it is late
        ("78|COMPLETED|0:0|100|200", S.GONE, None, False, False),
        ("", S.GONE, None, False, False),
    ],
)
async def test_accounting_tells_how_a_forgotten_job_ended(
    tmp_path: Path, row: str, state: S, code: int | None, walltime: bool, oom: bool
) -> None:
    runtime, handle = await forgotten(tmp_path, f"echo '{row}'")
    seen = await runtime.observe(handle)
    assert (seen.state, seen.exit_code, seen.walltime_over, seen.oom) == (
        state,
        code,
        walltime,
        oom,
    )


@pytest.mark.parametrize("sacct", [DISABLED, "exit 1", ""], ids=["disabled", "failing", "missing"])
async def test_without_accounting_a_forgotten_job_is_gone(tmp_path: Path, sacct: str) -> None:
    runtime, handle = await forgotten(tmp_path, sacct)
    for _ in range(2):
        assert (await runtime.observe(handle)).state is S.GONE
    asked = (tmp_path / "asked").read_text().splitlines() if sacct else []
    assert len(asked) == {DISABLED: 1, "exit 1": 2, "": 0}[sacct], (
        "a site without accounting is asked once"
    )


def test_rows_that_cannot_be_read_are_left_out() -> None:
    assert parse_accounted("77|COMPLETED", "77") is None
    assert parse_accounted("77||0:0|1|2", "77") is None
    assert parse_accounted("x\n77|FAILED|?|100|Unknown", "77") == SlurmJob(
        "77", "", state="FAILED", reason="", start=100.0, end=None, status=0
    )


async def test_cancelled_command_is_killed_and_waited_for(tmp_path: Path) -> None:
    program(
        tmp_path,
        "sinfo",
        f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 60",
    )
    asking = asyncio.create_task(Slurm(str(tmp_path)).version())
    async with asyncio.timeout(30):
        while not (tmp_path / "pid").exists():
            await asyncio.sleep(0.01)

        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)

    gc.collect()  # a transport left open would cause a warning here


@pytest.mark.parametrize(
    ("script", "fails"),
    [
        ("exit 229", False),  # it ended between the listing and this call
        ("echo 'scancel: error: Invalid job id 7' >&2; exit 225", False),
        ("exit 1", True),
        ("echo 'scancel: error: Unable to contact slurm controller' >&2; exit 229", True),
    ],
)
async def test_job_that_has_ended_is_cancelled(tmp_path: Path, script: str, fails: bool) -> None:
    program(tmp_path, "scancel", script)
    with pytest.raises(RuntimeFailed) if fails else nullcontext():
        await Slurm(str(tmp_path)).cancel({"7"}, "--signal=TERM")


STARTED = {"host": "cn1", "port": 7001, "ports": {"lab": 7002}}
EXIT = {"code": 3, "reason": "terminated", "never_started": False, "at": 1e9}


@pytest.mark.parametrize(
    "wrong",
    [
        *({"started": STARTED | one} for one in (
            {"port": 10**12}, {"port": -1}, {"port": "80"}, {"port": True}, {"port": None}, {"host": 7},
            {"host": "a\nb"}, {"host": "x" * 10_000}, {"ports": [1]},
        )),
        {"started": {"port": 1}}, {"started": {"unknown": 1}},
        *({"exit": EXIT | one} for one in (
            {"code": 10**12}, {"code": "0"}, {"reason": 7}, {"never_started": 1}, {"at": "x"}, {"at": 1e300},
        )),
        {"exit": {"code": 0}},
    ],
)  # fmt: skip
def test_marks_that_a_program_has_forged_are_none(tmp_path: Path, wrong: dict[str, object]) -> None:
    """Forged marks would get into the agent's report, and the agent could then report none of its
    kernels."""
    right = {"started": STARTED, "exit": EXIT}
    marks = marks_of(tmp_path, right | wrong)
    address = ("cn1", 7001)
    end = Exit(3, "terminated", False, 1e9)
    assert (marks.address, marks.exit) == (
        None if "started" in wrong else address,
        None if "exit" in wrong else end,
    )
    assert marks_of(tmp_path, right).exit == end


def marks_of(tmp_path: Path, files: dict[str, object]) -> Marks:
    folders = JobFolders(tmp_path / "work", LogStore(tmp_path / "logs"))
    record = SlurmRecord(KERNEL, "mg-1", "77")
    folders.prepare()
    folders.create(record, {}, "true")
    for name, mark in files.items():
        (folders.path(KERNEL) / f"{name}.json").write_text(json.dumps(mark))
    return folders.marks(record)


def test_a_full_disk_keeps_no_job_from_being_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = JobFolders(tmp_path / "work", LogStore(tmp_path / "logs"))
    folders.prepare()
    record = SlurmRecord(KERNEL, "mg-1", "77")
    folders.create(record, {}, "true")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(launcher, "write_private", full)
    folders.note_stop(KERNEL, 5)
    assert folders.marks(record).stopped


def test_service_ports_that_a_program_has_forged_are_none(tmp_path: Path) -> None:
    for ports, expected in (
        ({"lab": 7002}, {"lab": 7002}),
        ({"lab": 10**12}, {}),
        ({"lab": "22"}, {}),
    ):
        assert marks_of(tmp_path, {"started": STARTED | {"ports": ports}}).app_ports == expected
