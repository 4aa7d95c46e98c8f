"""Handlers for the service ports of sessions and their access tokens."""

from __future__ import annotations

from typing import Literal

from moorage.common.model.session_access import Action
from moorage.common.views.access_tokens import (
    AccessTokenSpec,
    AccessTokenView,
    AppView,
    NewAccessTokenView,
)
from moorage.common.views.resources import Page
from moorage.manager.api.http import authorization
from moorage.manager.api.http.listing import WholeQuery, order, paging
from moorage.manager.api.http.route import SESSION_PATH, Call, Items, NoQuery, route

_ACCESS_TOKENS = f"{SESSION_PATH}/apps/{{app}}/access-tokens"


@route(
    "GET",
    f"{SESSION_PATH}/apps",
    "List the service ports of a session",
    returns=Items[AppView],
    action=Action.SEE,
)
async def list_session_apps(call: Call[None, NoQuery]) -> Items[AppView]:
    session = await authorization.session_of(call)
    return Items[AppView](
        items=await call.deps.store.access_tokens.service_ports(call.scope, session.id)
    )


@route(
    "POST",
    _ACCESS_TOKENS,
    "Create an access token for an app. The token is returned only once.",
    body=AccessTokenSpec,
    returns=NewAccessTokenView,
    status=201,
    location="/v1/sessions/{session_id}/apps/{app}/access-tokens/{id}",
    action=Action.PORTS,
)
async def create_access_token(call: Call[AccessTokenSpec, NoQuery]) -> NewAccessTokenView:
    session = await authorization.session_of(call)
    call.response_headers["Cache-Control"] = "no-store"
    return await call.deps.store.access_tokens.create(
        call.scope, session.id, call.path("app"), call.body
    )


class AccessTokenQuery(WholeQuery):
    sort: Literal["created_at", "-created_at"] = order("created_at")


@route(
    "GET",
    _ACCESS_TOKENS,
    "List the access tokens of an app",
    query=AccessTokenQuery,
    returns=Page[AccessTokenView],
    action=Action.TOKENS,
)
async def list_access_tokens(call: Call[None, AccessTokenQuery]) -> Page[AccessTokenView]:
    session = await authorization.session_of(call)
    return await call.deps.store.access_tokens.valid(
        call.scope, session.id, call.path("app"), paging(call.query)
    )


@route(
    "DELETE",
    f"{_ACCESS_TOKENS}/{{id}}",
    "Revoke an access token",
    returns=AccessTokenView,
    action=Action.CHANGE,
)
async def revoke_access_token(call: Call[None, NoQuery]) -> AccessTokenView:
    session = await authorization.session_of(call)
    return await call.deps.store.access_tokens.revoke(
        call.scope, session.id, call.path("app"), call.path("id")
    )
