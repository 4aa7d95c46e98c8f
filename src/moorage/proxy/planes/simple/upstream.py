"""Upstream client: one attempt at a replica, up to the first byte of the response's body."""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDict
from yarl import URL

from moorage.common.aio.sockets import keep_alive_socket
from moorage.common.config.settings import ProxySettings
from moorage.common.http.client_address import TrustedProxies
from moorage.common.http.exclusive import read_some
from moorage.common.link.messages import Target
from moorage.proxy.core import headers
from moorage.proxy.core.admission import BodyRequired
from moorage.proxy.core.flow import RequestFlow
from moorage.proxy.core.retry import Failure
from moorage.proxy.core.traced_flow import replaced_headers
from moorage.proxy.dialout.connector import Connector, DialOutConnector
from moorage.proxy.planes.failure_log import log_failure
from moorage.proxy.planes.providers import Providers
from moorage.proxy.timeouts import Timeouts

# Larger bodies are sent in pieces, so that a slow replica delays the sender instead of the event
# loop.
_STREAMED_ABOVE_BYTES = 256 * 1024
_AUTO_HEADERS = frozenset({"User-Agent", "Accept", "Accept-Encoding", "Content-Type"})


class _LargePayload(aiohttp.BytesIOPayload):
    """A body that is sent in pieces. It leaves out the parent's constructor, which measures the
    buffer and so copies it: 64 MiB take 35 ms."""

    def __init__(self, body: bytes) -> None:
        super(aiohttp.BytesIOPayload, self).__init__(io.BytesIO(body))
        self._size = len(body)


@dataclass(slots=True)
class UpstreamResponse:
    """The response of a replica that has started to send its body, or has sent an empty body (b"").
    The caller closes ``response``."""

    response: aiohttp.ClientResponse
    first_piece: bytes

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def content_type(self) -> str:
        return self.response.headers.get("Content-Type", "")

    @property
    def coding(self) -> str:
        return ", ".join(self.response.headers.getall("Content-Encoding", ()))


@dataclass(frozen=True, slots=True)
class UpstreamFailed:
    failure: Failure


class UpstreamClient:
    """Connections to replicas. An async context manager."""

    def __init__(
        self, settings: ProxySettings, timeouts: Timeouts, connector: Connector | None = None
    ) -> None:
        self._connector = connector or Connector()
        self._kept_s = timeouts.kept_s
        self._settings = settings
        self._providers = Providers(settings)
        self._trusted = TrustedProxies(settings.trusted_proxies)
        self._session: aiohttp.ClientSession | None = None
        self._anew: aiohttp.ClientSession | None = None
        self._upgrades: aiohttp.ClientSession | None = None
        self._to_providers: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> UpstreamClient:
        kept = {"keepalive_timeout": self._kept_s}
        self._session = self._open(**kept)
        self._anew = self._open(force_close=True)
        self._upgrades = self._open(force_close=True, allow_upgrade=True)
        self._to_providers = self._open(
            **kept, resolver=_ProviderResolver(self._providers), use_dns_cache=False
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        for session in (self._session, self._anew, self._upgrades, self._to_providers):
            if session is not None:
                await session.close()

    def _open(self, **options: Any) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            # aiohttp's default limit of 100 connections would stall every stream beyond the
            # hundredth.
            connector=DialOutConnector(
                self._connector, limit=0, socket_factory=keep_alive_socket, **options
            ),
            timeout=aiohttp.ClientTimeout(
                total=None,
                sock_connect=self._settings.connect_timeout_s,
                # this does not apply to an established WebSocket
                sock_read=self._settings.read_idle_timeout_s,
            ),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_AUTO_HEADERS,
        )

    async def attempt(
        self, target: Target, flow: RequestFlow, request: web.BaseRequest, *, is_anew: bool = False
    ) -> UpstreamResponse | UpstreamFailed:
        """Make one attempt. ``is_anew``: use a new connection."""
        assert flow.admitted is not None
        upgrades = flow.admitted.upgrades
        session = self._anew if is_anew else self._session
        if target.tls or upgrades:
            session = self._to_providers if target.tls else self._upgrades

        assert session is not None
        pairs = self._kept(request, target, flow, flow.admitted)
        pairs += [*headers.for_replica(target.key), ("X-Request-Id", flow.request_id)]
        body = flow.payload
        response = None
        options: dict[str, Any] = {}
        try:
            if target.tls:
                options["ssl"] = await self._check(target)

            async with asyncio.timeout(self._settings.read_idle_timeout_s if upgrades else None):
                response = await session.request(
                    flow.admitted.method,
                    _url(target, flow.path, "" if target.tls else request.rel_url.raw_query_string),
                    data=None
                    if upgrades
                    else _LargePayload(body)
                    if len(body) > _STREAMED_ABOVE_BYTES
                    else body,
                    headers=CIMultiDict(pairs),
                    allow_redirects=False,
                    **options,
                )
                first_piece = b"" if response.status == 101 else await read_some(response.content)

            attempt = UpstreamResponse(response, first_piece)
            if response.status == 401:
                log_failure(flow, Failure.KEY_REJECTED, "it rejected the proxy's own key with 401")

            return attempt
        except aiohttp.ClientError as error:
            if response is not None:
                response.close()

            failure = _failure_of(error)
            log_failure(flow, failure, str(error) or type(error).__name__)
            return UpstreamFailed(failure)
        except TimeoutError:
            log_failure(flow, Failure.IDLE_TIMEOUT, "it does not answer the offer of a WebSocket")
            return UpstreamFailed(Failure.IDLE_TIMEOUT)
        except BaseException:
            if response is not None:
                response.close()
            raise

    def _kept(
        self, request: web.BaseRequest, target: Target, flow: RequestFlow, admitted: BodyRequired
    ) -> list[tuple[str, str]]:
        """The client's headers that ``target`` gets, and the trace."""
        given = request.headers.items()
        without = replaced_headers(flow)
        is_trusted = self._trusted.contains(request.remote)
        if admitted.upgrades:
            pairs = headers.upgrade_for_replica(given, without, is_trusted=is_trusted)
        elif target.tls:
            pairs = headers.kept_for_provider(given, uncompressed=admitted.reads_answer)
        else:
            pairs = headers.kept_for_replica(
                given,
                uncompressed=admitted.reads_answer,
                without=without,
                is_trusted=is_trusted,
            )

        if flow.traceparent:
            pairs.append(("traceparent", flow.traceparent))

        return pairs

    async def _check(self, provider: Target) -> ssl.SSLContext:
        """Check an address. Raises ``InvalidURL`` if connecting to it is not allowed. A literal
        address is not resolved, so it is checked only here."""
        try:
            await self._providers.addresses(provider.host, provider.port)
            return self._providers.tls
        except OSError as error:
            raise aiohttp.InvalidURL(provider.host, str(error)) from error


class _ProviderResolver(AbstractResolver):
    """A resolver that returns only allowed addresses."""

    def __init__(self, providers: Providers) -> None:
        self._providers = providers

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=int(socket.AI_NUMERICHOST),
            )
            for address in await self._providers.addresses(host, port)
        ]

    async def close(self) -> None:
        pass


def _url(target: Target, path: str, query: str) -> URL:
    host = f"[{target.host}]" if ":" in target.host else target.host
    query = headers.query_to_replica(query)
    query = f"?{query}" if query else ""
    return URL(
        f"{'https' if target.tls else 'http'}://{host}:{target.port}{path}{query}", encoded=True
    )


def _failure_of(error: aiohttp.ClientError) -> Failure:
    # ConnectionTimeoutError is also a ServerTimeoutError, so check for it first.
    if isinstance(
        error, aiohttp.ConnectionTimeoutError | aiohttp.ClientConnectorError | aiohttp.InvalidURL
    ):
        return Failure.CONNECT
    if isinstance(error, aiohttp.ServerTimeoutError):
        return Failure.IDLE_TIMEOUT
    return Failure.DISCONNECT
