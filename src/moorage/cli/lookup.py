"""Lookups of sessions and endpoints: by name, and complete lists over all pages."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from moorage.cli.array_elements import element_example, find_elements
from moorage.common.model.errors import InvalidInput, NotFound
from moorage.common.model.status import LIVE, Outcome, Status
from moorage.sdk.errors import ApiError

if TYPE_CHECKING:
    from moorage.common.views.endpoints import EndpointView
    from moorage.common.views.resources import SessionView
    from moorage.sdk import Client


async def find(client: Client, name: str) -> EndpointView | SessionView:
    """The endpoint with this name, or else the session. Raises ``NotFound`` if there is neither."""
    try:
        return await client.endpoints.get(name)
    except ApiError as error:
        if error.status != 404:
            raise

    try:
        return await client.sessions.get(name)
    except ApiError as error:
        if error.status != 404:
            raise
        missing = error

    if len(elements := await find_elements(client, name)) == 1:
        return elements[0]
    if elements:
        raise InvalidInput(
            f"{name!r} names {len(elements)} elements; one is allowed here",
            next_step="name one of them, such as " + element_example(name),
        )
    raise await _not_found(client, name) from missing


async def _not_found(client: Client, name: str) -> NotFound:
    """The error about a name that is neither an endpoint nor a session, but may be a pipeline."""
    what = f"there is no endpoint or session {name!r}"
    try:
        pipeline = await client.pipelines.get(name)
    except ApiError:
        return NotFound(what, next_step="`moorage ps --all` lists them")
    return NotFound(
        f"{what}, but a pipeline",
        next_step=f"`moorage pipelines describe {pipeline.name}` shows it and its sessions",
    )


async def live_sessions(
    client: Client, endpoint: str | None = None, user: str | None = None
) -> list[SessionView]:
    """All sessions that have not ended, newest first."""
    return await all_sessions(client, LIVE, endpoint, user=user)


async def all_sessions(
    client: Client,
    statuses: Collection[Status | Outcome] = (),
    endpoint: str | None = None,
    selector: str | None = None,
    *,
    user: str | None = None,
    pipeline: str | None = None,
) -> list[SessionView]:
    """All sessions with one of ``statuses`` (empty means any), newest first. ``selector`` selects
    by labels."""
    return await client.sessions.list(
        statuses=statuses, endpoint=endpoint, selector=selector, user=user, pipeline=pipeline
    )


async def all_endpoints(client: Client, selector: str | None = None) -> list[EndpointView]:
    """All endpoints, sorted by name. ``selector`` selects by labels."""
    return await client.endpoints.list(selector=selector)
