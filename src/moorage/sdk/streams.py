"""Streamed answers: the session of aiohttp that carries them, and followed logs."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import aiohttp
from yarl import URL

from moorage.common.aio.sockets import keep_alive_socket
from moorage.sdk.connections import Closed
from moorage.sdk.errors import ApiError, Unreachable
from moorage.sdk.transport import problem_of

B = TypeVar("B")


def new_session(headers: Mapping[str, str], tls: ssl.SSLContext | None) -> aiohttp.ClientSession:
    # A followed log may be silent for long: keepalive finds out when its manager has vanished.
    connector = aiohttp.TCPConnector(socket_factory=keep_alive_socket, ssl=tls or True)
    return aiohttp.ClientSession(headers=headers, connector=connector)


@contextmanager
def errors_of(unreachable: Callable[[Exception], Unreachable]) -> Iterator[None]:
    """Raise ``unreachable(error)`` for the errors of aiohttp and of the system."""
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
    """The body of the answer in pieces, after what ``begin`` makes of its headers. ``idle_s``: the
    longest silence; None: any.

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
