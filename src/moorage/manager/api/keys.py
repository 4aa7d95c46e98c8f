"""Handlers for API keys."""

from __future__ import annotations

from moorage.common.views.keys import KeyLimits, KeySpec, KeyView, NewKeyView, Rotation
from moorage.manager.api.route import Call, Items, NoQuery, merged


async def create_key(call: Call[KeySpec, NoQuery]) -> NewKeyView:
    call.response_headers["Cache-Control"] = "no-store"
    return await call.deps.store.keys.create(call.scope, call.body)


async def list_keys(call: Call[None, NoQuery]) -> Items[KeyView]:
    return Items[KeyView](items=await call.deps.store.keys.all(call.scope))


async def get_key(call: Call[None, NoQuery]) -> KeyView:
    return await call.deps.store.keys.get(call.scope, call.path("name"))


async def update_key(call: Call[KeyLimits, NoQuery]) -> KeyView:
    keys, name = call.deps.store.keys, call.path("name")
    return await keys.update(call.scope, name, merged(call.body, await keys.get(call.scope, name)))


async def rotate_key(call: Call[Rotation, NoQuery]) -> NewKeyView:
    call.response_headers["Cache-Control"] = "no-store"
    return await call.deps.store.keys.rotate(call.scope, call.path("name"), grace_s=call.body.grace_s)


async def revoke_key(call: Call[None, NoQuery]) -> KeyView:
    return await call.deps.store.keys.revoke(call.scope, call.path("name"))
