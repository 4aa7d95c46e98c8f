"""Commands that are run inside a kernel, in every runtime."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.conformance.test_runtime import Bench, FakeBench, ProcessBench, bench, eventually, until

from moorage.agent.runtimes import Handle, Runtime, procfs
from moorage.agent.runtimes.execution import NOT_FOUND, STDERR, STDOUT, Command, ExecFailed, Execution
from moorage.common.model.status import ObservedState as S

__all__ = ["bench"]
_BEGIN = "import os, signal, sys, time\nsay = lambda fd, text: os.write(fd, text.encode())\n"
_SIZE = "say(1, '%d %d\\n' % os.get_terminal_size()[::-1])\n"
PROGRAMS = {
    "echo": "say(1, ' '.join(sys.argv[1:]) + '\\n')",
    "warn": "say(2, ' '.join(sys.argv[1:]) + '\\n')",
    "exit": "os._exit(int(sys.argv[1]))",
    "cat": "while data := os.read(0, 65536): os.write(1, data)",
    "env": "say(1, os.environ.get(sys.argv[1], '') + '\\n')",
    "size": f"signal.signal(signal.SIGWINCH, lambda *_: exec({_SIZE!r}))\n{_SIZE}\n"
    "while True: signal.pause()",
    "sleep": "time.sleep(3600)",
    "deaf": "signal.signal(signal.SIGHUP, signal.SIG_IGN)\nsay(1, 'up\\n')\ntime.sleep(3600)",
}


def words(bench: Bench, program: str, *more: str) -> tuple[str, ...]:
    if isinstance(bench, FakeBench):
        return program, *more
    python = sys.executable if isinstance(bench, ProcessBench) else "python3"
    return python, "-S", "-c", _BEGIN + PROGRAMS[program], *more


async def running(bench: Bench) -> tuple[Runtime, Handle]:
    runtime = bench.runtime()
    handle = await runtime.create(bench.launch())
    await until(runtime, handle, S.RUNNING)
    return runtime, handle


async def result(execution: Execution) -> tuple[int, bytes, bytes]:
    said = {STDOUT: b"", STDERR: b""}
    async with asyncio.timeout(20):
        while piece := await execution.read():
            said[piece[0]] += piece[1]
        code = await execution.wait()
    execution.disconnect()
    return code, said[STDOUT], said[STDERR]


async def said(execution: Execution, text: bytes) -> bytes:
    """Read until ``text`` was there."""
    seen = b""
    async with asyncio.timeout(20):
        while text not in seen:
            piece = await execution.read()
            assert piece is not None, f"it ended, and said {seen!r}"
            seen += piece[1]
    return seen


async def test_outputs_are_kept_apart_and_the_exit_code_is_known(bench: Bench) -> None:
    runtime, handle = await running(bench)
    done = [
        await result(await runtime.exec(handle, Command(words(bench, *given))))
        for given in (("echo", "a  b"), ("warn", "oh"), ("exit", "7"), ("cat",))
    ]
    assert done == [(0, b"a  b\n", b""), (0, b"", b"oh\n"), (7, b"", b""), (0, b"", b"")]


async def test_a_program_that_is_not_there_says_so(bench: Bench) -> None:
    runtime, handle = await running(bench)
    code, out, err = await result(await runtime.exec(handle, Command(("no-such-program",))))
    assert code in (NOT_FOUND, NOT_FOUND - 1)
    assert b"no-such-program" in out + err


async def test_it_has_the_environment_of_the_kernel_and_its_own(bench: Bench) -> None:
    runtime, handle = await running(bench)
    for name, own, value in (("OWN", {"OWN": "x=y"}, b"x=y\n"), ("OWN", {}, b"\n")):
        command = Command(words(bench, "env", name), env=own)
        assert await result(await runtime.exec(handle, command)) == (0, value, b"")


async def test_input_goes_in_until_its_end(bench: Bench) -> None:
    runtime, handle = await running(bench)
    execution = await runtime.exec(handle, Command(words(bench, "cat"), stdin=True))
    data = os.urandom(300_000)
    seen = b""

    async def feed() -> None:
        for at in range(0, len(data), 10_000):
            await execution.write(data[at : at + 10_000])
        await execution.end_input()

    feeding = asyncio.create_task(feed())
    code, seen, _ = await result(execution)
    await feeding
    assert code == 0
    assert seen == data


async def test_a_terminal_has_a_size_that_changes(bench: Bench) -> None:
    runtime, handle = await running(bench)
    command = Command(words(bench, "size"), tty=True, stdin=True, rows=30, cols=100)
    execution = await runtime.exec(handle, command)
    first = await said(execution, b"\n")
    # An engine is told the size after the command has begun.
    if b"30 100" not in first:
        await said(execution, b"30 100")
    await execution.resize(50, 200)
    await said(execution, b"50 200")
    execution.disconnect()


async def test_hanging_up_ends_it(bench: Bench) -> None:
    runtime, handle = await running(bench)
    execution = await runtime.exec(handle, Command(words(bench, "sleep")))
    execution.disconnect()
    execution.disconnect()
    assert (await runtime.observe(handle)).state is S.RUNNING


async def test_it_ends_with_its_kernel(bench: Bench) -> None:
    runtime, handle = await running(bench)
    execution = await runtime.exec(handle, Command(words(bench, "sleep")))
    await runtime.destroy(handle)
    with suppress(ExecFailed):  # its engine may have forgotten it already
        assert (await result(execution))[0] != 0
    assert (await runtime.observe(handle)).state is S.GONE
    with pytest.raises(ExecFailed):
        await runtime.exec(handle, Command(words(bench, "echo")))


async def test_a_reader_that_does_not_read_holds_up_nothing_else(bench: Bench) -> None:
    runtime, handle = await running(bench)
    lazy = await runtime.exec(handle, Command(words(bench, "cat"), stdin=True))

    async def flood() -> None:
        while True:
            await lazy.write(b"x" * 65_536)
            await asyncio.sleep(0)

    flooding = asyncio.create_task(flood())
    done, _ = await asyncio.wait([flooding], timeout=0.5)
    assert not done, "it must wait for the reader, and not gather for ever"
    assert await result(await runtime.exec(handle, Command(words(bench, "exit", "3")))) == (3, b"", b"")
    flooding.cancel()
    await asyncio.gather(flooding, return_exceptions=True)
    lazy.disconnect()


async def test_a_user_who_does_not_read_does_not_keep_a_kernel_from_its_end(bench: Bench) -> None:
    runtime, handle = await running(bench)
    lazy = await runtime.exec(handle, Command(words(bench, "cat"), stdin=True))

    async def flood() -> None:
        while True:
            await lazy.write(b"x" * 65_536)
            await asyncio.sleep(0)

    flooding = asyncio.create_task(flood())
    await asyncio.wait([flooding], timeout=0.5)
    await runtime.stop(handle, 1)
    await until(runtime, handle, S.EXITED)
    await runtime.destroy(handle)
    flooding.cancel()
    await asyncio.gather(flooding, return_exceptions=True)
    lazy.disconnect()


def _sleepers(mark: str) -> list[int]:
    found = []
    for pid in procfs.pids():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                there = mark.encode() in file.read()
        except OSError:
            continue
        if there and (now := procfs.stat(pid)) and now.alive and pid != os.getpid():
            found.append(pid)
    return found


@pytest.mark.parametrize("program", ["sleep", "deaf"])
async def test_nothing_of_a_command_is_left_when_its_user_is_gone(bench: Bench, program: str) -> None:
    if isinstance(bench, FakeBench):
        pytest.skip("it has no processes")
    runtime, handle = await running(bench)
    mark = f"{program}-{handle.state['kernel_id']}"
    execution = await runtime.exec(handle, Command(words(bench, program, mark)))
    if program == "deaf":
        await said(execution, b"up")

    async def there() -> bool:
        return bool(_sleepers(mark))

    async def gone() -> bool:
        return not _sleepers(mark)

    await eventually(there)
    execution.disconnect()
    await eventually(gone, 30)


async def test_what_it_leaves_in_the_background_goes_with_the_kernel(bench: Bench) -> None:
    if isinstance(bench, FakeBench):
        pytest.skip("it has no processes")
    runtime, handle = await running(bench)
    mark = f"background-{handle.state['kernel_id']}"
    program = "import os, time\nif os.fork(): os._exit(0)\nos.setsid(); time.sleep(3600) # " + mark
    python = words(bench, "sleep")[:3]
    code, _, _ = await result(await runtime.exec(handle, Command((*python, program))))
    assert code == 0
    assert _sleepers(mark)
    await runtime.destroy(handle)
    assert not _sleepers(mark)


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


async def test_a_killed_agent_takes_its_commands_along_and_not_its_kernels(tmp_path: Path) -> None:
    launch = ProcessBench(tmp_path).launch()
    mark = str(launch.kernel_id)
    words = (sys.executable, "-c", _AGENT, str(tmp_path), mark)
    agent = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    assert agent.stdout is not None
    assert await agent.stdout.readline() == b"running\n"

    def commands() -> list[int]:
        return [pid for pid in _sleepers(f"sleep(3600)\0{mark}") if pid != agent.pid]

    async def there() -> bool:
        return bool(commands())

    async def gone() -> bool:
        return not commands()

    runtime = ProcessBench(tmp_path).runtime()
    try:
        await eventually(there)
        agent.kill()
        await agent.wait()
        await eventually(gone, 30)
        [handle] = (await runtime.find()).values()
        assert (await runtime.observe(handle)).state is S.RUNNING
        # Its successor runs commands in it, too.
        await runtime.probe()
        program = (sys.executable, "-S", "-c", _BEGIN + PROGRAMS["exit"], "5")
        assert (await result(await runtime.exec(handle, Command(program))))[0] == 5
    finally:
        for handle in (await runtime.find()).values():
            await runtime.destroy(handle)
