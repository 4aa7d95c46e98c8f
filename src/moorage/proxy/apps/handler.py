"""Requests of apps, answered: HTTP streamed both ways, WebSockets byte for byte, and tunnels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import structlog
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from moorage.common.config.settings import ProxySettings
from moorage.proxy.apps import address, error_response, headers
from moorage.proxy.apps.address import Asked, Shown
from moorage.proxy.apps.admission import Entry, admit, still_open
from moorage.proxy.apps.tunnel import tunnel
from moorage.proxy.apps.upgrade_relay import splice
from moorage.proxy.control.updates import News
from moorage.proxy.core.error_response import Refuse, no_table
from moorage.proxy.core.exchange import Exchange
from moorage.proxy.core.request_router import Decider
from moorage.proxy.core.routes import Table
from moorage.proxy.planes.relay import cut_off

log = structlog.get_logger("moorage.proxy.apps")
# Programs close idle connections after 5 s and more: let go of them before they do.
_IDLE_S = 4.0
_AUTO_HEADERS = frozenset({"User-Agent", "Accept", "Accept-Encoding", "Content-Type"})


class Apps:
    """An async context manager; ``answer`` handles what ``asked`` recognised."""

    def __init__(self, decider: Decider, settings: ProxySettings, news: News) -> None:
        self._decider, self._clock, self._news = decider, decider.clock, news
        self._domain = settings.apps_domain.lower()
        self._connect_s = settings.connect_timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._open: dict[asyncio.Task[object], Entry] = {}

    async def __aenter__(self) -> Apps:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S),
            # What a program takes its time for, only its user can tell.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_AUTO_HEADERS,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._session is not None:
            await self._session.close()

    def asked(self, request: web.BaseRequest) -> Asked | None:
        """None for a request of models: those are recognised first, and pay for nothing here."""
        if not self._domain and not request.path.startswith(("/apps/", address.TUNNEL)):
            return None
        return address.read(request.host, request.raw_path, self._domain)

    async def answer(self, exchange: Exchange, asked: Asked) -> web.StreamResponse:
        request = exchange.request
        upgrade = request.headers.get("Upgrade", "").lower() == "websocket"
        shown = address.shown(asked, request.headers, request.headers.getall("Cookie", ()))
        entry = await self._admit(request, shown, upgrade)
        if isinstance(entry, Refuse):
            return await self._refuse(exchange, entry)
        asked = shown.asked
        if not asked.tunnel and not upgrade and (moved := self._moved(exchange, asked, entry)):
            return moved
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = entry
        try:
            if asked.tunnel:
                if not upgrade:
                    return await self._refuse(exchange, error_response.needs_websocket())
                return await self._tunnel(exchange, asked, entry)
            return await self._forward(exchange, asked, entry, upgrade)
        finally:
            del self._open[task]

    async def _admit(self, request: web.BaseRequest, shown: Shown, upgrade: bool) -> Entry | Refuse:
        """An access token that was just made, or an app that has just become ready, may be told of any
        moment."""

        def judge() -> Entry | Refuse:
            if (table := self._decider.table) is None:
                return no_table()
            return admit(
                shown,
                table,
                self._clock.now().timestamp(),
                method=request.method,
                upgrade=upgrade,
                host=request.host,
                origin=request.headers.get("Origin"),
            )

        return await self._news.settled(
            judge, lambda verdict: isinstance(verdict, Refuse) and error_response.may_pass(verdict, shown)
        )

    def _moved(self, exchange: Exchange, asked: Asked, entry: Entry) -> web.Response | None:
        """Where a browser should ask instead: without the access token in the address, at the app's own
        host name,
        or with the slash that relative links need."""
        request = exchange.request
        if request.method not in ("GET", "HEAD"):
            return None
        query = f"?{asked.query}" if asked.query else ""
        by_path = not asked.by_host
        answer = web.Response(
            status=303, headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
        )
        if entry.way == "query" and by_path and self._domain:
            scheme = request.headers.get("X-Forwarded-Proto", request.scheme)
            there = address.host_address(asked, request.host, self._domain)
            path = asked.path if entry.route.base_path else asked.rest or "/"
            more = f"{query}&" if query else "?"
            answer.headers["Location"] = (
                f"{scheme}://{there}{path}{more}{address.ACCESS_TOKEN}={entry.access_token}"
            )
        elif entry.way == "query":
            slash = "/" if by_path and not asked.rest else ""
            answer.headers["Location"] = f"{asked.path}{slash}{query}"
            secure = request.headers.get("X-Forwarded-Proto", request.scheme) == "https"
            now = self._clock.now().timestamp()
            answer.headers["Set-Cookie"] = headers.access_token_cookie(asked, entry, now, secure=secure)
        elif by_path and not asked.rest and not entry.route.base_path:
            answer.headers["Location"] = f"{asked.path}/{query}"
        else:
            return None
        exchange.code = answer.status
        return answer

    async def _forward(
        self, exchange: Exchange, asked: Asked, entry: Entry, upgrade: bool
    ) -> web.StreamResponse:
        assert self._session is not None
        request = exchange.request
        pairs = headers.to_app(
            request.headers.items(),
            asked,
            entry,
            host=request.host,
            peer=request.remote or "",
            scheme=request.scheme,
            upgrade=upgrade,
        )
        try:
            response = await self._session.request(
                request.method,
                _url(asked, entry),
                data=_body(exchange) if request.can_read_body and not upgrade else None,
                headers=CIMultiDict(pairs),
                allow_redirects=False,
            )
        except aiohttp.ClientError as error:
            log.info("an app does not answer", session=asked.session_id, app=asked.app, error=str(error))
            return await self._refuse(exchange, error_response.no_answer(asked))
        try:
            joined = upgrade and response.status == 101
            pairs = headers.to_client(response.headers.items(), asked, entry, request.host, upgraded=joined)
            head = CIMultiDict(pairs)
            exchange.code, exchange.committed = response.status, True
            answer = web.StreamResponse(status=response.status, reason=response.reason, headers=head)
            if joined:
                return await splice(request, response, answer)
            return await _relay(request, response, answer)
        finally:
            response.close()

    async def _tunnel(self, exchange: Exchange, asked: Asked, entry: Entry) -> web.StreamResponse:
        route = entry.route
        try:
            async with asyncio.timeout(self._connect_s):
                reader, writer = await asyncio.open_connection(route.host, route.port)
        except (OSError, TimeoutError) as error:
            log.info("an app does not answer", session=asked.session_id, app=asked.app, error=str(error))
            return await self._refuse(exchange, error_response.no_answer(asked))
        exchange.code, exchange.committed = 101, True
        return await tunnel(exchange.request, reader, writer)

    async def _refuse(self, exchange: Exchange, refused: Refuse) -> web.Response:
        accept = exchange.request.headers.get("Accept", "")
        refused = error_response.without_key_words(refused, accept)
        body, kind = error_response.body_of(refused, accept)
        exchange.code = refused.status
        answer = web.Response(status=refused.status, body=body, content_type=kind, headers=refused.headers)
        answer.headers["Cache-Control"] = "no-store"
        answer.headers["x-request-id"] = exchange.request_id
        if exchange.request.headers.get("Upgrade"):
            # Whoever asks for a WebSocket sees of a refusal only its head.
            answer.headers["x-moorage-why"] = refused.message.encode("ascii", "replace").decode()
        if exchange.waits_for_continue or exchange.request.headers.get("Upgrade"):
            answer.force_close()
        return answer

    def keep_only(self, table: Table) -> None:
        """End what the access tokens and apps of ``table`` no longer allow."""
        for task, entry in self._open.items():
            if not still_open(entry, table):
                task.cancel()


def _url(asked: Asked, entry: Entry) -> URL:
    route = entry.route
    host = f"[{route.host}]" if ":" in route.host else route.host
    path = asked.path if asked.by_host or route.base_path else asked.rest or "/"
    query = f"?{asked.query}" if asked.query else ""
    return URL(f"http://{host}:{route.port}{path}{query}", encoded=True)


async def _body(exchange: Exchange) -> AsyncIterator[bytes]:
    await exchange.let_body_come()
    while piece := await exchange.request.content.readany():
        yield piece


async def _relay(
    request: web.BaseRequest, response: aiohttp.ClientResponse, answer: web.StreamResponse
) -> web.StreamResponse:
    """Byte for byte as it comes; a client that reads slowly holds the app back."""
    await answer.prepare(request)
    while True:
        try:
            piece = await response.content.readany()
        except aiohttp.ClientError:
            cut_off(request, answer)
            return answer
        if not piece:
            break
        await answer.write(piece)
    await answer.write_eof()
    return answer
