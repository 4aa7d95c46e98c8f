"""Handlers for sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any

from aiohttp import web
from pydantic import BeforeValidator, Field

from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.cluster import MAIN
from moorage.common.model.errors import Infeasible, MoorageError
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.spec import Model, NoNul, SessionSpec
from moorage.common.model.status import SessionType, Status
from moorage.common.views.pending import PlanView
from moorage.common.views.resources import HistoryEntry, Page, SessionView
from moorage.manager.api import authorization
from moorage.manager.api.route import Call, Items, NoQuery

# A log that stays silent is answered with a status all the same, so that a follower knows it is connected.
_FIRST_CHUNK_S = 1.0
_LOG_HEADERS = {
    "Content-Type": "text/plain; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}

# Where a request keeps its answer once that has begun: there is no other status to be had then.
STREAM = web.RequestKey("moorage.stream", web.StreamResponse)


def _split(value: Any) -> Any:
    """``RUNNING,PENDING`` and the parameter given twice mean the same; small letters will do."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list):
        return value
    return [word.strip().upper() for part in parts for word in str(part).split(",") if word.strip()]


class PageQuery(Model):
    limit: Annotated[int, Field(ge=1, le=500)] = 50
    cursor: Annotated[NoNul | None, Field(description="`next` of the page before.")] = None


class SessionQuery(PageQuery):
    status: Annotated[list[Status], BeforeValidator(_split)] = Field(
        [], description="Only these; several by commas or by repetition."
    )
    resource_group: NoNul | None = None
    type: SessionType | None = None
    name: NoNul | None = None
    endpoint: NoNul | None = Field(None, description="Only replicas of the endpoint of this name.")


class LogQuery(Model):
    tail: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Only so many last lines; 0: all that is kept."
    )
    follow: bool = Field(False, description="Go on as the log grows, until the session ends.")
    attempt: Annotated[int | None, Field(ge=1, description="Of this attempt; else of the newest.")] = None
    kernel: Annotated[NoNul, Field(description="In a cluster: of this kernel, like sub1.")] = MAIN


class CreateQuery(Model):
    strict: bool = Field(
        False, description="Refuse with 409 what no agent could ever hold; else it is a warning."
    )
    dry_run: bool = Field(
        False, description="Make nothing, and answer with where it would go now, or with what is missing."
    )


async def create_session(call: Call[SessionSpec, CreateQuery]) -> SessionView | PlanView:
    idempotency_key, store = call.idempotency_key, call.deps.store
    if call.query.dry_run:
        return await store.plan_session(call.body, owner=call.owner)
    if call.query.strict and (why := await store.never_fits(call.body)):
        raise Infeasible("; ".join(why), next_step=REASONS[Reason.INFEASIBLE].next_step)
    if idempotency_key is None:
        made = await store.create_session(call.body, actor=call.actor, owner=call.owner)
        return await _warned(call, made)
    view, replayed = await store.create_session_once(
        call.body, actor=call.actor, owner=call.owner, idempotency_key=idempotency_key
    )
    if replayed:
        call.answer_headers["Idempotent-Replayed"] = "true"
        return view
    return await _warned(call, view)


async def _warned(call: Call[SessionSpec, CreateQuery], made: SessionView) -> SessionView:
    """With what waiting will not mend. It has been made whatever this finds."""
    why = await call.deps.store.never_fits(call.body)
    if not why:
        return made
    words = REASONS[Reason.INFEASIBLE].text
    return made.model_copy(update={"warnings": [f"{words}: {line}" for line in why]})


async def list_sessions(call: Call[None, SessionQuery]) -> Page[SessionView]:
    query = call.query
    return await call.deps.store.list_sessions(
        statuses=frozenset(query.status) or None,
        resource_group=query.resource_group,
        type=query.type,
        name=query.name,
        endpoint=query.endpoint,
        project=authorization.project_of(call),
        cursor=query.cursor,
        limit=query.limit,
    )


async def get_session(call: Call[None, NoQuery]) -> SessionView:
    return await authorization.seen(call)


async def stop_session(call: Call[None, NoQuery]) -> SessionView:
    return await call.deps.store.stop_session(await authorization.changed_ref(call), actor=call.actor)


async def get_history(call: Call[None, NoQuery]) -> Items[HistoryEntry]:
    return Items[HistoryEntry](items=await call.deps.store.history(await authorization.seen_ref(call)))


async def get_logs(call: Call[None, LogQuery]) -> web.StreamResponse:
    """Errors before the first chunk get a status of their own; later ones cut the stream off."""
    session = await authorization.seen(call)
    query = call.query
    chunks = call.deps.logs.read(
        session,
        tail_lines=query.tail,
        follow=query.follow,
        attempt=query.attempt,
        hostname=query.kernel,
    )
    # In a task of its own: waiting only so long for it must not cancel the reading.
    first = spawn("api.logs", _next(chunks))
    try:
        await asyncio.wait({first}, timeout=_FIRST_CHUNK_S)
        if first.done() and isinstance(failure := first.result(), MoorageError):
            raise failure
        response = web.StreamResponse(headers=_LOG_HEADERS)
        response.enable_chunked_encoding()
        await response.prepare(call.request)
        call.request[STREAM] = response
        chunk = await first
        while chunk is not None:
            if isinstance(chunk, MoorageError):
                raise chunk
            if chunk:
                await response.write(chunk)
            chunk = await _next(chunks)
        await response.write_eof()
        return response
    finally:
        await cancel_and_wait(first)
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


async def _next(chunks: AsyncIterator[bytes]) -> bytes | MoorageError | None:
    """The next chunk, None at the end, or what went wrong."""
    try:
        return await anext(chunks)
    except StopAsyncIteration:
        return None
    except MoorageError as error:
        return error
