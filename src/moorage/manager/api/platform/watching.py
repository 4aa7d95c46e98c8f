"""Handlers for watching: the event stream, the overview, and the device holders."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Annotated

from aiohttp import web
from pydantic import BeforeValidator, Field

from moorage.common.model.errors import InvalidInput
from moorage.common.model.spec import NoNul
from moorage.common.model.timestamps import Timestamp
from moorage.common.views.events import AgentOccupancy, EventKind, OccupancyHistory, Overview, Step
from moorage.common.views.resources import Page
from moorage.manager.api.groups.handlers import closed_groups
from moorage.manager.api.http.authorization import may_name
from moorage.manager.api.http.listing import PageQuery, split_list
from moorage.manager.api.http.request import STREAM
from moorage.manager.api.http.route import Call, NoQuery, route
from moorage.manager.identity.audience import Audience

# A client that reads nothing for this many seconds is disconnected. Until then, the events that it
# has not read stay in the log that all clients share; only one write is queued for its socket.
WRITE_S = 30.0
# Step lengths in seconds, each with the number of days for which it is kept; then the largest and
# the default number of steps in a response.
STEPS: dict[Step, tuple[int, float]] = {
    "minute": (60, 2),
    "hour": (3600, 90),
    "day": (86_400, 3650),
}
MOST_STEPS = 3000
USUAL_STEPS = 400
_DAY = timedelta(days=1)
_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}


class EventQuery(NoQuery):
    kinds: Annotated[list[EventKind], BeforeValidator(split_list)] = Field(
        [], description="Only these kinds, comma-separated or repeated. Default: all."
    )
    about: Annotated[NoNul, Field(max_length=100)] = Field(
        "",
        description=(
            "Only events about the session or endpoint with this id, including its replicas."
        ),
    )


class OccupancyQuery(PageQuery):
    limit: Annotated[int, Field(ge=1, le=1000)] = 500
    resource_group: NoNul | None = None
    agent: NoNul | None = None


class OccupancyHistoryQuery(NoQuery):
    resource_group: NoNul | None = Field(
        None, description="Default: all groups that are not retired."
    )
    from_: Annotated[
        Timestamp | None,
        Field(
            alias="from",
            description=(
                "The first step is the one that contains this time. Default: one day before `to`."
            ),
        ),
    ] = None
    to: Timestamp | None = Field(
        None, description="The last step begins before this time. Default: now."
    )
    step: Step | None = Field(
        None,
        description=f"Default: the shortest with at most {USUAL_STEPS} steps that are still kept.",
    )


@route(
    "GET",
    "/v1/events",
    (
        "Watch sessions, endpoints, agents and resource groups as server-sent events. "
        "`Last-Event-ID` resumes a stream. The event `reset` means that changes were missed; read "
        "everything again."
    ),
    query=EventQuery,
    returns="text/event-stream",
    access="viewer",
    streams=True,
)
async def stream_events(call: Call[None, EventQuery]) -> web.StreamResponse:
    """Stream events until the caller's rights change; the client then reconnects with the new
    rights."""
    request = call.request
    scope = call.scope
    key = call.scope.key
    closed = await closed_groups(call)
    audience = Audience(
        None if scope.projects is None else frozenset(scope.projects),
        None if key is None else key.resource_groups,
        kinds=frozenset(call.query.kinds) or None,
        closed=closed,
        about=call.query.about,
        user=scope.owner.user,
    )
    stream = call.deps.events.stream(audience, request.headers.get("Last-Event-ID", "")[:100])
    response: web.StreamResponse | None = None
    try:
        async for text in stream:
            if response is None:
                response = web.StreamResponse(headers=_HEADERS)
                await response.prepare(request)
                request[STREAM] = response

            async with asyncio.timeout(WRITE_S):
                await response.write(text)

            if text.startswith(b":") and (
                await call.renew() != scope or await closed_groups(call) != closed
            ):
                break
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    finally:
        await stream.aclose()

    assert response is not None, "a stream always has a first event"
    return response


@route(
    "GET",
    "/v1/overview",
    "Count sessions, agents and capacity by resource group, and pending sessions by reason",
    returns=Overview,
    access="viewer",
)
async def get_overview(call: Call[None, NoQuery]) -> Overview:
    key = call.scope.key
    groups = None if key is None else key.resource_groups
    return await call.deps.store.overviews.overview(call.scope, groups, await closed_groups(call))


@route(
    "GET",
    "/v1/occupancy",
    "List the devices and slots of agents with the kernels that hold them, ordered by agent id",
    query=OccupancyQuery,
    returns=Page[AgentOccupancy],
    access="viewer",
)
async def list_occupancy(call: Call[None, OccupancyQuery]) -> Page[AgentOccupancy]:
    query = call.query
    page = await call.deps.store.overviews.occupancy(
        call.scope,
        resource_group=query.resource_group,
        agent=query.agent,
        cursor=query.cursor,
        limit=query.limit,
    )
    closed = await closed_groups(call)
    shown = [
        item
        for item in page.items
        if may_name(call.scope, item.resource_group) and item.resource_group not in closed
    ]

    return page.model_copy(update={"items": shown})


@route(
    "GET",
    "/v1/occupancy/history",
    (
        "Get the capacity of resource groups, its use and the number of pending sessions over "
        "time. Minutes are kept for two days, hours for ninety, days for ten years."
    ),
    query=OccupancyHistoryQuery,
    returns=OccupancyHistory,
    access="viewer",
)
async def get_occupancy_history(call: Call[None, OccupancyHistoryQuery]) -> OccupancyHistory:
    query = call.query
    now = call.deps.clock.now()
    until = query.to or now
    since = query.from_ or until - _DAY
    step = query.step or choose_step(since, until, now)
    seconds = STEPS[step][0]
    if not 0 < (until - since).total_seconds() <= MOST_STEPS * seconds:
        raise InvalidInput(
            f"from {since.isoformat()} to {until.isoformat()} are not 1 to {MOST_STEPS} steps of "
            f"a {step}",
            field="from",
            where="query",
            next_step="give a `from` before `to`, or a longer `step`",
        )

    first = datetime.fromtimestamp(since.timestamp() // seconds * seconds, UTC)
    closed = await closed_groups(call)
    if query.resource_group is None:
        names = {group.name for group in await call.deps.store.groups.all() if not group.retired_at}
    else:
        names = {query.resource_group}

    shown = {name for name in names - closed if may_name(call.scope, name)}
    found = await call.deps.store.occupancy_history.of_groups(shown, seconds, first, until)
    return OccupancyHistory(since=first, until=until, step=step, groups=found)


def choose_step(since: datetime, until: datetime, now: datetime) -> Step:
    """The shortest step that is still kept for ``since`` and yields at most ``USUAL_STEPS`` steps;
    or a day if there is none. Pure."""
    for step, (seconds, days) in STEPS.items():
        few = (until - since).total_seconds() <= USUAL_STEPS * seconds
        if few and now - since <= days * _DAY:
            return step
    return "day"
