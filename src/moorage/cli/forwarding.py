"""A port of this machine that leads to an app of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

import aiohttp

from moorage.cli.render import printable
from moorage.common.aio.sockets import reset
from moorage.common.aio.tasks import cancel_and_wait
from moorage.common.model.errors import InvalidInput, MoorageError
from moorage.common.views.access_tokens import AppView, NewAccessTokenView
from moorage.sdk import ApiError, Client, carry

_UNAUTHORIZED = 401


class Forwarding:
    """An async context manager: entered, it has an access token; left, the access token is revoked. ``say``
    gets what went
    wrong with one connection, which ends only that one."""

    def __init__(
        self, client: Client, session: str, view: AppView, proxy_url: str, say: Callable[[str], None]
    ) -> None:
        self._client, self._session, self._view, self._say = client, session, view, say
        self._url = f"{proxy_url}{view.path.replace('/apps/', '/tunnel/', 1)}"
        self._access_token: NewAccessTokenView | None = None
        self._server: asyncio.Server | None = None
        self._running: set[asyncio.Task[object]] = set()

    async def __aenter__(self) -> Self:
        self._access_token = await self._client.create_access_token(self._session, self._view.name)
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=10))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        await cancel_and_wait(*self._running)
        await self._http.close()
        if self._access_token is not None:
            try:
                await self._client.revoke_access_token(self._session, self._view.name, self._access_token.id)
            except MoorageError:
                pass  # it expires by itself

    async def listen(self, port: int) -> int:
        """The port that it is. Raises ``InvalidInput`` for one that is taken."""
        try:
            self._server = await asyncio.start_server(self._connected, "127.0.0.1", port)
        except OSError as error:
            raise InvalidInput(
                f"port {port} of this machine cannot be had: {error.strerror or error}",
                next_step="name another one, or none",
            ) from None
        return int(self._server.sockets[0].getsockname()[1])

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            await self._carry(reader, writer)
        except MoorageError as error:
            step = f"; {error.next_step}" if error.next_step else ""
            self._say(printable(f"moorage: {error.message}{step}", one_line=True))
            reset(writer.transport)
        finally:
            self._running.discard(task)
            writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._access_token is not None
        access_token = self._access_token
        try:
            await carry(self._http, self._url, access_token.access_token, reader, writer)
        except ApiError as error:
            if error.status != _UNAUTHORIZED:
                raise
            if self._access_token is access_token:  # it has expired, and nobody renewed it meanwhile
                self._access_token = await self._client.create_access_token(self._session, self._view.name)
            await carry(self._http, self._url, self._access_token.access_token, reader, writer)
