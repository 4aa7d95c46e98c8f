"""Requests as the previous release's clients send them. Delete this module one release after it."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler

_DRY_RUN = "dry_run"


def planning_on_dry_run(create: Handler, plan: Handler) -> Handler:
    """``create``, except that ``plan`` serves requests with ``?dry_run=true``, which have an
    address of their own today."""

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.query.getall(_DRY_RUN, []) != ["true"]:
            return await create(request)
        return await plan(request.clone(rel_url=request.rel_url.without_query_params(_DRY_RUN)))

    return handler
