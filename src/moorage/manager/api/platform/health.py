"""The manager's health, metrics and version."""

from __future__ import annotations

from aiohttp import web

from moorage.common.aio import supervisor
from moorage.common.http.relative import to_root
from moorage.common.views.resources import Health, View
from moorage.manager.api.http.description import LazyDescription
from moorage.manager.api.http.docs_page import HEADERS
from moorage.manager.api.http.problem_types import DOCS_PATH
from moorage.manager.api.http.route import Call, NoQuery, route

DESCRIPTION = web.AppKey("description", LazyDescription)


class Version(View):
    version: str


class Start(View):
    """The entry point of the API."""

    name: str
    version: str
    openapi: str
    docs: str
    next_step: str


@route("GET", "/livez", "Liveness: the process responds", returns=Health, access="open")
async def get_livez(call: Call[None, NoQuery]) -> Health:
    return Health(status="ok")


@route(
    "GET",
    "/readyz",
    "Readiness: whether the manager can serve, by component",
    returns=Health,
    access="open",
)
async def get_readyz(call: Call[None, NoQuery]) -> web.Response:
    checks = await call.deps.checks()
    ready = all(text == "ok" for text in checks.values())

    # A task that fails repeatedly needs an operator, and so does a row that only a newer manager
    # can read. Taking the manager out of service would not help.
    found = supervisor.problems() | call.deps.degraded()
    status = "unavailable" if not ready else "degraded" if found else "ok"
    health = Health(status=status, checks=checks | found)
    return web.Response(
        status=200 if ready else 503,
        body=health.model_dump_json().encode(),
        content_type="application/json",
        headers={} if ready else {"Retry-After": "2"},
    )


@route("GET", "/metrics", "Prometheus metrics", returns="text/plain", access="open")
async def get_metrics(call: Call[None, NoQuery]) -> web.Response:
    return web.Response(
        body=await call.deps.metrics(),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )


@route("GET", "/version", "Get the manager's version", returns=Version, access="open")
async def get_version(call: Call[None, NoQuery]) -> Version:
    return Version(version=call.deps.version)


@route(
    "GET",
    "/openapi.json",
    "Get this OpenAPI description",
    returns="application/json",
    access="open",
)
async def get_openapi(call: Call[None, NoQuery]) -> web.Response:
    description = await call.request.app[DESCRIPTION].get()
    return web.Response(body=description.document, content_type="application/json")


@route("GET", "/docs", "Documentation of this API as a page", returns="text/html", access="open")
async def get_docs(call: Call[None, NoQuery]) -> web.Response:
    description = await call.request.app[DESCRIPTION].get()
    return web.Response(text=description.page, content_type="text/html", headers=HEADERS)


@route(
    "GET",
    "/",
    "Entry point, with links to the documentation; sends browsers to the console",
    returns=Start,
    access="open",
)
async def get_start(call: Call[None, NoQuery]) -> web.Response:
    request = call.request
    if "text/html" in request.headers.get("Accept", ""):
        console = f"{to_root(request.rel_url.raw_path)}console/"
        return web.Response(status=303, headers={"Location": console, "Vary": "Accept"})

    found = Start(
        name="moorage",
        version=call.deps.version,
        openapi="/openapi.json",
        docs=DOCS_PATH,
        next_step=(
            "send 'Authorization: Bearer KEY' to the routes of /v1, which /openapi.json describes"
        ),
    )
    return web.Response(
        body=found.model_dump_json().encode(),
        content_type="application/json",
        headers={"Vary": "Accept"},
    )
