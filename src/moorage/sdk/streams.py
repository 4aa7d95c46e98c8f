"""Streamed answers: the aiohttp session that carries them, and followed logs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import aiohttp
from aiohttp.client_exceptions import UnixClientConnectorError
from yarl import URL

from moorage.common.aio.sockets import keep_alive_socket
from moorage.sdk.connections import Closed, connect_proven
from moorage.sdk.errors import ApiError, Unreachable
from moorage.sdk.problems import problem_of

B = TypeVar("B")


def new_session(
    headers: Mapping[str, str], tls: ssl.SSLContext | None, path: str | None = None
) -> aiohttp.ClientSession:
    """``path``: the manager's Unix socket, if it has one."""
    if path is not None:
        return aiohttp.ClientSession(headers=headers, connector=_ProvenConnector(path))
    # A followed log may be silent for a long time, so keepalive detects that its manager has
    # vanished.
    connector = aiohttp.TCPConnector(socket_factory=keep_alive_socket, ssl=tls or True)
    return aiohttp.ClientSession(headers=headers, connector=connector)


class _ProvenConnector(aiohttp.UnixConnector):
    """Connects to a server that has proved its identity."""

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: Any, timeout: aiohttp.ClientTimeout
    ) -> Any:
        try:
            async with asyncio.timeout(timeout.sock_connect):
                proven = await connect_proven(self.path)
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise UnixClientConnectorError(self.path, req.connection_key, error) from error

        _, protocol = await self._loop.create_unix_connection(self._factory, sock=proven)
        return protocol


@contextmanager
def errors_of(unreachable: Callable[[Exception], Unreachable]) -> Iterator[None]:
    """Raise ``unreachable(error)`` for errors from aiohttp and the operating system."""
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        raise unreachable(error.certificate_error) from error
    except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError) as error:
        raise unreachable(Closed()) from error
    except (aiohttp.ClientError, OSError) as error:  # TimeoutError, too
        raise unreachable(error) from error


async def read_stream(
    http: aiohttp.ClientSession,
    url: URL,
    *,
    timeout_s: float,
    idle_s: float | None,
    unreachable: Callable[[Exception], Unreachable],
    headers: Mapping[str, str],
    begin: Callable[[Mapping[str, str]], B],
) -> AsyncIterator[B | bytes]:
    """Yield the result of ``begin`` for the answer's headers, then the body in pieces. ``idle_s``:
    the longest silence; None means no limit.

    Raises ``ApiError`` and ``Unreachable``.
    """
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=timeout_s, sock_read=idle_s)
    with errors_of(unreachable):
        async with http.get(url, timeout=timeout, headers=headers) as answer:
            if answer.status >= 300:
                raise ApiError(
                    answer.status, problem_of(str(url.origin()), answer.status, await answer.read())
                )

            yield begin(answer.headers)
            async for piece in answer.content.iter_any():
                yield piece
