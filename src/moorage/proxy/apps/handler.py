"""App handler: serves requests for apps. Streams HTTP, relays WebSockets, and opens TCP tunnels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import quote

import aiohttp
import structlog
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from moorage.common.aio.clock import Clock
from moorage.common.aio.sockets import keep_alive, keep_alive_socket, limit_unread, reset
from moorage.common.config.settings import ProxySettings
from moorage.common.http.client_address import TrustedProxies
from moorage.common.http.exclusive import read_some
from moorage.common.http.server import ConnectionLimits, read_while_arriving
from moorage.proxy.apps import error_response, headers
from moorage.proxy.apps.address import (
    TUNNEL,
    AppAddress,
    app_host,
    client_scheme,
    local_path,
    parse_address,
)
from moorage.proxy.apps.admission import AppGrant, admit, is_still_granted
from moorage.proxy.apps.credentials import QUERY_PARAMETER, Credentials, read_credentials
from moorage.proxy.apps.request_context import RequestContext, abort_connection
from moorage.proxy.apps.tunnel import tunnel
from moorage.proxy.apps.upgrade_relay import relay_upgrade
from moorage.proxy.control.table_watch import TableWatch
from moorage.proxy.core.error_response import ErrorResponse, no_table
from moorage.proxy.core.headers import printable_reason
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.core.routes import IndexedTable
from moorage.proxy.dialout.connector import Connector, DialOutConnector

log = structlog.get_logger("moorage.proxy.apps")
# Programs close idle connections after 5 s or later, so close ours earlier.
_KEEPALIVE_S = 4.0
_AUTO_HEADERS = frozenset({"User-Agent", "Accept", "Accept-Encoding", "Content-Type"})


class AppHandler:
    """The handler, as an async context manager. ``match`` recognizes requests for apps, and
    ``handle`` serves them."""

    def __init__(
        self,
        router: RequestRouter,
        settings: ProxySettings,
        clock: Clock,
        table_watch: TableWatch,
        *,
        limits: ConnectionLimits,
        connector: Connector | None = None,
    ) -> None:
        self._connector = connector or Connector()
        self._router = router
        self._clock = clock
        self._table_watch = table_watch
        self._limits = limits
        self._trusted = TrustedProxies(settings.trusted_proxies)
        self._domain = settings.apps_domain.lower()
        self._connect_timeout_s = settings.connect_timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._open: dict[asyncio.Task[object], AppGrant] = {}

    async def __aenter__(self) -> AppHandler:
        self._session = aiohttp.ClientSession(
            connector=DialOutConnector(
                self._connector,
                allow_upgrade=True,
                limit=0,
                keepalive_timeout=_KEEPALIVE_S,
                socket_factory=keep_alive_socket,
            ),
            # No total timeout, because only the user knows how long a program can take.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout_s),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_AUTO_HEADERS,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._session is not None:
            await self._session.close()

    def match(self, request: web.BaseRequest) -> AppAddress | None:
        """Match a request. Returns None for requests to models, which cost only one comparison here
        if no domain is set."""
        if not self._domain and not request.path.startswith(("/apps/", TUNNEL)):
            return None
        return parse_address(request.host, request.raw_path, self._domain)

    async def handle(self, context: RequestContext, address: AppAddress) -> web.StreamResponse:
        request = context.request
        upgrade = request.headers.get("Upgrade", "").lower() == "websocket"
        credentials = read_credentials(
            address, request.headers, request.headers.getall("Cookie", ())
        )
        grant = await self._admit(request, credentials, upgrade)
        if isinstance(grant, ErrorResponse):
            return self._error(context, grant)

        if (
            not address.tunnel
            and not upgrade
            and (redirect := self._redirect(context, address, grant))
        ):
            return redirect

        task = asyncio.current_task()
        assert task is not None
        self._open[task] = grant
        traffic = self._router.apps
        session_id = grant.route.session_id
        traffic.begin(session_id)

        try:
            if address.tunnel:
                if not upgrade:
                    return self._error(context, error_response.needs_websocket())
                return await self._tunnel(context, address, grant)

            return await self._forward(context, address, grant, upgrade)
        finally:
            del self._open[task]
            traffic.end(session_id, self._clock.monotonic())

    async def _admit(
        self, request: web.BaseRequest, credentials: Credentials, upgrade: bool
    ) -> AppGrant | ErrorResponse:
        """Admit a request, if necessary after a short wait for a table with a new access token or
        with an app that has just started."""

        def check() -> AppGrant | ErrorResponse:
            if (table := self._router.table) is None:
                return no_table()
            if error := self._router.check_credentials(self._clock.monotonic()):
                return error

            return admit(
                credentials,
                table,
                self._clock.now().timestamp(),
                method=request.method,
                upgrade=upgrade,
                host=request.host,
                origin=request.headers.get("Origin"),
            )

        return await self._table_watch.recheck(
            check,
            lambda result: (
                isinstance(result, ErrorResponse)
                and error_response.may_resolve(result, credentials)
            ),
        )

    def _redirect(
        self, context: RequestContext, address: AppAddress, grant: AppGrant
    ) -> web.Response | None:
        """A redirect for browsers, or None.

        It leads to the app's own host name if there is a domain, to the address without its access
        token, which becomes a cookie, or to the address with a slash at the end, which relative
        links need. Programs that send a token in the address may not follow redirects, so they
        get the app's response, with the cookie.
        """
        request = context.request
        opens_page = error_response.asks_for_page(request.headers.get("Accept", ""))
        if request.method not in ("GET", "HEAD") or (grant.source == "query" and not opens_page):
            return None

        query = f"?{grant.query}" if grant.query else ""
        by_path = not address.by_host
        response = web.Response(
            status=303, headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
        )
        if grant.source == "query" and by_path and self._domain:
            host = app_host(address, request.host, self._domain)
            path = address.path if grant.route.base_path else address.subpath or "/"
            separator = "&" if query else "?"

            # Without a scheme, so that the browser keeps its own.
            response.headers["Location"] = (
                f"//{host}{path}{query}{separator}{QUERY_PARAMETER}={quote(grant.secret, safe='')}"
            )
        elif grant.source == "query":
            slash = "/" if by_path and not address.subpath else ""
            response.headers["Location"] = f"{local_path(address.path)}{slash}{query}"
            response.headers["Set-Cookie"] = self._cookie(request, address, grant)
        elif by_path and not address.subpath and not grant.route.base_path:
            response.headers["Location"] = f"{address.path}/{query}"
        else:
            return None

        context.answer(response.status)
        return response

    def _cookie(self, request: web.BaseRequest, address: AppAddress, grant: AppGrant) -> str:
        return headers.access_token_cookie(
            address,
            grant,
            self._clock.now().timestamp(),
            secure=self._scheme(request) == "https",
        )

    def _scheme(self, request: web.BaseRequest) -> str:
        """The scheme of the client's connection, which a trusted web server may terminate."""
        forwarded = request.headers.get("X-Forwarded-Proto", "").lower()
        return client_scheme(
            request.scheme, forwarded, trusted=self._trusted.contains(request.remote)
        )

    async def _forward(
        self, context: RequestContext, address: AppAddress, grant: AppGrant, upgrade: bool
    ) -> web.StreamResponse:
        assert self._session is not None
        request = context.request
        pairs = headers.to_app(
            request.headers.items(),
            address,
            grant,
            host=request.host,
            peer=request.remote or "",
            scheme=self._scheme(request),
            upgrade=upgrade,
            forwarded=self._trusted.contains(request.remote),
            without=grant.withheld,
        )
        body = _Body(context, self._limits.body_s)
        try:
            app_response = await self._session.request(
                request.method,
                _url(address, grant),
                data=body.pieces() if request.can_read_body and not upgrade else None,
                headers=CIMultiDict(pairs),
                allow_redirects=False,
            )
        except (aiohttp.ClientError, TimeoutError) as error:
            if body.has_stopped:
                return self._error(context, error_response.body_stopped(self._limits.body_s))

            log.info(
                "app does not respond",
                session=address.session_id,
                app=address.app,
                error=str(error),
            )
            return self._error(context, error_response.unreachable(address))

        body.response = app_response
        if app_response.status == 101 and not upgrade:
            app_response.close()
            return self._error(context, error_response.unasked_upgrade(address))

        try:
            status = app_response.status
            upgraded = upgrade and app_response.status == 101
            pairs = headers.to_client(
                app_response.headers.items(), address, grant, request.host, upgraded=upgraded
            )
            if grant.source == "query" and request.method in ("GET", "HEAD"):
                pairs.append(("Set-Cookie", self._cookie(request, address, grant)))

            context.start(status)
            response = web.StreamResponse(
                status=status,
                reason=printable_reason(app_response.reason),
                headers=CIMultiDict(pairs),
            )
            if upgraded:
                _allow_pauses(request)
                return await relay_upgrade(request, app_response, response)

            return await _relay(request, app_response, response)
        finally:
            app_response.close()

    async def _tunnel(
        self, context: RequestContext, address: AppAddress, grant: AppGrant
    ) -> web.StreamResponse:
        route = grant.route
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                reader, writer = await self._connector.open_streams(route.host, route.port)
        except (OSError, TimeoutError) as error:
            log.info(
                "app does not respond",
                session=address.session_id,
                app=address.app,
                error=str(error),
            )
            return self._error(context, error_response.unreachable(address))

        context.start(101)
        keep_alive(writer.get_extra_info("socket"))
        _allow_pauses(context.request)

        return await tunnel(context.request, reader, writer)

    def _error(self, context: RequestContext, error: ErrorResponse) -> web.Response:
        given = context.request.headers
        accept = given.get("Accept", "")
        if error_response.is_browser(given):
            error = error_response.without_challenge(error)

        body, media_type = error_response.render(error, accept)
        context.answer(error.status)
        response = web.Response(
            status=error.status, body=body, content_type=media_type, headers=error.headers
        )
        response.headers["Cache-Control"] = "no-store"
        response.headers["x-request-id"] = context.request_id
        if given.get("Upgrade"):
            # WebSocket clients show only the head of an error response.
            response.headers["x-moorage-error"] = error.message.encode("ascii", "replace").decode()
        if error.close or context.expects_continue or given.get("Upgrade"):
            response.force_close()

        return response

    def close_revoked(self, table: IndexedTable) -> None:
        """Abort requests whose credential or app is no longer in ``table``."""
        for task, grant in self._open.items():
            if not is_still_granted(grant, table):
                task.cancel()


def _url(address: AppAddress, grant: AppGrant) -> URL:
    route = grant.route
    host = f"[{route.host}]" if ":" in route.host else route.host
    path = address.path if address.by_host or route.base_path else address.subpath or "/"
    query = f"?{grant.query}" if grant.query else ""
    return URL(f"http://{host}:{route.port}{path}{query}", encoded=True)


class _Body:
    """The client's body on its way to an app. It may take any time, as an app's response may, but
    not pause for longer than ``pause_s`` seconds. ``has_stopped``: it did. ``response``: the app's,
    if it has begun; it ends with the body."""

    def __init__(self, context: RequestContext, pause_s: float) -> None:
        self._context = context
        self._pause_s = pause_s
        self.has_stopped = False
        self.response: aiohttp.ClientResponse | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        await self._context.send_continue()
        try:
            async for piece in read_while_arriving(self._context.request.content, self._pause_s):
                yield piece
        except TimeoutError:
            self.has_stopped = True
            connection = self.response.connection if self.response is not None else None
            if connection is not None and connection.transport is not None:
                # aiohttp ends only a response that has not begun.
                reset(connection.transport)
            raise


async def _relay(
    request: web.BaseRequest, app_response: aiohttp.ClientResponse, response: web.StreamResponse
) -> web.StreamResponse:
    """Copy the app's response byte for byte. A client that reads slowly slows down the app."""
    await response.prepare(request)
    while True:
        try:
            chunk = await read_some(app_response.content)
        except aiohttp.ClientError:
            abort_connection(request, response)
            return response

        if not chunk:
            break

        await response.write(chunk)

    await response.write_eof()
    return response


def _allow_pauses(request: web.BaseRequest) -> None:
    """Allow pauses, because a terminal or a notebook may read nothing for hours."""
    if request.transport is not None:
        limit_unread(request.transport.get_extra_info("socket"), 0)
