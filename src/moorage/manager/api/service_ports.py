"""Handlers for the service ports of sessions and their access tokens."""

from __future__ import annotations

from typing import Literal

from moorage.common.views.access_tokens import (
    AccessTokenSpec,
    AccessTokenView,
    AppView,
    NewAccessTokenView,
)
from moorage.common.views.resources import Page
from moorage.manager.api import authorization
from moorage.manager.api.listing import WholeQuery, order, paging
from moorage.manager.api.route import Call, Items, NoQuery


async def list_apps(call: Call[None, NoQuery]) -> Items[AppView]:
    session = await authorization.session_of(call)
    return Items[AppView](
        items=await call.deps.store.access_tokens.service_ports(call.scope, session.id)
    )


async def create_access_token(call: Call[AccessTokenSpec, NoQuery]) -> NewAccessTokenView:
    session = await authorization.session_of(call)
    call.response_headers["Cache-Control"] = "no-store"
    return await call.deps.store.access_tokens.create(
        call.scope, session.id, call.path("app"), call.body
    )


class AccessTokenQuery(WholeQuery):
    sort: Literal["created_at", "-created_at"] = order("created_at")


async def list_access_tokens(call: Call[None, AccessTokenQuery]) -> Page[AccessTokenView]:
    session = await authorization.session_of(call)
    return await call.deps.store.access_tokens.valid(
        call.scope, session.id, call.path("app"), paging(call.query)
    )


async def revoke_access_token(call: Call[None, NoQuery]) -> AccessTokenView:
    session = await authorization.session_of(call)
    return await call.deps.store.access_tokens.revoke(
        call.scope, session.id, call.path("app"), call.path("id")
    )
