"""What only the process runtime has to get right: whole trees, dead supervisors, numbers used again."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from moorage.agent.runtimes import Handle, Launch, ProcessRuntime, procfs
from moorage.agent.runtimes.process import shim as supervisor
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import SystemClock
from moorage.common.model.ids import KernelId
from moorage.common.model.status import ObservedState as S


def runtime_at(state: Path, max_bytes: int = 100_000) -> ProcessRuntime:
    return ProcessRuntime(state, LogStore(state / "logs"), log_max_bytes=max_bytes, log_keep_files=2)


def launch(*argv: str, **env: str) -> Launch:
    return Launch(KernelId(SystemClock().new_id()), argv, {"PATH": os.environ["PATH"], **env})


@pytest_asyncio.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[ProcessRuntime]:
    runtime = runtime_at(tmp_path)
    yield runtime
    for handle in (await runtime.find()).values():
        await runtime.destroy(handle)


async def until_ended(runtime: ProcessRuntime, handle: Handle) -> int | None:
    async with asyncio.timeout(10):
        while (seen := await runtime.observe(handle)).state is not S.EXITED:
            await runtime.wait(handle, seen.state)
    return seen.exit_code


async def told(path: Path, count: int) -> list[int]:
    """Process numbers that the kernel wrote into a file, once there are ``count`` of them."""
    async with asyncio.timeout(10):
        while not path.exists() or len(path.read_text().split()) < count:
            await asyncio.sleep(0.02)
    return [int(word) for word in path.read_text().split()]


def lives(pid: int) -> bool:
    now = procfs.stat(pid)
    return now is not None and now.alive


# Tells four numbers: itself, a child, a daemon (its own session, its parent gone, no environment), and
# an orphan that stays in the session but has lost its environment, as programs that rename themselves do.
FAMILY = """
import os, subprocess, sys, time
out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
tell = lambda: os.write(out, f"{os.getpid()} ".encode())
def sleeper(new_session, env):
    if os.fork() == 0:
        if new_session:
            os.setsid()
        if os.fork():
            os._exit(0)
        tell()
        os.execve("/bin/sleep", ["sleep", "3600"], env)
sleeper(True, dict(os.environ) if sys.argv[2] == "marked" else {})
sleeper(False, {})
if os.fork() == 0:
    tell()
    time.sleep(3600)
tell()
{end}
"""


def family(tmp_path: Path, end: str, marks: str = "bare") -> tuple[Launch, Path]:
    out = tmp_path / "numbers"
    program = textwrap.dedent(FAMILY).replace("{end}", end)
    return launch(sys.executable, "-S", "-c", program, str(out), marks), out


async def test_stop_ends_even_what_hides(runtime: ProcessRuntime, tmp_path: Path) -> None:
    order, out = family(tmp_path, "time.sleep(3600)")
    handle = await runtime.create(order)
    pids = await told(out, 4)
    assert all(lives(pid) for pid in pids)
    await runtime.stop(handle, 5)
    assert await until_ended(runtime, handle) == -signal.SIGTERM
    assert not any(lives(pid) for pid in pids)


async def test_what_the_main_program_leaves_behind_ends_with_it(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    order, out = family(tmp_path, "while len(open(sys.argv[1]).read().split()) < 4: pass\nsys.exit(5)")
    handle = await runtime.create(order)
    assert await until_ended(runtime, handle) == 5
    assert not any(lives(pid) for pid in await told(out, 4))


async def test_after_its_supervisor_was_killed_destroy_ends_all(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    order, out = family(tmp_path, "time.sleep(3600)", "marked")
    handle = await runtime.create(order)
    pids = await told(out, 4)
    os.kill(handle.state["shim_pid"], signal.SIGKILL)
    async with asyncio.timeout(5):
        await runtime.wait(handle, S.RUNNING)
    seen = await runtime.observe(handle)
    assert (seen.state, seen.exit_code, seen.whole) == (S.EXITED, None, False)
    assert any(lives(pid) for pid in pids), "nothing was left to end: this shows nothing"
    # Another agent of this node, with a state directory of its own, sees none of it.
    assert await runtime_at(tmp_path / "other").find() == {}
    found = (await runtime_at(tmp_path).find())[order.kernel_id]
    await runtime_at(tmp_path).destroy(found)
    assert not any(lives(pid) for pid in pids)


async def test_a_number_used_again_is_left_alone(runtime: ProcessRuntime, tmp_path: Path) -> None:
    handle = await runtime.create(launch("sleep", "3600"))
    stranger = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    ours = {handle.state["shim_start"], handle.state["engine_start"]}
    while (now := procfs.stat(stranger.pid)) and now.start in ours:  # a tick of that clock is 10 ms
        stranger.kill()
        stranger.wait()
        stranger = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    try:
        # As if our numbers had been given to the stranger since.
        was = {"shim_pid": stranger.pid, "engine_pid": stranger.pid}
        stale = replace(handle, state=handle.state | {"kernel_id": "another"} | was)
        await runtime.stop(stale, 0)
        await runtime.destroy(stale)
        assert (await runtime.observe(stale)).state is S.GONE
        assert lives(stranger.pid)
        assert lives(handle.state["shim_pid"])
    finally:
        stranger.kill()
        stranger.wait()


async def test_after_a_restart_of_the_node_it_is_gone(runtime: ProcessRuntime) -> None:
    handle = await runtime.create(launch("sleep", "3600"))
    rebooted = replace(handle, state=handle.state | {"boot_id": "an-earlier-one"})
    assert (await runtime.observe(rebooted)).state is S.GONE
    assert (await runtime.observe(handle)).state is S.RUNNING


async def test_its_files_deleted_it_is_still_found_and_ended(runtime: ProcessRuntime, tmp_path: Path) -> None:
    order = launch("sleep", "3600")
    handle = await runtime.create(replace(order, port=4712))
    subprocess.run(["rm", "-r", str(tmp_path / "kernels"), str(tmp_path / "logs")], check=True)
    found = (await runtime_at(tmp_path).find())[order.kernel_id]
    assert (found.state["shim_pid"], found.port) == (handle.state["shim_pid"], 4712)
    assert (await runtime.observe(found)).state in (S.RUNNING, S.CREATING)
    await runtime.destroy(found)
    assert not lives(handle.state["shim_pid"])
    assert not lives(handle.state["engine_pid"])


async def test_a_log_is_rotated_and_ends_with_the_last_words(runtime: ProcessRuntime, tmp_path: Path) -> None:
    small = runtime_at(tmp_path, max_bytes=10_000)
    handle = await small.create(launch("sh", "-c", "seq 1 20000; echo to stderr >&2; exec >&- 2>&-; exit 0"))
    assert await until_ended(small, handle) == 0
    folder = tmp_path / "logs" / handle.state["kernel_id"]
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert set(sizes) == {"kernel.log", "kernel.log.1", "kernel.log.2"}
    assert max(sizes.values()) <= 10_000
    assert (await small.log_tail(handle, 30)).endswith("20000\nto stderr\n")


@pytest.mark.parametrize(
    ("program", "why"),
    [("no-such-program", "No such file"), ("/etc/passwd", "Permission denied"), ("/", "Permission denied")],
)
async def test_a_program_that_cannot_be_run(runtime: ProcessRuntime, program: str, why: str) -> None:
    order = launch(program)
    with pytest.raises(Exception, match=f"{program}.*{why}"):
        await runtime.create(order)
    seen = await runtime.observe((await runtime.find())[order.kernel_id])
    assert (seen.state, seen.refused) == (S.EXITED, True)


async def test_the_engine_sees_its_own_environment_and_signals(runtime: ProcessRuntime) -> None:
    script = "env | grep ^MOORAGE | cut -d= -f1 | sort; pwd; ls /proc/self/fd; grep SigIgn /proc/self/status"
    handle = await runtime.create(launch("sh", "-c", script))
    await until_ended(runtime, handle)
    marks = ["MOORAGE_AGENT_STATE", "MOORAGE_KERNEL_ID", "MOORAGE_PORT"]
    place = str(runtime.work_dir(handle.state["kernel_id"]))
    # The fourth descriptor is the one with which ls reads the list.
    *said, ignored = (await runtime.log_tail(handle)).splitlines()
    assert said == [*marks, place, "0", "1", "2", "3"]
    # Of the ordinary signals none (32 and 33 belong to the C library, which lets nobody set them).
    assert int(ignored.split()[1], 16) & 0x7FFFFFFF == 0


async def test_nothing_is_leaked(runtime: ProcessRuntime) -> None:
    async def one() -> None:
        handle = await runtime.create(launch("true"))
        await until_ended(runtime, handle)
        await runtime.destroy(handle)

    def zombies() -> set[int]:
        found = [stat for pid in procfs.pids() if (stat := procfs.stat(pid)) and stat.ppid == os.getpid()]
        return {stat.pid for stat in found if not stat.alive}

    await one()
    dead_before = zombies()  # of other tests
    await runtime.probe()  # now a supervisor waits for the next kernel, with two descriptors of ours
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await one()
    await runtime.probe()
    assert len(os.listdir("/proc/self/fd")) == before
    assert zombies() - dead_before == set()


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """A control group with 64 MiB, if this machine lets us make one."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        group = Path(f"/sys/fs/cgroup/{controllers}{path}") / f"moorage-test-{os.getpid()}"
        limit = {"memory": "memory.limit_in_bytes", "": "memory.max"}.get(controllers)
        if limit is None:
            continue
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(64 << 20))
            yield group
            return
        except OSError:
            continue  # version 2 without this controller
        finally:
            group.rmdir()
    pytest.skip("no memory control group can be made here")


async def test_too_much_memory_is_told(little_memory: Path, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    engine = [sys.executable, "-c", "x = bytearray(300 << 20); x[::4096] = b'1' * len(x[::4096])"]
    words = [
        sys.executable,
        "-I",
        "-S",
        supervisor.__file__,
        str(tmp_path),
        str(tmp_path),
        "10000",
        "1",
        "1",
    ]
    into = f"echo $$ > {little_memory}/cgroup.procs && exec "
    command = into + shlex.join([*words, *engine]) + " 3>/dev/null"
    shim = await asyncio.create_subprocess_shell(command)
    assert await asyncio.wait_for(shim.wait(), 20) == 0
    assert json.loads((tmp_path / "exit").read_text()) == {"code": -9, "oom": 1, "forced": 0, "exec": 0}
