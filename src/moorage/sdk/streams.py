"""WebSockets: the aiohttp session that carries them, and its errors."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import aiohttp
from aiohttp.client_exceptions import UnixClientConnectorError

from moorage.common.aio.sockets import keep_alive_socket
from moorage.sdk.connections import Closed, connect_proven
from moorage.sdk.errors import Unreachable


def new_session(
    headers: Mapping[str, str], tls: ssl.SSLContext | None, path: str | None = None
) -> aiohttp.ClientSession:
    """``path``: the manager's Unix socket, if it has one."""
    if path is not None:
        return aiohttp.ClientSession(headers=headers, connector=_ProvenConnector(path))
    # A command may be silent for a long time, so keepalive detects that its manager has vanished.
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
