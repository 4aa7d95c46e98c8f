"""HTTP client for tenants' programs: the agent sends all HTTP requests to kernels through it.

A program can answer anything, and the agent may be root on a node with other services. The client
therefore follows no redirects, reads an answer only up to a limit and without decompressing it, and
limits the time of each request. Requests go only to the address from the runtime, never through a
proxy from the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

CONNECT_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class ProgramAnswer:
    """An answer. ``body``: its first part, up to the requested length."""

    status: int
    body: bytes


class NoAnswer(Exception):
    """There was no complete response. ``is_listening``: whether a connection was established."""

    def __init__(self, message: str, *, is_listening: bool) -> None:
        super().__init__(message)
        self.is_listening = is_listening


class ProgramClient:
    """The client. It opens a new connection for each request, so that it notices when a program was
    restarted."""

    def __init__(self) -> None:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True, limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,
            trust_env=False,
        )

    async def __aenter__(self) -> ProgramClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._http.close()

    async def ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        most_bytes: int,
        timeout_s: float,
        data: bytes | None = None,
        whole: bool = True,
    ) -> ProgramAnswer:
        """Return the response, even if it is an error or a redirect. ``whole``: wait for the end of
        the body, or for ``most_bytes`` of it; otherwise wait only for the first piece, because a
        program may never end the body.

        Raises ``NoAnswer``.
        """
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        body = bytearray()
        try:
            async with self._http.request(
                method, url, data=data, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                async for piece in response.content.iter_any():
                    body += piece
                    if len(body) >= most_bytes or not whole:
                        break
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            is_listening = not isinstance(error, aiohttp.ClientConnectorError)
            raise NoAnswer(str(error) or type(error).__name__, is_listening=is_listening) from None

        return ProgramAnswer(response.status, bytes(body[:most_bytes]))
