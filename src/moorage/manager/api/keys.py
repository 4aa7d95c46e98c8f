"""Handlers for API keys."""

from __future__ import annotations

from moorage.common.views.keys import KeySpec, KeyView, NewKeyView
from moorage.manager.api.route import Call, Items, NoQuery


async def create_key(call: Call[KeySpec, NoQuery]) -> NewKeyView:
    call.response_headers["Cache-Control"] = "no-store"
    return await call.deps.store.keys.create(call.body, actor=call.actor)


async def list_keys(call: Call[None, NoQuery]) -> Items[KeyView]:
    return Items[KeyView](items=await call.deps.store.keys.all())


async def get_key(call: Call[None, NoQuery]) -> KeyView:
    return await call.deps.store.keys.get(call.path("name"))


async def revoke_key(call: Call[None, NoQuery]) -> KeyView:
    return await call.deps.store.keys.revoke(call.path("name"), actor=call.actor)
