"""Handlers for the usage and limits of model requests, and for endpoint metrics."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from aiohttp import web
from pydantic import Field

from moorage.common.model.errors import InvalidInput
from moorage.common.model.paging import Paging
from moorage.common.model.timestamps import Timestamp
from moorage.common.views.endpoints import EndpointView
from moorage.common.views.metering import LimitView, ModelUsage, UsageSplit
from moorage.common.views.resources import Page
from moorage.manager.api.http.listing import PageQuery
from moorage.manager.api.http.route import Call, Items, NoQuery, route
from moorage.manager.api.metering.exposition import exposition

_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_PAGE = 500


class UsageQuery(UsageSplit, PageQuery):
    from_: Annotated[
        Timestamp | None,
        Field(
            alias="from",
            description=(
                "The first hour is the one that contains this time. Default: one day before `to`."
            ),
        ),
    ] = None
    to: Timestamp | None = Field(
        None, description="The last hour is the one before this time. Default: now."
    )


@route(
    "GET",
    "/v1/usage",
    "List the usage of requests and sessions, ordered by time and name",
    query=UsageQuery,
    returns=Page[ModelUsage],
    access="viewer",
)
async def get_usage(call: Call[None, UsageQuery]) -> Page[ModelUsage]:
    query = call.query
    since, until = full_hours(query.from_, query.to, call.deps.clock.now())
    if since >= until:
        raise InvalidInput(
            f"from = {since.isoformat()} is not before to = {until.isoformat()}",
            field="from",
            where="query",
            next_step="give an earlier `from`, or a later `to`",
        )

    return await call.deps.store.usage_records.page(
        call.scope, since, until, query, cursor=query.cursor, limit=query.limit
    )


def full_hours(
    since: datetime | None, until: datetime | None, now: datetime
) -> tuple[datetime, datetime]:
    """The interval, extended to whole hours. Pure."""
    end = until or now
    begin = since or end - _DAY
    last = end.replace(minute=0, second=0, microsecond=0)
    return begin.replace(minute=0, second=0, microsecond=0), last if last == end else last + _HOUR


@route(
    "GET",
    "/v1/limits",
    "List the limits of keys, projects and models, and their current use",
    returns=Items[LimitView],
    access="viewer",
)
async def get_limits(call: Call[None, NoQuery]) -> Items[LimitView]:
    return Items[LimitView](items=await call.deps.store.limit_shares.in_use(call.scope))


@route(
    "GET",
    "/v1/metrics",
    "Prometheus metrics of the endpoints that the key may see, and of the replicas in its projects",
    returns="text/plain",
    access="viewer",
)
async def get_endpoint_metrics(call: Call[None, NoQuery]) -> web.Response:
    views: list[EndpointView] = []
    cursor = None
    while True:
        page = await call.deps.endpoints.page(call.scope, Paging(_PAGE, cursor))
        views += page.items
        if (cursor := page.next) is None:
            break

    text = exposition(views)
    if call.scope.projects is None:
        text += await call.deps.tenant_metrics()

    return web.Response(
        body=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
    )
