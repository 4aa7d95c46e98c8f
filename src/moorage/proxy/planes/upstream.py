"""Upstream client: sends a request to replicas until one begins to respond."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, field

import aiohttp
import structlog
from multidict import CIMultiDict
from yarl import URL

from moorage.common.aio.clock import Clock
from moorage.common.config.settings import ProxySettings
from moorage.common.http.exclusive import ExclusiveConnector
from moorage.common.link.messages import Target
from moorage.common.model.ids import KernelId
from moorage.proxy.core import error_response, headers
from moorage.proxy.core.admission import Forward
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.request_router import Assignment, RequestRouter
from moorage.proxy.core.retry import BUSY, Failure, should_retry

log = structlog.get_logger("moorage.proxy")

# Engines close idle connections after 5 s (uvicorn, cpp-httplib). Close ours before they do.
_KEEPALIVE_S = 4.0
# Larger bodies are sent in pieces, so that a slow replica delays the sender and not the event loop.
_STREAMED_ABOVE_BYTES = 256 * 1024
_AUTO_HEADERS = frozenset({"User-Agent", "Accept", "Accept-Encoding", "Content-Type"})


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """One admitted request. ``query``: the raw query string, "" if none."""

    forward: Forward
    query: str
    headers: Iterable[tuple[str, str]]
    body: bytes
    request_id: str
    assignment: Assignment


@dataclass(slots=True)
class UpstreamResponse:
    """The response of a replica that has begun to send its body, or has sent an empty one (b"").

    Times are monotonic seconds. The caller closes ``response``.
    """

    target: Target
    response: aiohttp.ClientResponse
    first_chunk: bytes
    sent_at: float
    first_byte_at: float


@dataclass(slots=True)
class _FailedAttempt:
    """``response``: the replica's own error response, if there is one to pass on."""

    failure: Failure
    target: Target
    detail: str
    response: UpstreamResponse | None = None


@dataclass(slots=True)
class _Attempts:
    """The attempts of one request so far."""

    started_at: float
    failures: tuple[Failure, ...] = ()
    tried: set[KernelId] = field(default_factory=set)


class UpstreamClient:
    """Connections to replicas. An async context manager."""

    def __init__(self, router: RequestRouter, settings: ProxySettings, clock: Clock) -> None:
        self._router, self._settings, self._clock = router, settings, clock
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> UpstreamClient:
        self._session = aiohttp.ClientSession(
            # aiohttp's default limit of 100 connections would stall every stream beyond the hundredth.
            connector=ExclusiveConnector(limit=0, keepalive_timeout=_KEEPALIVE_S),
            timeout=aiohttp.ClientTimeout(
                total=None,
                sock_connect=self._settings.connect_timeout_s,
                sock_read=self._settings.read_idle_timeout_s,
            ),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_AUTO_HEADERS,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(self, request: UpstreamRequest) -> UpstreamResponse | ErrorResponse:
        """The first response worth passing on, or an error response after the last attempt.

        ``request.assignment`` stays with the replica that responded. Release it at the end of the response.
        """
        model = request.forward.model
        attempts = _Attempts(self._clock.monotonic())
        target = self._router.pick_target(model, attempts.tried, attempts.started_at)
        if target is None:
            return error_response.model_loading(model)
        while True:
            request.assignment.assign(target)
            outcome = await self._attempt(target, request)
            if isinstance(outcome, UpstreamResponse):
                return outcome
            now = self._clock.monotonic()
            self._router.record_failure(model, target, outcome.failure, now)
            # An overloaded engine rejects every request. The metric counts that; the log need not.
            write_log = log.debug if outcome.failure is Failure.BUSY else log.warning
            write_log(
                "replica failed",
                model=model,
                kernel=target.kernel_id,
                kind=outcome.failure.value,
                detail=outcome.detail,
                request_id=request.request_id,
            )
            next_target = self._next_target(model, outcome, attempts, now)
            if next_target is None:
                return outcome.response or self._error(outcome, len(attempts.tried))
            if outcome.response is not None:
                outcome.response.response.close()
            target = next_target

    def _next_target(
        self, model: str, last: _FailedAttempt, attempts: _Attempts, now: float
    ) -> Target | None:
        attempts.tried.add(last.target.kernel_id)
        retry = should_retry(last.failure, attempts.failures, now - attempts.started_at)
        attempts.failures += (last.failure,)
        if not retry:
            return None
        target = self._router.pick_target(model, attempts.tried, now)
        if target is None and last.failure is Failure.DISCONNECT:
            # The only replica. Most often it had just closed an idle connection, so try it once more.
            return last.target
        return target

    async def _attempt(self, target: Target, request: UpstreamRequest) -> UpstreamResponse | _FailedAttempt:
        assert self._session is not None
        sent_at = self._clock.monotonic()
        body, response = request.body, None
        try:
            response = await self._session.post(
                _url(target, request),
                data=io.BytesIO(body) if len(body) > _STREAMED_ABOVE_BYTES else body,
                headers=CIMultiDict(headers.to_replica(request.headers, target.key, request.request_id)),
                allow_redirects=False,
            )
            first_chunk = await response.content.readany()
        except aiohttp.ClientError as error:
            if response is not None:
                response.close()
            return _FailedAttempt(_failure_of(error), target, str(error) or type(error).__name__)
        except BaseException:
            if response is not None:
                response.close()
            raise
        self._router.record_response(target)
        upstream = UpstreamResponse(target, response, first_chunk, sent_at, self._clock.monotonic())
        if response.status == 401:
            response.close()
            return _FailedAttempt(Failure.KEY_REJECTED, target, "it rejected the proxy's own key with 401")
        if response.status in BUSY:
            return _FailedAttempt(Failure.BUSY, target, f"it responded with {response.status}", upstream)
        return upstream

    def _error(self, last: _FailedAttempt, tried: int) -> ErrorResponse:
        if last.failure is Failure.IDLE_TIMEOUT:
            return error_response.upstream_timeout(self._settings.read_idle_timeout_s)
        if last.failure is Failure.KEY_REJECTED:
            return error_response.upstream_error(
                "The replica rejected the proxy's own key. Your key is not the cause. "
                "Retry, or contact the administrator."
            )
        is_unreachable = last.failure is Failure.CONNECT
        problem = "could not be reached" if is_unreachable else "closed the connection before it responded"
        return error_response.upstream_error(
            f"The replica {problem} ({tried} tried). Retry; a lost replica is replaced."
        )


def _url(target: Target, request: UpstreamRequest) -> URL:
    host = f"[{target.host}]" if ":" in target.host else target.host
    query = headers.query_to_replica(request.query)
    query = f"?{query}" if query else ""
    return URL(f"http://{host}:{target.port}{request.forward.path}{query}", encoded=True)


def _failure_of(error: aiohttp.ClientError) -> Failure:
    # ConnectionTimeoutError is a ServerTimeoutError, too: test for it first.
    if isinstance(error, aiohttp.ConnectionTimeoutError | aiohttp.ClientConnectorError | aiohttp.InvalidURL):
        return Failure.CONNECT
    if isinstance(error, aiohttp.ServerTimeoutError):
        return Failure.IDLE_TIMEOUT
    return Failure.DISCONNECT
