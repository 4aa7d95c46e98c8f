"""Asking replicas over aiohttp until one begins to answer."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, field

import aiohttp
import structlog
from multidict import CIMultiDict
from yarl import URL

from moorage.common.config.settings import ProxySettings
from moorage.common.link.messages import Target
from moorage.common.model.ids import KernelId
from moorage.proxy.core import error_response, headers
from moorage.proxy.core.admission import Forward
from moorage.proxy.core.error_response import Refuse
from moorage.proxy.core.request_router import Decider, Lease
from moorage.proxy.core.retry import BUSY, Failure, another

log = structlog.get_logger("moorage.proxy")

# Engines close idle connections after 5 s (uvicorn, cpp-httplib): let go of them before they do.
_IDLE_S = 4.0
# Larger bodies are sent in pieces, so that a slow replica holds back the sender and not the loop.
_PIECEWISE_OVER = 256 * 1024
_AUTO_HEADERS = frozenset({"User-Agent", "Accept", "Accept-Encoding", "Content-Type"})


@dataclass(frozen=True, slots=True)
class Job:
    """One admitted request. ``query``: the raw query string, "" if none."""

    forward: Forward
    query: str
    headers: Iterable[tuple[str, str]]
    body: bytes
    request_id: str
    lease: Lease


@dataclass(slots=True)
class Opened:
    """A replica that has begun to answer. ``first``: the first bytes of the body, b"" for an empty one.

    Times in monotonic seconds. Whoever holds it closes ``response``.
    """

    target: Target
    response: aiohttp.ClientResponse
    first: bytes
    sent_at: float
    first_byte_at: float


@dataclass(slots=True)
class _Failed:
    failure: Failure
    target: Target
    detail: str
    opened: Opened | None = None


@dataclass(slots=True)
class _Progress:
    began: float
    failures: tuple[Failure, ...] = ()
    tried: set[KernelId] = field(default_factory=set)


class Upstream:
    """Connections to replicas. An async context manager."""

    def __init__(self, decider: Decider, settings: ProxySettings) -> None:
        self._decider, self._settings, self._clock = decider, settings, decider.clock
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Upstream:
        self._session = aiohttp.ClientSession(
            # The default limit of 100 connections would stall every stream past the hundredth.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S),
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

    async def open(self, job: Job) -> Opened | Refuse:
        """The first replica's answer that is worth passing on, or why there is none.

        ``job.lease`` is left at the replica that answered; release it when its answer has ended.
        """
        model = job.forward.model
        progress = _Progress(self._clock.monotonic())
        target = self._decider.pick(model, progress.tried)
        if target is None:
            return error_response.loading(model)
        while True:
            job.lease.move(target)
            outcome = await self._attempt(target, job)
            if isinstance(outcome, Opened):
                return outcome
            self._decider.failed(model, target, outcome.failure)
            # An overloaded engine says so at every request: the metric counts that, the log need not.
            say = log.debug if outcome.failure is Failure.BUSY else log.warning
            say(
                "replica failed",
                model=model,
                kernel=target.kernel_id,
                kind=outcome.failure.value,
                detail=outcome.detail,
                request_id=job.request_id,
            )
            following = self._following(model, outcome, progress)
            if following is None:
                return outcome.opened or self._refusal(outcome, len(progress.tried))
            if outcome.opened is not None:
                outcome.opened.response.close()
            target = following

    def _following(self, model: str, last: _Failed, progress: _Progress) -> Target | None:
        progress.tried.add(last.target.kernel_id)
        elapsed = self._clock.monotonic() - progress.began
        again = another(last.failure, progress.failures, elapsed)
        progress.failures += (last.failure,)
        if not again:
            return None
        following = self._decider.pick(model, progress.tried)
        if following is None and last.failure is Failure.DISCONNECT:
            return last.target  # the only one: most often just an idle connection that it had closed
        return following

    async def _attempt(self, target: Target, job: Job) -> Opened | _Failed:
        assert self._session is not None
        sent_at = self._clock.monotonic()
        response = None
        try:
            response = await self._session.post(
                _url(target, job),
                data=io.BytesIO(job.body) if len(job.body) > _PIECEWISE_OVER else job.body,
                headers=CIMultiDict(headers.to_replica(job.headers, target.key, job.request_id)),
                allow_redirects=False,
            )
            first = await response.content.readany()
        except aiohttp.ClientError as error:
            if response is not None:
                response.close()
            return _Failed(_kind(error), target, str(error) or type(error).__name__)
        except BaseException:
            if response is not None:
                response.close()
            raise
        self._decider.reached(target)
        opened = Opened(target, response, first, sent_at, self._clock.monotonic())
        if response.status == 401:
            response.close()
            return _Failed(Failure.OUR_KEY, target, "it answered 401 to the proxy's own key")
        if response.status in BUSY:
            return _Failed(Failure.BUSY, target, f"it answered {response.status}", opened)
        return opened

    def _refusal(self, last: _Failed, attempts: int) -> Refuse:
        if last.failure is Failure.SILENT:
            return error_response.upstream_timeout(self._settings.read_idle_timeout_s)
        if last.failure is Failure.OUR_KEY:
            return error_response.upstream_error(
                "The replica refused the proxy's own key. That is not your key's fault; "
                "tell the administrator, or try again."
            )
        what = "could not be reached" if last.failure is Failure.CONNECT else "closed before it answered"
        return error_response.upstream_error(
            f"The replica {what} ({attempts} tried). Try again; it is being replaced if it is gone."
        )


def _url(target: Target, job: Job) -> URL:
    host = f"[{target.host}]" if ":" in target.host else target.host
    query = f"?{job.query}" if job.query else ""
    return URL(f"http://{host}:{target.port}{job.forward.path}{query}", encoded=True)


def _kind(error: aiohttp.ClientError) -> Failure:
    # ConnectionTimeoutError is a ServerTimeoutError too: the order matters.
    if isinstance(error, aiohttp.ConnectionTimeoutError | aiohttp.ClientConnectorError | aiohttp.InvalidURL):
        return Failure.CONNECT
    if isinstance(error, aiohttp.ServerTimeoutError):
        return Failure.SILENT
    return Failure.DISCONNECT
