"""Commands in containers, through the engine's exec API.

The engine upgrades the HTTP connection to a raw byte stream. The SDK supports this only with a
blocking socket, so the request is written by hand. The engine has no call to stop a command, so the
command's process is signalled by pid.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import Any

import structlog

from moorage.agent.runtimes.base import RuntimeFailed
from moorage.agent.runtimes.descriptors import readable
from moorage.agent.runtimes.docker.engine import DockerEngine, StreamDemultiplexer
from moorage.agent.runtimes.docker.errors import EngineUnavailable, NoSuchObject, RequestRefused
from moorage.agent.runtimes.execution import DISCONNECT_GRACE_S, STDERR, STDOUT, Command, ExecFailed
from moorage.common.aio.supervisor import SupervisedTask
from moorage.common.aio.tasks import spawn

log = structlog.get_logger("moorage.agent.docker")
_CHUNK = 32 * 1024
_START_TIMEOUT_S = 10.0
_EXIT_TIMEOUT_S = 5.0
_POLL_S = 0.02
# Time to read a command's remaining output after its container has exited.
_DRAIN_S = 1.0
_EOF_KEY = b"\x04"  # ^D
_SWITCHING_PROTOCOLS = b"101"


class DockerExecution:
    def __init__(
        self,
        engine: DockerEngine,
        container: str,
        command: Command,
        exec_id: str,
        *,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._engine = engine
        self._container = container
        self._command = command
        self._id = exec_id
        self._reader, self._writer = streams
        self._demultiplexer = StreamDemultiplexer()
        self._output = list[tuple[int, bytes]]()
        self._code: int | None = None
        self._disconnected = False
        self._watching: asyncio.Task[None] | None = None

    def watch(self, container_pid: int) -> None:
        """Disconnect when the container exits. The engine reports a container as running as long as
        a command's output is unread, so a client that does not read would keep it running.
        ``container_pid``: its main process."""
        pidfd = _open_pidfd(container_pid, self._container)
        if pidfd >= 0:
            self._watching = spawn(f"docker.exec.{self._id[:12]}", self._disconnect_after(pidfd))

    async def _disconnect_after(self, pidfd: int) -> None:
        try:
            await readable([pidfd])
        finally:
            os.close(pidfd)
        await asyncio.sleep(_DRAIN_S)
        self._writer.transport.abort()

    async def read(self) -> tuple[int, bytes] | None:
        while not self._output:
            try:
                data = await self._reader.read(_CHUNK)
            except OSError:
                data = b""  # lost the connection; ``wait`` determines the exit code

            if not data:
                return None
            if self._command.tty:
                return STDOUT, data

            self._output += [
                (STDERR if channel == STDERR else STDOUT, piece)
                for channel, piece in self._demultiplexer.feed(data)
            ]

        return self._output.pop(0)

    async def write(self, data: bytes) -> None:
        if self._writer.is_closing():
            return
        with suppress(OSError):
            self._writer.write(data)
            await self._writer.drain()

    async def end_input(self) -> None:
        if self._command.tty:
            await self.write(_EOF_KEY)
            return
        with suppress(OSError):
            self._writer.write_eof()

    async def resize(self, rows: int, cols: int) -> None:
        if not (self._command.tty and rows and cols):
            return
        with suppress(RuntimeFailed):  # the command has exited
            await self._engine.call(lambda api: api.exec_resize(self._id, height=rows, width=cols))

    async def wait(self) -> int:
        try:
            async with asyncio.timeout(_EXIT_TIMEOUT_S):
                details = await self._inspect_exited(_POLL_S)
        except TimeoutError:
            raise ExecFailed("lost the connection to the command, which is still running") from None
        except NoSuchObject:
            raise ExecFailed("the session has ended, and the command with it") from None
        except RuntimeFailed as error:
            raise ExecFailed(f"the exit code of the command is unknown: {error}") from None

        self._code = int(details["ExitCode"])
        return self._code

    def disconnect(self) -> None:
        if self._disconnected:
            return
        self._disconnected = True
        # Abort instead of close, which would wait for the engine to read the remaining input.
        self._writer.transport.abort()
        if self._watching is not None:
            self._watching.cancel()
        if self._code is None:
            SupervisedTask("docker.exec.end", self._end, key=self._id[:12], finite=True)

    async def _inspect(self) -> dict[str, Any]:
        details: dict[str, Any] = await self._engine.call(lambda api: api.exec_inspect(self._id))
        return details

    async def _inspect_exited(self, poll_s: float) -> dict[str, Any]:
        while True:
            details = await self._inspect()
            if not details["Running"] and details["ExitCode"] is not None:
                return details
            await asyncio.sleep(poll_s)

    async def _end(self) -> None:
        """Send SIGHUP, and SIGKILL after the grace period."""
        try:
            for number, grace_s in ((signal.SIGHUP, DISCONNECT_GRACE_S), (signal.SIGKILL, 0.0)):
                details = await self._inspect()
                if not details["Running"]:
                    return

                if not _send_signal(details.get("Pid", 0), number, self._container):
                    log.warning(
                        "a disconnected command runs until its container exits",
                        container=self._container[:12],
                        reason="this agent may not signal it",
                    )
                    return

                with suppress(TimeoutError):
                    async with asyncio.timeout(grace_s):
                        await self._inspect_exited(10 * _POLL_S)
        except RuntimeFailed as error:
            log.info("cannot end a disconnected command", reason=str(error))


async def execute(engine: DockerEngine, container: str, command: Command) -> DockerExecution:
    """Execute a command. Raises ``ExecFailed``, and ``RuntimeFailed`` if the engine does not
    answer."""
    # This runs in a separate, shielded task, because a cancelled caller may leave behind a started
    # command, which must be disconnected.
    starting = spawn("docker.exec.start", _try_start(engine, container, command))
    try:
        execution = await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(_disconnect_started)
        raise

    if not isinstance(execution, DockerExecution):
        raise execution

    return execution


def _disconnect_started(
    starting: asyncio.Task[DockerExecution | RuntimeFailed | ExecFailed],
) -> None:
    if not starting.cancelled() and isinstance(execution := starting.result(), DockerExecution):
        execution.disconnect()


async def _try_start(
    engine: DockerEngine, container: str, command: Command
) -> DockerExecution | RuntimeFailed | ExecFailed:
    """Try to start the command. Expected errors are returned, because an exception would be logged
    as a failed task."""
    try:
        return await _start(engine, container, command)
    except NoSuchObject:
        return ExecFailed("no command can be run in it: its container is gone")
    except RequestRefused as error:
        return ExecFailed(f"no command can be run in it: {error}")
    except RuntimeFailed as error:
        return error


async def _start(engine: DockerEngine, container: str, command: Command) -> DockerExecution:
    def create(api: Any) -> tuple[str, int]:
        created = api.exec_create(
            container,
            list(command.argv),
            stdin=command.stdin,
            tty=command.tty,
            environment=command.env or None,
        )
        return str(created["Id"]), int(api.inspect_container(container)["State"]["Pid"])

    exec_id, pid = await engine.call(create)
    streams = await _open_stream(engine, exec_id, command.tty)
    execution = DockerExecution(
        engine, container, command=command, exec_id=exec_id, streams=streams
    )
    execution.watch(pid)
    await execution.resize(command.rows, command.cols)
    if not command.stdin and not command.tty:
        await execution.end_input()

    return execution


async def _open_stream(
    engine: DockerEngine, exec_id: str, tty: bool
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    body = b'{"Detach": false, "Tty": %s}' % (b"true" if tty else b"false")
    head = (
        f"POST /exec/{exec_id}/start HTTP/1.1\r\nHost: docker\r\nContent-Type: application/json\r\n"
        f"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer = None
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            reader, writer = await asyncio.open_unix_connection(
                str(engine.socket), limit=2 * _CHUNK
            )
            writer.write(head.encode() + body)
            response = await reader.readuntil(b"\r\n\r\n")
            status = response.split(b" ", 2)[1]
            if status != _SWITCHING_PROTOCOLS:
                message = (await reader.read(500)).decode(errors="replace").strip()
                raise RequestRefused(message, int(status))
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        if writer is not None:
            writer.close()
        raise EngineUnavailable(str(error) or f"no answer within {_START_TIMEOUT_S:g} s") from None
    except RequestRefused:
        if writer is not None:
            writer.close()
        raise

    return reader, writer


def _open_pidfd(pid: int, container: str) -> int:
    """A pidfd for one of the container's processes; -1 if the process is not visible to this
    agent."""
    try:
        pidfd = os.pidfd_open(pid)
    except (OSError, ValueError):
        return -1

    try:
        # This is checked after the pidfd was opened, because the pid may have been reused.
        with open(f"/proc/{pid}/cgroup") as file:
            if container in file.read():
                return pidfd
    except OSError:
        pass

    os.close(pidfd)
    return -1


def _send_signal(pid: int, number: signal.Signals, container: str) -> bool:
    """Send a signal. Returns False if this agent cannot see or signal the process."""
    pidfd = _open_pidfd(pid, container)
    if pidfd < 0:
        return False

    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    finally:
        os.close(pidfd)

    return True
