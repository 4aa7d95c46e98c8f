"""Handlers for the apps of sessions, and permits to them."""

from __future__ import annotations

from moorage.common.views.access_tokens import AppView, NewPermitView, PermitSpec, PermitView
from moorage.manager.api import authorization
from moorage.manager.api.route import Call, Items, NoQuery


async def list_apps(call: Call[None, NoQuery]) -> Items[AppView]:
    session = await authorization.seen(call)
    return Items[AppView](items=await call.deps.store.list_apps(session.id))


async def create_permit(call: Call[PermitSpec, NoQuery]) -> NewPermitView:
    session = await authorization.changed(call)
    call.answer_headers["Cache-Control"] = "no-store"
    return await call.deps.store.create_permit(session.id, call.path("app"), call.body, actor=call.actor)


async def list_permits(call: Call[None, NoQuery]) -> Items[PermitView]:
    session = await authorization.changed(call)
    found = await call.deps.store.list_permits(session.id, call.path("app"))
    return Items[PermitView](items=found)


async def revoke_permit(call: Call[None, NoQuery]) -> PermitView:
    session = await authorization.changed(call)
    return await call.deps.store.revoke_permit(
        session.id, call.path("app"), call.path("id"), actor=call.actor
    )
