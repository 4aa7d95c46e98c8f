"""A full disk for an agent's state: exits are recorded, no program starts, and a starting agent
reports what is wrong. The disk is a tmpfs of 4 MiB."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
from tests.conformance.test_exec import result

from moorage.agent.kernel.checkpoint import CheckpointFiles
from moorage.agent.runtimes import CreateFailed, Launch, ProcessRuntime
from moorage.agent.runtimes.execution import Command
from moorage.agent.runtimes.process.shim_system import RESERVED_BYTES
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import SystemClock
from moorage.common.model.errors import StartupError
from moorage.common.model.ids import KernelId
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "state"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "moorage-test", str(path)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(
            f"SKIPPED: no full disk, as no tmpfs can be mounted here: {done.stderr.strip()}"
        )

    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"\0" * 4096):
            pass
    assert os.statvfs(disk).f_bavail == 0


def limit_files(disk: Path, more: int) -> None:
    """Room for this many new files and no more."""
    found = os.statvfs(disk)
    files = f"remount,nr_inodes={found.f_files - found.f_ffree + more}"
    subprocess.run(["mount", "-o", files, str(disk)], check=True)
    assert os.statvfs(disk).f_ffree == more


def runtime_at(state: Path) -> ProcessRuntime:
    return ProcessRuntime(state, LogStore(state / "logs"), log_max_bytes=10_000, log_keep_files=1)


@pytest_asyncio.fixture
async def runtime(disk: Path) -> AsyncIterator[ProcessRuntime]:
    made = runtime_at(disk)
    yield made
    for handle in (await made.find()).values():
        await made.destroy(handle)
    made.close()


def launch(program: str) -> Launch:
    argv = ("/bin/sh", "-c", program)
    return Launch(KernelId(SystemClock().new_id()), argv, {"PATH": os.environ["PATH"]})


async def test_the_exit_of_a_program_is_recorded(
    runtime: ProcessRuntime, disk: Path, tmp_path: Path
) -> None:
    """Its output is lost, but its result is not."""
    end = tmp_path / "end"
    os.mkfifo(end)
    handle = await runtime.create(launch(f"read x < {end}; echo hello; exit 7"))
    fill(disk)
    await asyncio.to_thread(end.write_text, "\n")
    async with asyncio.timeout(20):
        while (seen := await runtime.observe(handle)).state is not S.EXITED:
            await runtime.wait(handle, seen.state)

    assert (seen.exit_code, seen.detail) == (7, "")


async def test_a_command_runs_in_it_and_tells_its_exit(runtime: ProcessRuntime, disk: Path) -> None:
    """This also applies to the first one: it had everything it needs when the program started."""
    handle = await runtime.create(launch("sleep 1000"))
    fill(disk)
    limit_files(disk, 0)
    command = Command(("/bin/sh", "-c", "echo hello; exit 7"))
    assert await result(await runtime.exec(handle, command)) == (7, b"hello\n", b"")


async def test_a_program_is_stopped(runtime: ProcessRuntime, disk: Path) -> None:
    """With the grace period from its start, because another one cannot be written."""
    handle = await runtime.create(launch("sleep 1000"))
    fill(disk)
    limit_files(disk, 0)
    await runtime.stop(handle, 5)
    async with asyncio.timeout(20):
        while (seen := await runtime.observe(handle)).state is not S.EXITED:
            await runtime.wait(handle, seen.state)
    assert seen.exit_code == -15


async def test_the_space_for_an_exit_is_taken_before_the_start(tmp_path: Path) -> None:
    """Like the test above, for machines where no disk can be filled."""
    runtime = runtime_at(tmp_path)
    end = tmp_path / "end"
    os.mkfifo(end)
    handle = await runtime.create(launch(f"read x < {end}"))
    [reserved] = tmp_path.glob("**/exit.reserved")
    before = reserved.stat()
    assert before.st_size == RESERVED_BYTES
    await asyncio.to_thread(end.write_text, "\n")
    async with asyncio.timeout(20):
        while (seen := await runtime.observe(handle)).state is not S.EXITED:
            await runtime.wait(handle, seen.state)

    assert reserved.with_name("exit").stat().st_ino == before.st_ino
    await runtime.destroy(handle)
    runtime.close()


async def test_no_program_starts_whose_exit_could_not_be_recorded(
    runtime: ProcessRuntime, disk: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    first = await runtime.create(launch("true"))  # the supervisors' programs are there
    await runtime.destroy(first)
    fill(disk)
    with pytest.raises(CreateFailed) as refused:
        await runtime.create(launch(f"touch {trace}"))

    assert (refused.value.reason, trace.exists()) == (Reason.DISK_FULL, False)
    assert "No space left on device" in str(refused.value)
    (disk / "filler").unlink()
    handle = await runtime.create(launch(f"touch {trace}; exit 3"))
    async with asyncio.timeout(20):
        while (seen := await runtime.observe(handle)).state is not S.EXITED:
            await runtime.wait(handle, seen.state)

    assert (seen.exit_code, trace.exists()) == (3, True)


def test_a_start_on_a_full_disk_says_so(disk: Path) -> None:
    CheckpointFiles(disk)
    fill(disk)
    with pytest.raises(StartupError, match="No space left on device") as refused:
        CheckpointFiles(disk).record_start(SystemClock())
    assert refused.value.next_step.startswith(f"free some space on the disk of {disk}")
    (disk / "filler").unlink()
    assert CheckpointFiles(disk).record_start(SystemClock()).start > 0
