"""Conformance suite for commands inside kernels."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
from tests.conformance.harnesses import FakeHarness, ProcessHarness
from tests.conformance.test_runtime import new_harness

from moorage.agent.runtimes import Handle, Runtime, procfs
from moorage.agent.runtimes.execution import (
    NOT_FOUND,
    NOT_RUN,
    STDERR,
    STDOUT,
    Command,
    ExecFailed,
    Execution,
)
from moorage.common.model.status import ObservedState as S
from moorage.testing import RuntimeHarness as Harness
from moorage.testing.runtime_conformance import eventually, until, used

__all__ = ["new_harness"]
_PRELUDE = "import os, signal, sys, time\nwrite = lambda fd, text: os.write(fd, text.encode())\n"
_SIZE = "write(1, '%d %d\\n' % os.get_terminal_size()[::-1])\n"
PROGRAMS = {
    "echo": "write(1, ' '.join(sys.argv[1:]) + '\\n')",
    "warn": "write(2, ' '.join(sys.argv[1:]) + '\\n')",
    "exit": "os._exit(int(sys.argv[1]))",
    "cat": "while data := os.read(0, 65536): os.write(1, data)",
    "env": "write(1, os.environ.get(sys.argv[1], '') + '\\n')",
    "size": f"signal.signal(signal.SIGWINCH, lambda *_: exec({_SIZE!r}))\n{_SIZE}\n"
    "while True: signal.pause()",
    "sleep": "time.sleep(3600)",
    "ignores-hup": "signal.signal(signal.SIGHUP, signal.SIG_IGN)\nwrite(1, 'up\\n')\ntime.sleep(3600)",
}


@pytest_asyncio.fixture
async def harness(new_harness: Harness) -> AsyncIterator[Harness]:
    async with used(new_harness):
        yield new_harness


def command_line(harness: Harness, program: str, *arguments: str) -> tuple[str, ...]:
    if isinstance(harness, FakeHarness):
        return program, *arguments
    python = sys.executable if isinstance(harness, ProcessHarness) else "python3"
    return python, "-S", "-c", _PRELUDE + PROGRAMS[program], *arguments


async def running(harness: Harness) -> tuple[Runtime, Handle]:
    runtime = harness.runtime()
    if not runtime.capabilities.exec:
        pytest.skip("it declares that it runs no commands; test_runtime.py checks the refusal")
    handle = await runtime.create(harness.launch())
    await until(runtime, handle, S.RUNNING)
    return runtime, handle


async def result(execution: Execution) -> tuple[int, bytes, bytes]:
    output = {STDOUT: b"", STDERR: b""}
    async with asyncio.timeout(20):
        while piece := await execution.read():
            output[piece[0]] += piece[1]
        code = await execution.wait()
    execution.disconnect()
    return code, output[STDOUT], output[STDERR]


async def read_until(execution: Execution, text: bytes) -> bytes:
    """Read until the output contains ``text``."""
    output = b""
    async with asyncio.timeout(20):
        while text not in output:
            piece = await execution.read()
            assert piece is not None, f"it ended after {output!r}"
            output += piece[1]
    return output


async def test_outputs_are_separate_and_the_exit_code_is_reported(harness: Harness) -> None:
    runtime, handle = await running(harness)
    done = [
        await result(await runtime.exec(handle, Command(command_line(harness, *given))))
        for given in (("echo", "a  b"), ("warn", "oh"), ("exit", "7"), ("cat",))
    ]
    assert done == [(0, b"a  b\n", b""), (0, b"", b"oh\n"), (7, b"", b""), (0, b"", b"")]


async def test_missing_program_prints_an_error(harness: Harness) -> None:
    runtime, handle = await running(harness)
    code, out, err = await result(await runtime.exec(handle, Command(("no-such-program",))))
    assert code in (NOT_FOUND, NOT_FOUND - 1)
    assert b"no-such-program" in out + err


@pytest.mark.parametrize("mode", [0o600, 0o700], ids=["not executable", "of no known format"])
async def test_file_that_cannot_be_executed(harness: Harness, tmp_path: Path, mode: int) -> None:
    if not isinstance(harness, ProcessHarness):
        pytest.skip("the program is a file of this machine")
    runtime, handle = await running(harness)
    program = tmp_path / "data"
    program.write_text("no program\n")
    program.chmod(mode)
    code, _, err = await result(await runtime.exec(handle, Command((str(program),))))
    assert (code, b"cannot run" in err) == (NOT_RUN, True), err


async def test_environment_is_added_to_that_of_the_kernel(harness: Harness) -> None:
    runtime, handle = await running(harness)
    for name, own, value in (("OWN", {"OWN": "x=y"}, b"x=y\n"), ("OWN", {}, b"\n")):
        command = Command(command_line(harness, "env", name), env=own)
        assert await result(await runtime.exec(handle, command)) == (0, value, b"")


async def test_input_until_end_of_file(harness: Harness) -> None:
    runtime, handle = await running(harness)
    execution = await runtime.exec(handle, Command(command_line(harness, "cat"), stdin=True))
    data = os.urandom(300_000)

    async def feed() -> None:
        for at in range(0, len(data), 10_000):
            await execution.write(data[at : at + 10_000])
        await execution.end_input()

    feeding = asyncio.create_task(feed())
    code, output, _ = await result(execution)
    await feeding
    assert code == 0
    assert output == data


async def test_terminal_size_can_change(harness: Harness) -> None:
    runtime, handle = await running(harness)
    command = Command(command_line(harness, "size"), tty=True, stdin=True, rows=30, cols=100)
    execution = await runtime.exec(handle, command)
    first = await read_until(execution, b"\n")

    # Docker sets the size after the command has started.
    if b"30 100" not in first:
        await read_until(execution, b"30 100")

    await execution.resize(50, 200)
    await read_until(execution, b"50 200")
    execution.disconnect()


async def test_disconnect_is_idempotent_and_leaves_the_kernel_running(harness: Harness) -> None:
    runtime, handle = await running(harness)
    execution = await runtime.exec(handle, Command(command_line(harness, "sleep")))
    execution.disconnect()
    execution.disconnect()
    assert (await runtime.observe(handle)).state is S.RUNNING


async def test_command_ends_with_its_kernel(harness: Harness) -> None:
    runtime, handle = await running(harness)
    execution = await runtime.exec(handle, Command(command_line(harness, "sleep")))
    await runtime.destroy(handle)
    with suppress(ExecFailed):  # Docker may already have forgotten it
        assert (await result(execution))[0] != 0
    assert (await runtime.observe(handle)).state is S.GONE
    with pytest.raises(ExecFailed):
        await runtime.exec(handle, Command(command_line(harness, "echo")))


async def test_slow_reader_blocks_only_its_own_command(harness: Harness) -> None:
    runtime, handle = await running(harness)
    slow = await runtime.exec(handle, Command(command_line(harness, "cat"), stdin=True))

    async def flood() -> None:
        while True:
            await slow.write(b"x" * 65_536)
            await asyncio.sleep(0)

    flooding = asyncio.create_task(flood())
    done, _ = await asyncio.wait([flooding], timeout=0.5)
    assert not done, "the writer must wait for the reader instead of buffering without bound"
    assert await result(
        await runtime.exec(handle, Command(command_line(harness, "exit", "3")))
    ) == (
        3,
        b"",
        b"",
    )
    flooding.cancel()
    await asyncio.gather(flooding, return_exceptions=True)
    slow.disconnect()


async def test_slow_reader_does_not_delay_the_exit_of_the_kernel(harness: Harness) -> None:
    runtime, handle = await running(harness)
    slow = await runtime.exec(handle, Command(command_line(harness, "cat"), stdin=True))

    async def flood() -> None:
        while True:
            await slow.write(b"x" * 65_536)
            await asyncio.sleep(0)

    flooding = asyncio.create_task(flood())
    await asyncio.wait([flooding], timeout=0.5)
    await runtime.stop(handle, 1)
    await until(runtime, handle, S.EXITED)
    await runtime.destroy(handle)
    flooding.cancel()
    await asyncio.gather(flooding, return_exceptions=True)
    slow.disconnect()


def _processes_with(argument: str) -> list[int]:
    found = []
    for pid in procfs.pids():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                matches = argument.encode() in file.read()
        except OSError:
            continue

        if matches and (stat := procfs.stat(pid)) and stat.alive and pid != os.getpid():
            found.append(pid)

    return found


@pytest.mark.parametrize("program", ["sleep", "ignores-hup"])
async def test_disconnected_command_is_killed(harness: Harness, program: str) -> None:
    if isinstance(harness, FakeHarness):
        pytest.skip("fake kernels have no processes")

    runtime, handle = await running(harness)
    mark = f"{program}-{handle.state['kernel_id']}"
    execution = await runtime.exec(handle, Command(command_line(harness, program, mark)))
    if program == "ignores-hup":
        await read_until(execution, b"up")

    async def started() -> bool:
        return bool(_processes_with(mark))

    async def gone() -> bool:
        return not _processes_with(mark)

    await eventually(started)
    execution.disconnect()
    await eventually(gone, 30)


async def test_background_processes_end_with_the_kernel(harness: Harness) -> None:
    if isinstance(harness, FakeHarness):
        pytest.skip("fake kernels have no processes")

    runtime, handle = await running(harness)
    mark = f"background-{handle.state['kernel_id']}"
    program = "import os, time\nif os.fork(): os._exit(0)\nos.setsid(); time.sleep(3600) # " + mark
    python = command_line(harness, "sleep")[:3]
    code, _, _ = await result(await runtime.exec(handle, Command((*python, program))))
    assert code == 0
    assert _processes_with(mark)
    await runtime.destroy(handle)
    assert not _processes_with(mark)


_AGENT = """
import asyncio, os, sys
from pathlib import Path
from moorage.agent.state.logs import LogStore
from moorage.agent.runtimes import Launch, ProcessRuntime
from moorage.agent.runtimes.execution import Command
from moorage.common.model.ids import KernelId

async def main(folder, mark):
    runtime = ProcessRuntime(folder, LogStore(folder / "logs"), log_max_bytes=100_000, log_keep_files=3)
    env = {"PATH": os.environ["PATH"]}
    handle = await runtime.create(Launch(KernelId(mark), ("sleep", "3600"), env))
    await runtime.exec(handle, Command((sys.executable, "-S", "-c", "import time; time.sleep(3600)", mark)))
    print("running", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


async def test_killed_agent_ends_its_commands_but_not_its_kernels(tmp_path: Path) -> None:
    launch = ProcessHarness(tmp_path).launch()
    mark = str(launch.kernel_id)
    argv = (sys.executable, "-c", _AGENT, str(tmp_path), mark)
    agent = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    assert agent.stdout is not None
    assert await agent.stdout.readline() == b"running\n"

    def commands() -> list[int]:
        return [pid for pid in _processes_with(f"sleep(3600)\0{mark}") if pid != agent.pid]

    async def started() -> bool:
        return bool(commands())

    async def gone() -> bool:
        return not commands()

    runtime = ProcessHarness(tmp_path).runtime()
    try:
        await eventually(started)
        agent.kill()
        await agent.wait()
        await eventually(gone, 30)
        [handle] = (await runtime.find()).values()
        assert (await runtime.observe(handle)).state is S.RUNNING

        # The next agent can run commands in the kernel.
        await runtime.probe()
        program = (sys.executable, "-S", "-c", _PRELUDE + PROGRAMS["exit"], "5")
        assert (await result(await runtime.exec(handle, Command(program))))[0] == 5
    finally:
        for handle in (await runtime.find()).values():
            await runtime.destroy(handle)
