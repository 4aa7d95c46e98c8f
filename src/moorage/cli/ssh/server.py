"""SSH server for one client on standard input and output. Each channel is a command in the session.

No port is open, and no key of a user is needed: the streams belong to the program that started this process,
and the manager authenticates the API key and authorises every channel, as for ``moorage exec`` (decision 36).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Any

import asyncssh

from moorage.cli import terminal
from moorage.cli.commands.exec import exit_code
from moorage.cli.output import printable
from moorage.cli.ssh.requests import SFTP, Terminal, command_of, connection_to, size_of
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.commands import CHUNK_BYTES, Channel, ExecSpec
from moorage.common.model.errors import MoorageError

if TYPE_CHECKING:
    from moorage.sdk import RunningCommand

# `MaxSessions` of sshd has the same default. Each channel is a connection to the manager.
MAX_CHANNELS = 10
# Channels at which no further connection is forwarded: a browser opens several at once.
MAX_FORWARDS = 40
_FAILED = 255  # as ssh itself
Run = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
Start = Callable[[ExecSpec], AbstractAsyncContextManager["RunningCommand"]]


async def serve_stdio(start: Start, kernel: str) -> None:
    """Serve the client until it leaves. ``start`` starts a command in the session."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    copies = [spawn("ssh.input", _copy_input(writer)), spawn("ssh.output", _copy_output(reader))]
    tasks: set[asyncio.Task[Any]] = set()
    try:
        connection = await asyncssh.run_server(
            theirs,
            server_factory=lambda: _Server(start, kernel, tasks),
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            encoding=None,
            # The stream is a pipe on this machine: the cheapest ciphers, and no compression.
            encryption_algs=["aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes256-ctr"],
            compression_algs=["none"],
            keepalive_interval=0,
        )
        await connection.wait_closed()
        writer.close()
        await copies[1]
    except (asyncssh.Error, OSError):
        pass  # the client left, or speaks something else; ssh reports it
    finally:
        await cancel_and_wait(*tasks, *copies)
        writer.close()


async def _copy_input(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        async for data in terminal.input_pieces():
            writer.write(data)
            await writer.drain()
        writer.close()  # the client is gone


async def _copy_output(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            await asyncio.to_thread(terminal.write, Channel.STDOUT, data)


class _Server(asyncssh.SSHServer):
    def __init__(self, start: Start, kernel: str, tasks: set[asyncio.Task[Any]]) -> None:
        self._start, self._kernel, self._tasks = start, kernel, tasks

    def begin_auth(self, username: str) -> bool:
        return False

    def session_requested(self) -> asyncssh.SSHServerSession[bytes]:
        self._check_channels(MAX_CHANNELS)
        return _Channel(self._start, self._kernel, self._run)

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> asyncssh.SSHTCPSession[bytes]:
        self._check_channels(MAX_FORWARDS)
        try:
            spec = connection_to(dest_host, dest_port, self._kernel)
        except ValueError as error:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, str(error)) from None
        return _Forward(self._start, spec, self._run)

    def _check_channels(self, most: int) -> None:
        if len(self._tasks) >= most:
            raise asyncssh.ChannelOpenError(
                asyncssh.OPEN_RESOURCE_SHORTAGE, f"one connection has at most {most} channels"
            )

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = spawn("ssh.channel", work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _Command:
    """A channel whose other end is a command in the session. Input waits for the session, and output for the
    client."""

    _chan: Any

    def __init__(self, start: Start, run: Run) -> None:
        self._start, self._run = start, run
        self._input: asyncio.Queue[bytes | tuple[int, int]] = asyncio.Queue()  # b"": the end
        self._writable = asyncio.Event()
        self._writable.set()
        self._task: asyncio.Task[None] | None = None

    def session_started(self) -> None:
        self._task = self._run(self._serve())

    async def _serve(self) -> None:
        raise NotImplementedError

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self._chan.pause_reading()  # until the session has taken it
        self._input.put_nowait(data)

    def eof_received(self) -> bool:
        self._input.put_nowait(b"")
        return True  # the output goes on

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _copy(self, command: RunningCommand) -> None:
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

    async def _send_input(self, command: RunningCommand) -> None:
        with suppress(OSError):
            while (piece := await self._input.get()) != b"":
                if isinstance(piece, tuple):
                    size = size_of(*piece)
                    await command.resize(size.rows, size.cols)
                else:
                    await command.send(piece)
                    if self._input.empty():
                        self._chan.resume_reading()
            await command.end_input()


class _Forward(_Command, asyncssh.SSHTCPSession[bytes]):
    """A connection that a program of the session makes: of `ssh -L`, `-D` and `-W`."""

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
            self._chan.abort()  # a channel that is no session has no other way to tell of an error
        else:
            self._chan.close()

    def _write(self, channel: Channel, data: bytes) -> None:
        if channel is Channel.STDOUT:
            self._chan.write(data)


class _Channel(_Command, asyncssh.SSHServerSession[bytes]):
    """One shell, command or SFTP server."""

    def __init__(self, start: Start, kernel: str, run: Run) -> None:
        super().__init__(start, run)
        self._kernel = kernel
        self._terminal: Terminal | None = None

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._chan = chan

    def pty_requested(self, term_type: str, term_size: tuple[int, int, int, int], term_modes: object) -> bool:
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
                self._terminal,
                self._chan.get_environment(),
                self._kernel,
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
        self._chan.exit(exit_code(end))

    def _write(self, channel: Channel, data: bytes) -> None:
        self._chan.write(data, asyncssh.EXTENDED_DATA_STDERR if channel is Channel.STDERR else None)

    def _note(self, text: str) -> None:
        line = printable(f"moorage: {text}", one_line=True)
        self._chan.write(f"{line}\r\n".encode(), asyncssh.EXTENDED_DATA_STDERR)

    def _fail(self, text: str) -> None:
        self._note(text)
        self._chan.exit(_FAILED)
