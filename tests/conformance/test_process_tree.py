"""Process runtime: complete process trees, killed supervisors, reused pids, logs, OOM kills."""

from __future__ import annotations

import asyncio
import json
import os
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
from moorage.agent.runtimes.base import KERNEL_ID_VAR, OWNER_VAR
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import SystemClock
from moorage.common.model.ids import KernelId
from moorage.common.model.status import ObservedState as S


def runtime_at(state: Path, max_bytes: int = 100_000) -> ProcessRuntime:
    return ProcessRuntime(
        state, LogStore(state / "logs"), log_max_bytes=max_bytes, log_keep_files=2
    )


def launch(*argv: str, **env: str) -> Launch:
    return Launch(KernelId(SystemClock().new_id()), argv, {"PATH": os.environ["PATH"], **env})


@pytest_asyncio.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[ProcessRuntime]:
    runtime = runtime_at(tmp_path)
    yield runtime
    for handle in (await runtime.find()).values():
        await runtime.destroy(handle)
    runtime.close()


async def until_exited(runtime: ProcessRuntime, handle: Handle) -> int | None:
    async with asyncio.timeout(10):
        while (observation := await runtime.observe(handle)).state is not S.EXITED:
            await runtime.wait(handle, observation.state)
    return observation.exit_code


async def written_pids(path: Path, count: int) -> list[int]:
    """The pids that the kernel wrote into a file, once there are ``count`` of them."""
    async with asyncio.timeout(10):
        while not path.exists() or len(path.read_text().split()) < count:
            await asyncio.sleep(0.02)
    return [int(word) for word in path.read_text().split()]


def is_alive(pid: int) -> bool:
    stat = procfs.stat(pid)
    return stat is not None and stat.alive


# Writes four pids: its own, and those of a child, a daemon (own session, no parent, no
# environment), and an orphan in the session that has lost its environment, like programs that
# rename themselves.
FAMILY = """
import os, subprocess, sys, time
out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
write_pid = lambda: os.write(out, f"{os.getpid()} ".encode())
def sleeper(new_session, env):
    if os.fork() == 0:
        if new_session:
            os.setsid()
        if os.fork():
            os._exit(0)
        write_pid()
        os.execve("/bin/sleep", ["sleep", "3600"], env)
sleeper(True, dict(os.environ) if sys.argv[2] == "with-env" else {})
sleeper(False, {})
if os.fork() == 0:
    write_pid()
    time.sleep(3600)
write_pid()
{end}
"""


def family(tmp_path: Path, end: str, daemon_env: str = "without-env") -> tuple[Launch, Path]:
    out = tmp_path / "pids"
    program = textwrap.dedent(FAMILY).replace("{end}", end)
    return launch(sys.executable, "-S", "-c", program, str(out), daemon_env), out


async def test_stop_kills_the_whole_tree(runtime: ProcessRuntime, tmp_path: Path) -> None:
    order, out = family(tmp_path, "time.sleep(3600)")
    handle = await runtime.create(order)
    pids = await written_pids(out, 4)
    assert all(is_alive(pid) for pid in pids)
    await runtime.stop(handle, 5)
    assert await until_exited(runtime, handle) == -signal.SIGTERM
    assert not any(is_alive(pid) for pid in pids)


async def test_exit_of_the_main_program_kills_the_rest_of_the_tree(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    order, out = family(
        tmp_path, "while len(open(sys.argv[1]).read().split()) < 4: pass\nsys.exit(5)"
    )
    handle = await runtime.create(order)
    assert await until_exited(runtime, handle) == 5
    assert not any(is_alive(pid) for pid in await written_pids(out, 4))


async def test_destroy_kills_the_tree_without_a_supervisor(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    order, out = family(tmp_path, "time.sleep(3600)", "with-env")
    handle = await runtime.create(order)
    pids = await written_pids(out, 4)
    os.kill(handle.state["shim_pid"], signal.SIGKILL)
    async with asyncio.timeout(5):
        await runtime.wait(handle, S.RUNNING)

    observation = await runtime.observe(handle)
    assert (observation.state, observation.exit_code, observation.all_exited) == (
        S.EXITED,
        None,
        False,
    )
    assert any(is_alive(pid) for pid in pids), "no process is left, so the test proves nothing"

    # An agent with another state directory finds nothing.
    assert await runtime_at(tmp_path / "other").find() == {}
    found = (await runtime_at(tmp_path).find())[order.kernel_id]
    await runtime_at(tmp_path).destroy(found)
    assert not any(is_alive(pid) for pid in pids)


async def test_process_with_a_reused_pid_is_left_alone(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    handle = await runtime.create(launch("sleep", "3600"))
    foreign = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    ours = {handle.state["shim_start"], handle.state["engine_start"]}

    # start times have a resolution of 10 ms
    while (stat := procfs.stat(foreign.pid)) and stat.start in ours:
        foreign.kill()
        foreign.wait()
        foreign = subprocess.Popen(["sleep", "3600"], start_new_session=True)

    try:
        # As if the foreign process had reused the kernel's pids.
        reused = {"shim_pid": foreign.pid, "engine_pid": foreign.pid}
        stale = replace(handle, state=handle.state | {"kernel_id": "another"} | reused)
        await runtime.stop(stale, 0)
        await runtime.destroy(stale)
        assert (await runtime.observe(stale)).state is S.GONE
        assert is_alive(foreign.pid)
        assert is_alive(handle.state["shim_pid"])
    finally:
        foreign.kill()
        foreign.wait()


async def test_kernel_is_gone_after_a_reboot(runtime: ProcessRuntime) -> None:
    handle = await runtime.create(launch("sleep", "3600"))
    rebooted = replace(handle, state=handle.state | {"boot_id": "an-earlier-one"})
    assert (await runtime.observe(rebooted)).state is S.GONE
    assert (await runtime.observe(handle)).state is S.RUNNING


async def test_kernel_with_deleted_files_is_found_and_destroyed(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    order = launch("sleep", "3600")
    handle = await runtime.create(replace(order, port=4712))
    subprocess.run(["rm", "-r", str(tmp_path / "kernels"), str(tmp_path / "logs")], check=True)
    found = (await runtime_at(tmp_path).find())[order.kernel_id]
    assert (found.state["shim_pid"], found.port) == (handle.state["shim_pid"], 4712)
    assert (await runtime.observe(found)).state in (S.RUNNING, S.CREATING)
    await runtime.destroy(found)
    assert not is_alive(handle.state["shim_pid"])
    assert not is_alive(handle.state["engine_pid"])


async def test_log_is_rotated_and_complete_at_the_end(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    small = runtime_at(tmp_path, max_bytes=10_000)
    handle = await small.create(
        launch("sh", "-c", "seq 1 20000; echo to stderr >&2; exec >&- 2>&-; exit 0")
    )
    assert await until_exited(small, handle) == 0
    folder = tmp_path / "logs" / handle.state["kernel_id"]
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    logs = {name for name in sizes if name.startswith("output.")}
    assert len(logs) == 3
    assert sizes.keys() - logs == {name.replace("output", "times") for name in logs}
    assert max(sizes[name] for name in logs) <= 10_000
    assert (await small.log_tail(handle, 30)).endswith("20000\nto stderr\n")


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("no-such-program", "No such file"),
        ("/etc/passwd", "Permission denied"),
        ("/", "Permission denied"),
    ],
)
async def test_program_that_cannot_be_executed(
    runtime: ProcessRuntime, program: str, error: str
) -> None:
    order = launch(program)
    with pytest.raises(Exception, match=f"{program}.*{error}"):
        await runtime.create(order)
    observation = await runtime.observe((await runtime.find())[order.kernel_id])
    assert (observation.state, observation.never_started) == (S.EXITED, True)


async def test_kernel_gets_exactly_its_own_environment(runtime: ProcessRuntime) -> None:
    handle = await runtime.create(launch("env", MINE="a=b c"))
    await until_exited(runtime, handle)
    env = dict(line.split("=", 1) for line in (await runtime.log_tail(handle)).splitlines())
    assert env.pop("MINE") == "a=b c"
    assert set(env) == {"PATH", KERNEL_ID_VAR, OWNER_VAR, "MOORAGE_PORT"}


async def test_environment_of_a_shim_identifies_its_kernel(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    order = launch("sleep", "60", MINE="a=b c")
    handle = await runtime.create(order)
    env = procfs.environ(handle.state["shim_pid"]) or {}
    assert (env.pop(KERNEL_ID_VAR), env.pop(OWNER_VAR)) == (order.kernel_id, str(tmp_path))
    assert env.keys() - {"LD_LIBRARY_PATH"} == {"MOORAGE_PORT", "MOORAGE_SHIM"}
    again = runtime_at(tmp_path)
    assert (await again.find())[order.kernel_id].state["shim_pid"] == handle.state["shim_pid"]


async def test_program_has_clean_descriptors_and_signals(runtime: ProcessRuntime) -> None:
    script = "pwd; ls /proc/self/fd; grep SigIgn /proc/self/status"
    handle = await runtime.create(launch("sh", "-c", script))
    await until_exited(runtime, handle)
    directory = str(runtime.work_dir(handle.state["kernel_id"]))
    # ls itself opens descriptor 3 to read the list.
    *lines, ignored = (await runtime.log_tail(handle)).splitlines()
    assert lines == [directory, "0", "1", "2", "3"]
    # No standard signal is ignored (the C library reserves 32 and 33).
    assert int(ignored.split()[1], 16) & 0x7FFFFFFF == 0


async def test_no_descriptors_or_zombies_are_leaked(runtime: ProcessRuntime) -> None:
    async def one() -> None:
        handle = await runtime.create(launch("true"))
        await until_exited(runtime, handle)
        await runtime.destroy(handle)

    def zombies() -> set[int]:
        found = [
            stat for pid in procfs.pids() if (stat := procfs.stat(pid)) and stat.ppid == os.getpid()
        ]
        return {stat.pid for stat in found if not stat.alive}

    await one()
    dead_before = zombies()  # left by other tests
    await runtime.probe()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await one()

    await runtime.probe()
    assert len(os.listdir("/proc/self/fd")) == before
    assert zombies() - dead_before == set()


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A control group with 64 MiB of memory, if this machine permits it."""
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

    pytest.skip("cannot create a memory control group here")


async def test_oom_kill_is_recorded(
    runtime: ProcessRuntime, small_cgroup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = launch(
        sys.executable, "-c", "x = bytearray(300 << 20); x[::4096] = b'1' * len(x[::4096])"
    )
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho $$ > {small_cgroup}/cgroup.procs\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o700)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(python))
        handle = await runtime.create(engine)

    assert await until_exited(runtime, handle) == -9
    assert json.loads((tmp_path / "kernels" / engine.kernel_id / "exit").read_text()) == {
        "code": -9, "oom": 1, "forced": 0, "exec": 0, "lease": 0,
    }  # fmt: skip
    assert (await runtime.observe(handle)).oom
