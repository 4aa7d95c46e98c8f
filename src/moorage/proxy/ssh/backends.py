"""File servers of sessions, which the proxy reaches through the link and a manager."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from moorage.common.model.commands import Channel
from moorage.common.model.errors import Conflict
from moorage.common.model.printable import printable
from moorage.common.sftp.framing import Packets, Piece, whole
from moorage.common.ssh.channels import ChannelCommand

_STARTS_S = 15.0
_MAX_ERROR = 2000


class GreetedFileServer(Protocol):
    """A file server after the greeting."""

    async def send(self, pieces: Sequence[Piece]) -> None: ...
    async def read(self) -> bytes | None:
        """Read an answer, or return None at the end. Raises ``MoorageError``."""
        ...


Greeted = AbstractAsyncContextManager[GreetedFileServer]


async def greeted(link: ChannelCommand, hello: bytes) -> GreetedFileServer:
    """Greet the server at the other end of a link. Raises ``MoorageError``."""
    try:
        async with asyncio.timeout(_STARTS_S):
            await link.send(hello)
            await _first_answer(link)
    except TimeoutError:
        raise Conflict("the server of the session's files did not start in time") from None
    return _Linked(link)


async def _first_answer(link: ChannelCommand) -> None:
    """Wait for the first answer. Raises ``Conflict`` with the node's message instead."""
    packets = Packets()
    errors = b""
    while (output := await link.read()) is not None:
        channel, data = output
        if channel is Channel.STDERR:
            errors = (errors + data)[:_MAX_ERROR]
        elif packets.feed(data):
            return

    said = printable(errors.decode(errors="replace").strip(), one_line=True)
    end = link.end.detail if link.end is not None else ""
    raise Conflict(said or end or "the session's files cannot be opened")


class _Linked:
    """A file server reached through the link."""

    def __init__(self, link: ChannelCommand) -> None:
        self._link = link

    async def send(self, pieces: Sequence[Piece]) -> None:
        await self._link.send(whole(pieces))

    async def read(self) -> bytes | None:
        while (output := await self._link.read()) is not None:
            channel, data = output
            if channel is Channel.STDOUT:
                return data
        return None
