"""HTTP client for the programs of tenants: the only way in which the agent asks a kernel anything
over HTTP.

A program decides what it answers, and the agent may be root on a node with services of its own. So
no redirect is followed, an answer is read up to a bound and never decompressed, and each request
has a time limit. Requests go to the address that the runtime has named and to no other, without a
proxy from the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

CONNECT_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class ProgramAnswer:
    """``body``: its beginning, at most as long as was asked for."""

    status: int
    body: bytes


class NoAnswer(Exception):
    """There was no complete response. ``is_listening``: whether a connection was made."""

    def __init__(self, message: str, *, is_listening: bool) -> None:
        super().__init__(message)
        self.is_listening = is_listening


class ProgramClient:
    """Makes a new connection for each request: a program that is restarted is noticed."""

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
        """Return the response, also one with an error or a redirect. ``whole``: wait for the end of
        its body, or for ``most_bytes`` of it; otherwise for the first piece, as a program may never
        end it.

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
