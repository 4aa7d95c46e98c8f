"""Channels of an SSH connection to one session: each shell, command, SFTP server and forwarded
connection is a command that runs there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol

import asyncssh

from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.commands import Channel, ExecEnd, ExecSpec
from moorage.common.model.errors import MoorageError
from moorage.common.model.exit_codes import shell_exit_code
from moorage.common.model.printable import printable
from moorage.common.ssh.requests import SFTP, Terminal, command_of, connection_to, size_of

# `MaxSessions` of sshd has the same default. Each channel is a command in the session.
MAX_CHANNELS = 10
# Maximum number of channels with forwarded connections. A browser opens several concurrently.
MAX_FORWARDS = 40
# Amount of buffered input, in bytes, at which a client has to wait.
MAX_UNREAD = 512 * 1024
FAILED = 255  # as for ssh itself


class ChannelCommand(Protocol):
    """A command in a session. ``end``: its outcome, set once ``read`` has returned None."""

    end: ExecEnd | None

    async def send(self, data: bytes) -> None: ...
    async def end_input(self) -> None: ...
    async def resize(self, rows: int, cols: int) -> None: ...
    async def read(self) -> tuple[Channel, bytes] | None: ...


Run = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
Start = Callable[[ExecSpec], AbstractAsyncContextManager[ChannelCommand]]


class Channels:
    """The channels of one connection. ``close`` ends their commands."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def session(self, start: Start, kernel: str) -> asyncssh.SSHServerSession[bytes]:
        """Open a session channel. Raises ``ChannelOpenError`` if there are too many."""
        self.check(MAX_CHANNELS)
        return SessionChannel(start, kernel, self.run)

    def connection(
        self, start: Start, host: str, port: int, kernel: str
    ) -> asyncssh.SSHTCPSession[bytes]:
        """Open a connection from the session. Raises ``ChannelOpenError`` if there are too many, or
        for an invalid address."""
        self.check(MAX_FORWARDS)
        try:
            spec = connection_to(host, port, kernel)
        except ValueError as error:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, str(error)) from None

        return _Forward(start, spec, self.run)

    def check(self, most: int) -> None:
        if len(self._tasks) >= most:
            raise asyncssh.ChannelOpenError(
                asyncssh.OPEN_RESOURCE_SHORTAGE, f"one connection has at most {most} channels"
            )

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = spawn("ssh.channel", work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def abort(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        await cancel_and_wait(*self._tasks)


class PipedChannel:
    """Channel whose other end reads and writes at its own pace. Input waits for it, and output for
    the client."""

    _chan: Any

    def __init__(self, run: Run) -> None:
        self._run = run
        self._input: asyncio.Queue[bytes | tuple[int, int]] = asyncio.Queue()  # b"" means the end
        self._unread = 0  # bytes of input that the other end has not taken
        self._writable = asyncio.Event()
        self._writable.set()
        self._task: asyncio.Task[None] | None = None

    def session_started(self) -> None:
        self._task = self._run(self._serve())

    async def _serve(self) -> None:
        raise NotImplementedError

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self._unread += len(data)
        if self._unread >= MAX_UNREAD:
            self._chan.pause_reading()  # until it has been taken
        self._input.put_nowait(data)

    def _taken(self, data: bytes) -> None:
        """Note that the other end has taken this input."""
        was_full = self._unread >= MAX_UNREAD
        self._unread -= len(data)
        if was_full and self._unread < MAX_UNREAD:
            self._chan.resume_reading()

    def eof_received(self) -> bool:
        self._input.put_nowait(b"")
        return True  # the output continues

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def _note(self, text: str) -> None:
        line = printable(f"moorage: {text}", one_line=True)
        self._chan.write(f"{line}\r\n".encode(), asyncssh.EXTENDED_DATA_STDERR)

    def _fail(self, text: str) -> None:
        self._note(text)
        self._chan.exit(FAILED)


class _CommandChannel(PipedChannel):
    """Channel whose other end is a command in the session."""

    def __init__(self, start: Start, run: Run) -> None:
        super().__init__(run)
        self._start = start

    async def _copy(self, command: ChannelCommand) -> None:
        sender = spawn("ssh.channel.input", self._send_input(command))
        try:
            while (output := await command.read()) is not None:
                channel, data = output
                await self._writable.wait()
                self._write(channel, data)
        finally:
            await cancel_and_wait(sender)

    def _write(self, channel: Channel, data: bytes) -> None:
        raise NotImplementedError

    async def _send_input(self, command: ChannelCommand) -> None:
        with suppress(OSError):
            while (piece := await self._input.get()) != b"":
                if isinstance(piece, tuple):
                    size = size_of(*piece)
                    await command.resize(size.rows, size.cols)
                else:
                    await command.send(piece)
                    self._taken(piece)
            await command.end_input()


class _Forward(_CommandChannel, asyncssh.SSHTCPSession[bytes]):
    """Connection that a program in the session opens, for `ssh -L`, `-D` and `-W`."""

    def __init__(self, start: Start, spec: ExecSpec, run: Run) -> None:
        super().__init__(start, run)
        self._spec = spec

    def connection_made(self, chan: asyncssh.SSHTCPChannel[bytes]) -> None:
        self._chan = chan

    async def _serve(self) -> None:
        try:
            async with self._start(self._spec) as command:
                await self._copy(command)
        except MoorageError:
            self._chan.abort()  # only sessions can report errors in another way
        else:
            self._chan.close()

    def _write(self, channel: Channel, data: bytes) -> None:
        if channel is Channel.STDOUT:
            self._chan.write(data)


class SessionChannel(_CommandChannel, asyncssh.SSHServerSession[bytes]):
    """A shell, command or SFTP server."""

    def __init__(self, start: Start, kernel: str, run: Run) -> None:
        super().__init__(start, run)
        self._kernel = kernel
        self._terminal: Terminal | None = None

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._chan = chan

    def pty_requested(
        self, term_type: str, term_size: tuple[int, int, int, int], term_modes: object
    ) -> bool:
        cols, rows = term_size[:2]
        self._terminal = Terminal(term_type, rows, cols)
        return True

    def shell_requested(self) -> bool:
        return True

    def exec_requested(self, command: str) -> bool:
        return True

    def subsystem_requested(self, subsystem: str) -> bool:
        return subsystem == SFTP

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        self._input.put_nowait((height, width))

    async def _serve(self) -> None:
        try:
            spec = command_of(
                self._chan.get_command(),
                self._chan.get_subsystem(),
                terminal=self._terminal,
                env=self._chan.get_environment(),
                kernel=self._kernel,
            )
        except ValueError as error:
            self._fail(f"the session cannot run this command: {error}")
            return

        try:
            async with self._start(spec) as command:
                await self._copy(command)
        except MoorageError as error:
            self._fail("; ".join(part for part in (error.message, error.next_step) if part))
            return

        end = command.end
        assert end is not None
        if end.detail:
            self._note("; ".join(part for part in (end.detail, end.next_step) if part))

        self._chan.exit(shell_exit_code(end.exit_code))

    def _write(self, channel: Channel, data: bytes) -> None:
        self._chan.write(data, asyncssh.EXTENDED_DATA_STDERR if channel is Channel.STDERR else None)
