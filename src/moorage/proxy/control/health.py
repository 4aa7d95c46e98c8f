"""Health checks and metrics of the proxy, on a separate address (``proxy.internal_listen``)."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler

from moorage.common.aio import supervisor
from moorage.common.aio.clock import Clock
from moorage.common.http.head import HeadGuard
from moorage.common.http.server import find_problem
from moorage.common.views.resources import Health
from moorage.proxy.control.feed import RouteFeedClient
from moorage.proxy.core.request_router import RequestRouter


def health_app(
    router: RequestRouter, feed: RouteFeedClient, guard: HeadGuard, clock: Clock
) -> web.Application:
    """``/livez`` (the process responds), ``/readyz`` (it has a route table, with a list of failing
    tasks) and ``/metrics``."""

    async def livez(request: web.Request) -> web.Response:
        return _health(Health(status="ok"), 200)

    async def readyz(request: web.Request) -> web.Response:
        table = router.table
        now = clock.monotonic()
        checks = {
            "route_table": "none received yet"
            if table is None
            else _age(table.generation, router, now),
            "manager_feed": "connected" if feed.connected else "disconnected",
        }
        stale = router.check_credentials(now)
        if not feed.connected and table is not None:
            honoured = "no longer honoured" if stale else "still honoured"
            checks["credentials"] = f"{router.credentials.age_s(now):.0f} s old, {honoured}"

        # The feed is not included, because without the manager, the proxy serves by its last table
        # for a time.
        is_ready = table is not None and (stale is None or router.settings.auth == "none")
        found = supervisor.problems()
        status = "unavailable" if not is_ready else "degraded" if found else "ok"
        return _health(Health(status=status, checks=checks | found), 200 if is_ready else 503)

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(
            body=router.metrics.text(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    @web.middleware
    async def check_head(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = find_problem(guard, request)
        return (
            await handler(request) if refusal is None else malformed(refusal.status, refusal.detail)
        )

    app = web.Application(middlewares=[check_head])
    app.add_routes(
        [web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", metrics)],
    )
    return app


def _age(generation: int, router: RequestRouter, now: float) -> str:
    age_s = router.routes_age.age_s(now)
    return f"generation {generation}, {f'{age_s:.0f} s old' if age_s else 'current'}"


def malformed(status: int, detail: str) -> web.Response:
    """The response to a request that violates HTTP or a limit."""
    response = _health(Health(status="error", checks={"request": detail}), status)
    response.force_close()
    return response


def _health(health: Health, status: int) -> web.Response:
    return web.Response(
        status=status, text=health.model_dump_json(), content_type="application/json"
    )
