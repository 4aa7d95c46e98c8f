"""HTTP transport of the client: addresses, authentication, timeouts, errors."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import closing
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ValidationError

import moorage
from moorage.common.aio.clock import SystemClock
from moorage.common.local.paths import path_of_unix_url
from moorage.common.model.errors import InvalidInput
from moorage.common.views.resources import Health
from moorage.sdk.base_url import BaseUrl
from moorage.sdk.connections import Closed, Connections, Streamed
from moorage.sdk.errors import ApiError, Unreachable, connection_error
from moorage.sdk.problems import not_moorage, problem_of
from moorage.sdk.verification import untrusted, verification

if TYPE_CHECKING:
    import aiohttp

M = TypeVar("M", bound=BaseModel)
B = TypeVar("B")


# The manager's name in requests over its Unix socket.
_OVER_SOCKET = "http://localhost"
# Transient statuses: a later call may succeed.
_TRANSIENT = frozenset({429, 502, 503, 504})
FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0


def pauses_s(retries: int) -> Iterator[float | None]:
    """How long to wait after each failed attempt; None after the last one."""
    for number in range(retries):
        yield min(FIRST_PAUSE_S * 2.0**number, _LONGEST_PAUSE_S) * SystemClock().jitter(0.2)
    yield None


def read_answer(answer_type: type[M], raw: bytes) -> M:
    """Read a response without the fields that only a newer manager knows. Raises
    ``ValidationError``."""
    # Overrides the models of requests, which refuse unknown fields and are parts of responses.
    return answer_type.model_validate_json(raw, extra="ignore")


class Transport:
    """Connection to one manager, and ``call``, through which all typed calls go.

    ``url``: ``https://…``, ``http://…`` or ``unix:///path/to.sock``. Like a manager with TLS, a
    manager behind a Unix socket proves its identity before anything is sent to it. With a plain
    ``http://`` address, the caller trusts whatever listens there.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        timeout: float = 30.0,
        ca_file: str | None = None,
        verify: bool = True,
        retries: int = 0,
    ) -> None:
        self._ca_file = ca_file
        self._verify = verify
        self.retries = retries
        self._socket = path_of_unix_url(url)
        try:
            self._base = BaseUrl.parse(url if self._socket is None else _OVER_SOCKET)
        except ValueError:
            raise InvalidInput(
                f"{url!r} is not the address of a manager",
                next_step="write it like https://moorage.example.org or unix:///path/to.sock",
            ) from None

        if not all("!" <= letter <= "~" for letter in key):
            raise InvalidInput(
                "the API key contains characters that keys cannot have",
                next_step="copy the complete key again",
            )

        self.url = str(self._base) if self._socket is None else url
        self.timeout = timeout
        self._headers = {"User-Agent": f"moorage/{moorage.__version__}"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

        self._connections: Connections | None = None
        self._http: aiohttp.ClientSession | None = None

        # Items missing from lists because the manager that answered cannot read them: the reason,
        # by kind and name.
        self.unreadable: dict[tuple[str, str], str] = {}
        # Called with each warning in an answer.
        self.on_warning: Callable[[str], None] = lambda warning: None

    async def __aenter__(self) -> Self:
        self._tls = verification(self.url, self._ca_file, verify=self._verify)
        self._connections = Connections(self._base, self._tls, self._socket)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._connections is not None:
            self._connections.close()
            self._connections = None
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def health(self) -> Health:
        """Return the state of the manager and its parts; needs no key. Does not raise while the
        manager is starting."""
        return await self.call(Health, "GET", "/readyz", also_accept=503)

    async def call(
        self,
        answer_type: type[M],
        method: str,
        path: str,
        *,
        query: Mapping[str, str | None] | None = None,
        body: BaseModel | None = None,
        idempotency_key: str | None = None,
        if_match: str | None = None,
        also_accept: int = 200,
    ) -> M:
        """Send a request and return its answer as ``answer_type``. ``also_accept``: another status
        with such an answer. Requests that are safe to repeat are retried at most ``retries`` times.

        Raises ``ApiError`` and ``Unreachable``.
        """
        headers = dict(self._headers)
        data = None
        if body is not None:
            data = body.model_dump_json(exclude_unset=True).encode()
            headers["Content-Type"] = "application/json"
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        if if_match is not None:
            headers["If-Match"] = if_match

        target = self._target(path, query or {})
        repeats = self.retries if method == "GET" or idempotency_key is not None else 0
        for pause_s in pauses_s(repeats):
            try:
                status, raw = await self._exchange(
                    method, target, headers=headers, data=data, also_accept=also_accept
                )
                break
            except (Unreachable, ApiError) as error:
                if pause_s is None or (
                    isinstance(error, ApiError) and error.status not in _TRANSIENT
                ):
                    raise

                await asyncio.sleep(pause_s)

        try:
            answer = read_answer(answer_type, raw)
        except ValidationError as error:
            raise ApiError(status, not_moorage(self.url, status, raw)) from error

        self.unreadable |= {
            (row.kind, row.name): row.detail for row in getattr(answer, "unreadable", ())
        }
        for warning in getattr(answer, "warnings", ()):
            self.on_warning(warning)

        return answer

    async def _exchange(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        data: bytes | None,
        *,
        also_accept: int,
    ) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(self.timeout):
                status, raw = await self._open().exchange(method, target, headers, data)
        except OSError as error:  # TimeoutError, too
            raise self.unreachable(error) from error

        if not 200 <= status < 300 and status != also_accept:
            raise ApiError(status, problem_of(self.url, status, raw))

        return status, raw

    def repeatable(self, idempotency_key: str | None) -> str | None:
        """The idempotency key of a creation: the given one, or a new one if the client retries
        calls."""
        return idempotency_key or (SystemClock().new_id() if self.retries else None)

    async def stream(
        self,
        path: str,
        query: Mapping[str, str | None],
        headers: Mapping[str, str],
        *,
        begin_s: float | None,
    ) -> Streamed:
        """Return the answer to a GET, whose body arrives in pieces. ``begin_s``: limit until the
        answer starts; None means no limit beyond that for connecting.

        Raises ``ApiError`` and ``Unreachable``; reading the answer raises ``OSError``.
        """
        target = self._target(path, query)
        try:
            async with asyncio.timeout(begin_s):
                answer = await self._open().stream(
                    target, self._headers | dict(headers), connect_s=self.timeout
                )
                if answer.status < 300:
                    return answer

                refusal = b""
                with closing(answer):
                    while piece := await answer.next_piece():
                        refusal += piece
        except OSError as error:  # TimeoutError, too
            raise self.unreachable(error) from error

        raise ApiError(answer.status, problem_of(self.url, answer.status, refusal))

    async def read_stream(
        self,
        path: str,
        query: Mapping[str, str | None],
        headers: Mapping[str, str],
        *,
        idle_s: float | None,
        begin: Callable[[Mapping[str, str]], B],
    ) -> AsyncIterator[B | bytes]:
        """Yield the result of ``begin`` for the headers of the answer to a GET, by name in lower
        case, then its body in pieces. ``idle_s``: the longest silence; None means no limit.

        Raises ``ApiError`` and ``Unreachable``.
        """
        answer = await self.stream(path, query, headers, begin_s=idle_s)
        with closing(answer):
            yield begin(answer.headers)
            while True:
                try:
                    async with asyncio.timeout(idle_s):
                        piece = await answer.next_piece()
                except OSError as error:  # TimeoutError, too
                    raise self.unreachable(error) from error

                if piece is None:
                    return

                yield piece

    def _open(self) -> Connections:
        if self._connections is None:
            raise RuntimeError("use the client within `async with Client(...) as client`")
        return self._connections

    @property
    def http(self) -> aiohttp.ClientSession:
        """The session for WebSockets."""
        self._open()
        if self._http is None:
            from moorage.sdk.streams import new_session

            self._http = new_session(self._headers, self._tls, self._socket)
        return self._http

    def address(self, path: str, query: Mapping[str, str | None]) -> str:
        """The URL of ``path``, whose parts must be encoded with ``segment``.

        Pass it to aiohttp as ``URL(…, encoded=True)``, because a name can contain slashes, which
        must not become path separators.
        """
        return f"{self._base.origin}{self._target(path, query)}"

    def _target(self, path: str, query: Mapping[str, str | None]) -> str:
        """The address without its origin, as in the first line of a request."""
        given = {name: value for name, value in query.items() if value is not None}
        target = f"{self._base.path}{path}"
        return f"{target}?{urlencode(given, safe='/:,')}" if given else target

    def unreachable(self, error: Exception) -> Unreachable:
        """The error to raise for a failed connection, with the next step."""
        if isinstance(error, TimeoutError):
            return Unreachable(
                f"the manager at {self.url} did not answer within {self.timeout:g} s",
                next_step="read its log; `moorage doctor` looks for the cause",
            )

        if isinstance(error, ssl.SSLCertVerificationError):
            return untrusted(self.url, error)

        if isinstance(error, Closed):
            return Unreachable(
                f"the manager at {self.url} closed the connection in mid-answer",
                next_step="try again, and read its log",
            )

        next_step = "start one with `moorage up`, or give its address with --url or MOORAGE_URL"
        if self._socket is not None:
            next_step += "; a manager of an older release has no socket: upgrade it"

        return Unreachable(
            f"no manager answers at {self.url} ({connection_error(error)})", next_step=next_step
        )


def etag(version: int | None) -> str | None:
    """The value of If-Match; None means any version."""
    return None if version is None else f'"{version}"'


def segment(name: str) -> str:
    """``name`` encoded as one path segment. Raises ``InvalidInput`` if it is empty."""
    if not name:
        raise InvalidInput("the name is empty", next_step="`moorage ps` lists names")
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")
