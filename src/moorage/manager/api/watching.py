"""Handlers for watching: the event stream, the overview, and who holds which device."""

from __future__ import annotations

import asyncio
from typing import Annotated

from aiohttp import web
from pydantic import BeforeValidator, Field

from moorage.common.model.spec import NoNul
from moorage.common.views.events import AgentOccupancy, EventKind, Overview
from moorage.common.views.resources import Page
from moorage.manager.api.authorization import may_name
from moorage.manager.api.groups import closed_groups
from moorage.manager.api.route import Call, NoQuery
from moorage.manager.api.sessions import STREAM, PageQuery, split_list
from moorage.manager.identity.audience import Audience

# A client that reads nothing for so long is disconnected. Until then, what it misses stays in the one log of
# all clients; what is queued for its socket is one write.
WRITE_S = 30.0
_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}


class EventQuery(NoQuery):
    kinds: Annotated[list[EventKind], BeforeValidator(split_list)] = Field(
        [], description="Only these kinds, comma-separated or repeated; all by default."
    )


class OccupancyQuery(PageQuery):
    limit: Annotated[int, Field(ge=1, le=1000)] = 500
    resource_group: NoNul | None = None
    agent: NoNul | None = None


async def stream_events(call: Call[None, EventQuery]) -> web.StreamResponse:
    """Ends when the rights of the caller have changed: the client connects again with its new ones."""
    request, scope, key = call.request, call.scope, call.scope.key
    closed = await closed_groups(call)
    audience = Audience(
        None if scope.projects is None else frozenset(scope.projects),
        None if key is None else key.resource_groups,
        frozenset(call.query.kinds) or None,
        closed,
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
            if text.startswith(b":") and (await call.renew() != scope or await closed_groups(call) != closed):
                break
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    finally:
        await stream.aclose()
    assert response is not None, "a stream has a first event"
    return response


async def get_overview(call: Call[None, NoQuery]) -> Overview:
    key = call.scope.key
    groups = None if key is None else key.resource_groups
    return await call.deps.store.overviews.overview(call.scope, groups, await closed_groups(call))


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
        one
        for one in page.items
        if may_name(call.scope, one.resource_group) and one.resource_group not in closed
    ]
    return page.model_copy(update={"items": shown})
