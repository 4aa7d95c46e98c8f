"""Commands in containers, by the engine's own exec: a connection that stops being HTTP carries the bytes."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import Any

import structlog

from moorage.agent.runtimes.base import RuntimeFailed
from moorage.agent.runtimes.descriptors import readable
from moorage.agent.runtimes.docker.container_config import Frames
from moorage.agent.runtimes.docker.engine import Engine
from moorage.agent.runtimes.docker.errors import EngineUnavailable, NoSuchObject, RequestRefused
from moorage.agent.runtimes.execution import DISCONNECT_GRACE_S, STDERR, STDOUT, Command, ExecFailed
from moorage.common.aio.tasks import spawn

log = structlog.get_logger("moorage.agent.docker")
_CHUNK = 32 * 1024
_BEGIN_S, _END_S, _AGAIN_S = 10.0, 5.0, 0.02
# So long after a container's end what commands in it said may still be read.
_LAST_WORDS_S = 1.0
_END_KEY = b"\x04"
_SWITCHED = b"101"


class DockerExecution:
    def __init__(
        self,
        engine: Engine,
        container: str,
        command: Command,
        exec_id: str,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._engine, self._container, self._command, self._id = engine, container, command, exec_id
        self._reader, self._writer = streams
        self._frames, self._waiting = Frames(), list[tuple[int, bytes]]()
        self._code: int | None = None
        self._left = False
        self._watching: asyncio.Task[None] | None = None

    def watch(self, container_pid: int) -> None:
        """The engine calls a container running for as long as output of a command in it is not taken, also
        after its end: a user who does not read must not keep it. ``container_pid``: of its main process."""
        pin = _pin(container_pid, self._container)
        if pin >= 0:
            self._watching = spawn(f"docker.exec.{self._id[:12]}", self._leave_with(pin))

    async def _leave_with(self, pin: int) -> None:
        try:
            await readable([pin])
        finally:
            os.close(pin)
        await asyncio.sleep(_LAST_WORDS_S)
        self._writer.transport.abort()

    async def read(self) -> tuple[int, bytes] | None:
        while not self._waiting:
            try:
                data = await self._reader.read(_CHUNK)
            except OSError:
                data = b""  # the engine went away; what became of the command is asked in ``wait``
            if not data:
                return None
            if self._command.tty:
                return STDOUT, data
            self._waiting += [
                (STDERR if channel == STDERR else STDOUT, said) for channel, said in self._frames.take(data)
            ]
        return self._waiting.pop(0)

    async def write(self, data: bytes) -> None:
        if self._writer.is_closing():
            return
        with suppress(OSError):
            self._writer.write(data)
            await self._writer.drain()

    async def end_input(self) -> None:
        if self._command.tty:
            await self.write(_END_KEY)
            return
        with suppress(OSError):
            self._writer.write_eof()

    async def resize(self, rows: int, cols: int) -> None:
        if not (self._command.tty and rows and cols):
            return
        with suppress(RuntimeFailed):  # it has ended
            await self._engine.call(lambda api: api.exec_resize(self._id, height=rows, width=cols))

    async def wait(self) -> int:
        try:
            async with asyncio.timeout(_END_S):
                facts = await self._ended(_AGAIN_S)
        except TimeoutError:
            raise ExecFailed("the connection to the command broke off, and it runs on") from None
        except NoSuchObject:
            raise ExecFailed("the session has ended, and the command with it") from None
        except RuntimeFailed as error:
            raise ExecFailed(f"what became of the command is not known: {error}") from None
        self._code = int(facts["ExitCode"])
        return self._code

    def disconnect(self) -> None:
        if self._left:
            return
        self._left = True
        # Not a close: that would wait until the engine has taken what it does not take.
        self._writer.transport.abort()
        if self._watching is not None:
            self._watching.cancel()
        if self._code is None:
            spawn(f"docker.hang-up.{self._id[:12]}", self._end())

    async def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = await self._engine.call(lambda api: api.exec_inspect(self._id))
        return facts

    async def _ended(self, rest_s: float) -> dict[str, Any]:
        while True:
            facts = await self._facts()
            if not facts["Running"] and facts["ExitCode"] is not None:
                return facts
            await asyncio.sleep(rest_s)

    async def _end(self) -> None:
        """The engine has no word for it: the process is signalled, by its number on this node."""
        try:
            for number, rest_s in ((signal.SIGHUP, DISCONNECT_GRACE_S), (signal.SIGKILL, 0.0)):
                facts = await self._facts()
                if not facts["Running"]:
                    return
                if not _signal(facts.get("Pid", 0), number, self._container):
                    log.warning(
                        "a command whose user has left runs on until its container ends",
                        container=self._container[:12], why="this agent may not signal it",
                    )  # fmt: skip
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(rest_s):
                        await self._ended(10 * _AGAIN_S)
        except RuntimeFailed as error:
            log.info("a command whose user has left cannot be looked for", why=str(error))


async def execute(engine: Engine, container: str, command: Command) -> DockerExecution:
    """Raises ``ExecFailed``, and ``RuntimeFailed`` when there was no answer."""
    # A task of its own: who leaves meanwhile leaves a command that may have begun, and must be hung up.
    beginning = spawn("docker.exec.begin", _tried(engine, container, command))
    try:
        execution = await asyncio.shield(beginning)
    except asyncio.CancelledError:
        beginning.add_done_callback(_hang_up)
        raise
    if not isinstance(execution, DockerExecution):
        raise execution
    return execution


def _hang_up(beginning: asyncio.Task[DockerExecution | RuntimeFailed | ExecFailed]) -> None:
    if not beginning.cancelled() and isinstance(begun := beginning.result(), DockerExecution):
        begun.disconnect()


async def _tried(
    engine: Engine, container: str, command: Command
) -> DockerExecution | RuntimeFailed | ExecFailed:
    """A failure that is expected is an answer: it is not logged as that of a task."""
    try:
        return await _execute(engine, container, command)
    except NoSuchObject:
        return ExecFailed("no command can be run in it: its container is gone")
    except RequestRefused as error:
        return ExecFailed(f"no command can be run in it: {error}")
    except RuntimeFailed as error:
        return error


async def _execute(engine: Engine, container: str, command: Command) -> DockerExecution:
    def make(api: Any) -> tuple[str, int]:
        made = api.exec_create(
            container,
            list(command.argv),
            stdin=command.stdin,
            tty=command.tty,
            environment=command.env or None,
        )
        return str(made["Id"]), int(api.inspect_container(container)["State"]["Pid"])

    exec_id, pid = await engine.call(make)
    streams = await _begin(engine, exec_id, command.tty)
    execution = DockerExecution(engine, container, command, exec_id, streams)
    execution.watch(pid)
    await execution.resize(command.rows, command.cols)
    if not command.stdin and not command.tty:
        await execution.end_input()
    return execution


async def _begin(
    engine: Engine, exec_id: str, tty: bool
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    body = b'{"Detach": false, "Tty": %s}' % (b"true" if tty else b"false")
    head = (
        f"POST /exec/{exec_id}/start HTTP/1.1\r\nHost: docker\r\nContent-Type: application/json\r\n"
        f"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer = None
    try:
        async with asyncio.timeout(_BEGIN_S):
            reader, writer = await asyncio.open_unix_connection(str(engine.socket), limit=2 * _CHUNK)
            writer.write(head.encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            status = answer.split(b" ", 2)[1]
            if status != _SWITCHED:
                words = (await reader.read(500)).decode(errors="replace").strip()
                raise RequestRefused(words, int(status))
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        if writer is not None:
            writer.close()
        raise EngineUnavailable(str(error) or f"no answer within {_BEGIN_S:g} s") from None
    except RequestRefused:
        if writer is not None:
            writer.close()
        raise
    return reader, writer


def _pin(pid: int, container: str) -> int:
    """A descriptor of a process of the container; -1: it is not to be seen from here."""
    try:
        pin = os.pidfd_open(pid)
    except (OSError, ValueError):
        return -1
    try:
        # After it was pinned: the number may have become somebody else's.
        with open(f"/proc/{pid}/cgroup") as file:
            if container in file.read():
                return pin
    except OSError:
        pass
    os.close(pin)
    return -1


def _signal(pid: int, number: signal.Signals, container: str) -> bool:
    """False: it is not to be seen or not to be signalled from here."""
    pin = _pin(pid, container)
    if pin < 0:
        return False
    try:
        signal.pidfd_send_signal(pin, number)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    finally:
        os.close(pin)
    return True
