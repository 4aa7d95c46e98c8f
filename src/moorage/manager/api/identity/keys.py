"""Handlers for API keys."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from moorage.common.model.roles import Role
from moorage.common.model.spec import NoNul
from moorage.common.views.keys import KeyLimits, KeySpec, KeyView, NewKeyView, Rotation
from moorage.common.views.resources import Page
from moorage.manager.api.http.editing import edit
from moorage.manager.api.http.listing import WholeQuery, order, paging
from moorage.manager.api.http.route import Call, NoQuery, route
from moorage.manager.api.identity.owner_names import require_owner
from moorage.manager.identity import limits

_KEY = "/v1/keys/{name:.+}"
_CREATE = "; `create_missing` (--create-missing) creates it with the key"


class KeyQuery(WholeQuery):
    user: NoNul | None = Field(None, description="Only keys of this owner.")
    project: NoNul | None = None
    role: Role | None = None
    sort: Literal["name", "-name", "created_at", "-created_at"] = order("name")


@route(
    "POST",
    "/v1/keys",
    "Create an API key. The secret is returned only once.",
    body=KeySpec,
    returns=NewKeyView,
    status=201,
    location="/v1/keys/{name}",
    access="member",
)
async def create_key(call: Call[KeySpec, NoQuery]) -> NewKeyView:
    call.response_headers["Cache-Control"] = "no-store"
    await _check_priority(call, call.body.max_priority)
    await _check_owner(call)
    return await call.deps.store.keys.create(call.scope, call.body)


async def _check_owner(call: Call[KeySpec, NoQuery]) -> None:
    """Raise ``NotFound`` for a project or user that does not exist and is not to be created.

    Only administrators can create them with a key; the store refuses those of others.
    """
    spec = call.body
    if call.scope.projects is not None or spec.create_missing:
        return

    if spec.project is not None:
        await require_owner(call, "project", spec.project, or_else=_CREATE)
    if spec.user is not None and spec.user != spec.name:
        await require_owner(call, "user", spec.user, or_else=_CREATE)


@route("GET", "/v1/keys", "List API keys", query=KeyQuery, returns=Page[KeyView], access="viewer")
async def list_keys(call: Call[None, KeyQuery]) -> Page[KeyView]:
    query = call.query
    return await call.deps.store.keys.page(
        call.scope, paging(query), user=query.user, project=query.project, role=query.role
    )


@route("GET", _KEY, "Get an API key", returns=KeyView, access="viewer")
async def get_key(call: Call[None, NoQuery]) -> KeyView:
    return call.tagged(await call.deps.store.keys.get(call.scope, call.path("name")))


@route(
    "PATCH",
    _KEY,
    "Change the restrictions and the expiry of a key",
    body=KeyLimits,
    returns=KeyView,
    versioned=True,
    access="owner",
)
async def update_key(call: Call[KeyLimits, NoQuery]) -> KeyView:
    keys = call.deps.store.keys
    scope = call.scope
    name = call.path("name")
    before: KeyView | None = None

    async def read() -> KeyView:
        nonlocal before
        before = await keys.get(scope, name)
        return before

    async def write(changed: KeyLimits, versions: frozenset[int]) -> KeyView:
        assert before is not None
        await _check_priority(call, changed.max_priority, before.max_priority or 0)
        return await keys.update(scope, name, changed, if_match=versions)

    return await edit(call, "a key", read, write)


async def _check_priority(
    call: Call[KeySpec, NoQuery] | Call[KeyLimits, NoQuery], priority: int | None, recorded: int = 0
) -> None:
    """Raise ``Forbidden`` if the caller may not grant this priority.

    A key's highest priority determines the order of its model requests, whose endpoints may be in
    any resource group. ``recorded``: the key's current priority."""
    if priority is None:
        return

    ceilings = await call.deps.store.groups.highest_ceilings()
    refusal = limits.check_priority(
        call.scope, "max_priority", priority, "", ceilings=ceilings, recorded=recorded
    )
    if refusal is not None:
        raise refusal


@route(
    "POST",
    f"{_KEY}/rotate",
    "Replace the secret of a key; the new one is returned only once",
    body=Rotation,
    returns=NewKeyView,
    access="owner",
)
async def rotate_key(call: Call[Rotation, NoQuery]) -> NewKeyView:
    call.response_headers["Cache-Control"] = "no-store"
    return await call.deps.store.keys.rotate(
        call.scope, call.path("name"), grace_s=call.body.grace_s
    )


@route("DELETE", _KEY, "Revoke an API key", returns=KeyView, access="owner")
async def revoke_key(call: Call[None, NoQuery]) -> KeyView:
    return await call.deps.store.keys.revoke(call.scope, call.path("name"))
