"""Health and metrics, on an address of their own."""

from __future__ import annotations

from aiohttp import web

from moorage.common.views.resources import Health
from moorage.proxy.control.feed import Feed
from moorage.proxy.core.request_router import Decider


def internal_app(decider: Decider, feed: Feed) -> web.Application:
    """``/livez`` (the process answers), ``/readyz`` (it has routes to serve by) and ``/metrics``."""

    async def livez(request: web.Request) -> web.Response:
        return _health(Health(status="ok"), 200)

    async def readyz(request: web.Request) -> web.Response:
        table = decider.table
        checks = {
            "route_table": f"generation {table.generation}" if table is not None else "none received yet",
            "manager_feed": "connected" if feed.connected else "away",
        }
        # Without the manager the last table serves on: that is ready.
        ready = table is not None
        health = Health(status="ok" if ready else "unavailable", checks=checks)
        return _health(health, 200 if ready else 503)

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(
            body=decider.metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    app = web.Application()
    app.add_routes(
        [web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", metrics)],
    )
    return app


def _health(health: Health, status: int) -> web.Response:
    return web.Response(status=status, text=health.model_dump_json(), content_type="application/json")
