"""Code kernel: a program in the session that runs code, and the speaker through which the agent
talks to it.

The program runs as a command in the session (decision 12), with the session's rights, limits and
environment. Its sockets are files in the session's workspace, so no port is open and no network is
needed. The agent watches the program itself rather than its heartbeat. A request sent to a dead
kernel would run in the next kernel at the same address, so each start has its own directory and
key.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from moorage.agent.execution.code import kernelspecs, speaker
from moorage.agent.execution.code.kernelspecs import Kernelspec
from moorage.agent.execution.code.records import BEFORE, Run
from moorage.agent.runtimes.execution import Command, ExecFailed, Execution
from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.code_runs import MAX_OUTPUT_BYTES
from moorage.common.model.errors import Conflict

log = structlog.get_logger("moorage.agent.code")
FOLDER = ".moorage-code"
_LINE = 32 * 1024 * 1024
_START_S = speaker.READY_S + 10.0
_SHUTDOWN_S = 1.0
_COMPLETE_S = speaker.REPLY_S
_BEGIN_S = 2.0  # how long an interrupt waits for sent code to start
_SHORT_BYTES = 1024 * 1024  # output limit of a short command
_TAIL = 2000  # how many characters of the program's last output are kept
# The speaker needs only the variables of the agent's environment that Python needs.
_INHERITED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG")
RunCommand = Callable[[Command], Awaitable[Execution]]


@dataclass(frozen=True, slots=True)
class CodePlace:
    """The session's kernel in which code runs. ``run`` runs a command in it. ``folder``: its
    workspace on the node, where commands start."""

    run: RunCommand
    folder: Path


class CodeKernel:
    """The code kernel of one lane. It is started for the first run, and restarted after it has
    ended."""

    def __init__(self, spec: Kernelspec, place: CodePlace, clock: Clock) -> None:
        self._spec = spec
        self._place = place
        self._clock = clock
        self._program: _Program | None = None
        self._starting = asyncio.Lock()
        self._sent = False
        self._interrupted = False

    @property
    def alive(self) -> bool:
        return self._program is not None and not self._program.ended.is_set()

    async def perform(self, run: Run) -> None:
        self._sent = False
        self._interrupted = False
        program = await self._started()
        if self._interrupted:
            run.end(None, BEFORE)
            return
        self._sent = True
        await program.execute(run)

    async def complete(self, code: str, cursor: int) -> dict[str, Any]:
        """Complete code. Raises ``Conflict`` if the kernel does not answer."""
        return await (await self._started()).complete(code, cursor)

    async def interrupt(self) -> None:
        """Interrupt the run. An idle kernel ignores signals, so a run that was not sent yet is
        dropped, and a run that was sent is interrupted once it has started."""
        if not self._sent:
            self._interrupted = True
        if self._program is None or not self.alive or not self._sent:
            return

        await self._program.wait_for_begin()
        if self._spec.by_message:
            self._program.send(op="interrupt")
        else:
            argv = ("sh", "-c", kernelspecs.INTERRUPT, "sh", self._program.folder)
            await run_to_end(self._place.run, Command(argv))

    def give_input(self, run: Run, text: str) -> bool:
        if self._program is None or not run.wants_input:
            return False
        run.append({"type": "answered"})
        self._program.send(op="input", text=text)
        return True

    async def kill(self) -> None:
        program = self._program
        self._program = None
        if program is not None:
            await program.close()

    async def _started(self) -> _Program:
        """Return a program that is ready. If its start fails or is cancelled, the program is
        closed."""
        async with self._starting:
            if self._program is None or not self.alive:
                await self.kill()
                program = _Program(self._spec, self._place, self._clock)
                try:
                    await program.start()
                except BaseException:
                    await program.close()
                    raise

                self._program = program

            return self._program


class _Program:
    """One start of a code kernel. ``ended`` is set when the program or its speaker has ended, for
    the reason ``why``."""

    def __init__(self, spec: Kernelspec, place: CodePlace, clock: Clock) -> None:
        self._spec = spec
        self._place = place
        self.folder = f"{FOLDER}/{clock.secret(6)}"
        self._key = clock.secret(32)
        self.ended = asyncio.Event()
        self.why = ""
        self._ready = asyncio.Event()
        self._created = asyncio.Event()
        self._failure = ""
        self._execution: Execution | None = None
        self._speaker: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._run: Run | None = None
        self._begun = asyncio.Event()
        self._done = asyncio.Event()
        self._ids = itertools.count(1)
        self._completions: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def start(self) -> None:
        """Start the program. Raises ``ExecFailed`` and the errors of ``Runtime.exec``."""
        env = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        self._speaker = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-s",
            speaker.__file__,
            env=env,
            cwd="/",
            limit=_LINE,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._tasks.append(spawn("code.speaker", self._listen(self._speaker)))
        command = Command(self._spec.command(self.folder), dict(self._spec.env), stdin=True)
        self._execution = await self._place.run(command)
        self._tasks.append(spawn("code.program", self._watch(self._execution)))
        await self._execution.write(json.dumps(self._connection(f"{self.folder}/k")).encode())
        await self._execution.end_input()

        try:
            async with asyncio.timeout(_START_S):
                await self._first(self._created)
                folder = str(self._place.folder / self.folder)
                self.send(**self._connection("k"), folder=folder, max_bytes=MAX_OUTPUT_BYTES)
                await self._first(self._ready)
        except TimeoutError:
            self._failure = self._failure or f"it was not ready within {_START_S:g} s"

        if not self._ready.is_set():
            raise ExecFailed(
                f"code kernel {self._spec.name!r} did not start: {self._failure or self.why}",
                next_step="check its kernelspec in the session, and moorage[code] on the agent",
            )

    async def execute(self, run: Run) -> None:
        self._run = run
        self._begun.clear()
        self._done.clear()
        self.send(
            op="execute", run=run.run_id, code=run.request["code"], stdin=run.request["stdin"]
        )
        await self._first(self._done)
        if not run.ended:
            run.end(None, f"the code kernel has ended, and its variables are lost: {self.why}")

    async def wait_for_begin(self) -> None:
        """Wait until the code has started, which some code kernels do not report."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_BEGIN_S):
                await self._first(self._begun)

    async def complete(self, code: str, cursor: int) -> dict[str, Any]:
        number = next(self._ids)
        answer = self._completions[number] = asyncio.get_running_loop().create_future()
        try:
            self.send(op="complete", id=number, code=code, cursor=cursor)
            async with asyncio.timeout(_COMPLETE_S):
                found: dict[str, Any] = await answer
                return found
        except TimeoutError:
            raise Conflict(
                f"code kernel {self._spec.name!r} did not answer within {_COMPLETE_S:g} s: it is "
                "busy",
                next_step="wait for its run to end, or interrupt it",
            ) from None
        finally:
            del self._completions[number]

    def send(self, **command: Any) -> None:
        assert self._speaker is not None
        assert self._speaker.stdin is not None
        with suppress(OSError):
            self._speaker.stdin.write(json.dumps(command).encode() + b"\n")

    async def close(self) -> None:
        """Ask the program to end, and kill it if it does not."""
        try:
            if self._ready.is_set() and not self.ended.is_set():
                self.send(op="shutdown")
                with suppress(TimeoutError):
                    async with asyncio.timeout(_SHUTDOWN_S):
                        await self.ended.wait()
        finally:  # even if the caller has left
            if self._execution is not None:
                self._execution.disconnect()
            if self._speaker is not None and self._speaker.returncode is None:
                with suppress(ProcessLookupError):
                    self._speaker.kill()

            self._end("it was ended")
            await cancel_and_wait(*self._tasks)
            if self._speaker is not None:
                await self._speaker.wait()

    async def _first(self, event: asyncio.Event) -> None:
        """Wait until ``event`` is set or the program has ended."""
        waits = [spawn("code.wait", _wait(awaited)) for awaited in (event, self.ended)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(*waits)

    def _connection(self, ip: str) -> dict[str, Any]:
        ports = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
        numbers = {name: number for number, name in enumerate(ports, start=1)}
        return {
            "transport": "ipc",
            "ip": ip,
            "key": self._key,
            "signature_scheme": "hmac-sha256",
            **numbers,
        }

    async def _watch(self, execution: Execution) -> None:
        """Read the program's own output, and notice when it ends."""
        output = b""
        while (piece := await execution.read()) is not None:
            output = (output + piece[1])[-_TAIL:]
            if kernelspecs.STARTED in output:
                output = output.replace(kernelspecs.STARTED, b"")
                self._created.set()

        try:
            code: int | str = await execution.wait()
        except ExecFailed as error:
            code = error.message

        text = output.decode(errors="replace").strip()
        self._end(f"exit code {code}" + (f"; it printed: {text}" if text else ""))

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                self._take(json.loads(line))

            await process.wait()
            # When the program dies, its speaker ends shortly afterwards. The program's exit status
            # is more informative.
            self._end(self._failure or f"its speaker ended with {process.returncode}")
        except (ValueError, KeyError, TypeError) as error:  # or a line longer than _LINE bytes
            log.warning("the speaker of a code kernel sent an invalid message", why=str(error))
            self._end("its speaker sent an invalid message")

    def _take(self, event: dict[str, Any]) -> None:
        run = self._run
        match event["event"]:
            case "ready":
                self._ready.set()
            case "failed":
                self._failure = event["detail"]
            case "completions":
                answer = self._completions.get(event["id"])
                if answer is not None and not answer.done():
                    answer.set_result(event["found"])
            case _ if run is None or run.run_id != event["run"]:
                pass
            case "output":
                run.append(event["item"])
            case "flooded":
                run.flood()
            case "begun":
                self._begun.set()
            case "done":
                self._begun.set()
                run.end(0 if event["ok"] else 1)
                self._done.set()

    def _end(self, why: str) -> None:
        self.why = self.why or why
        self.ended.set()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def run_to_end(run: RunCommand, command: Command) -> tuple[int, bytes]:
    """Run a short command and return its exit code and output."""
    execution = await run(command)
    output = bytearray()
    try:
        async with asyncio.timeout(_COMPLETE_S):
            while (piece := await execution.read()) is not None:
                output += piece[1]
                if len(output) > _SHORT_BYTES:
                    raise ExecFailed(
                        f"a command in the session printed more than {_SHORT_BYTES} bytes",
                        next_step="look for a kernel.json of this size in it",
                    )

            return await execution.wait(), bytes(output)
    except TimeoutError:
        raise ExecFailed(
            f"{command.argv[0]!r} in the session did not end within {_COMPLETE_S:g} s"
        ) from None
    finally:
        execution.disconnect()
