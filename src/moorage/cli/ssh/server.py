"""SSH server for one client on standard input and output. Each channel is a command in the session.

No port is opened and no user key is needed: the streams belong to the program that started this
process, and the manager authenticates the API key and authorises every channel, as for ``moorage
exec`` (decision 36).
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import asyncssh

from moorage.cli import terminal
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.commands import CHUNK_BYTES, Channel
from moorage.common.ssh.channels import Channels, Start


async def serve_stdio(start: Start, kernel: str) -> None:
    """Serve the client until it disconnects. ``start`` starts a command in the session."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    copies = [spawn("ssh.input", _copy_input(writer)), spawn("ssh.output", _copy_output(reader))]
    channels = Channels()

    try:
        connection = await asyncssh.run_server(
            theirs,
            server_factory=lambda: _Server(start, kernel, channels),
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            encoding=None,
            # The stream is a pipe on this machine, so use the cheapest ciphers and no compression.
            encryption_algs=[
                "aes128-gcm@openssh.com",
                "aes256-gcm@openssh.com",
                "aes128-ctr",
                "aes256-ctr",
            ],
            compression_algs=["none"],
            keepalive_interval=0,
        )
        await connection.wait_closed()
        writer.close()
        await copies[1]
    except (asyncssh.Error, OSError):
        pass  # the client has disconnected or does not speak SSH; ssh reports it
    finally:
        await channels.close()
        await cancel_and_wait(*copies)
        writer.close()


async def _copy_input(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        async for data in terminal.input_pieces():
            writer.write(data)
            await writer.drain()
        writer.close()  # the client has disconnected


async def _copy_output(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            await asyncio.to_thread(terminal.write, Channel.STDOUT, data)


class _Server(asyncssh.SSHServer):
    def __init__(self, start: Start, kernel: str, channels: Channels) -> None:
        self._start = start
        self._kernel = kernel
        self._channels = channels

    def begin_auth(self, username: str) -> bool:
        return False

    def session_requested(self) -> asyncssh.SSHServerSession[bytes]:
        return self._channels.session(self._start, self._kernel)

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> asyncssh.SSHTCPSession[bytes]:
        return self._channels.connection(self._start, dest_host, dest_port, self._kernel)
