"""Handlers for join tokens, registration, and registered agents and proxies."""

from __future__ import annotations

from typing import Literal

from moorage.common.model.errors import Conflict
from moorage.common.views.peers import (
    CaView,
    JoinReply,
    JoinRequest,
    JoinTokenSpec,
    JoinTokenView,
    NewJoinTokenView,
    PeerKind,
    PeerView,
    RotateCa,
)
from moorage.common.views.resources import Page
from moorage.manager.api.dependencies import RegistrationSource
from moorage.manager.api.listing import WholeQuery, order, paging
from moorage.manager.api.route import Call, NoQuery


async def create_join_token(call: Call[JoinTokenSpec, NoQuery]) -> NewJoinTokenView:
    call.response_headers["Cache-Control"] = "no-store"
    return await _require(call.deps.registration).create_token(call.body, actor=call.scope.actor)


class JoinTokenQuery(WholeQuery):
    kind: PeerKind | None = None
    sort: Literal["created_at", "-created_at", "expires_at", "-expires_at"] = order("created_at")


class PeerQuery(WholeQuery):
    kind: PeerKind | None = None
    sort: Literal["kind", "-kind", "name", "-name", "joined_at", "-joined_at"] = order("kind")


async def list_join_tokens(call: Call[None, JoinTokenQuery]) -> Page[JoinTokenView]:
    return await call.deps.store.peers.join_tokens(paging(call.query), kind=call.query.kind)


async def delete_join_token(call: Call[None, NoQuery]) -> JoinTokenView:
    return await call.deps.store.peers.delete_join_token(call.path("id"), actor=call.scope.actor)


async def join(call: Call[JoinRequest, NoQuery]) -> JoinReply:
    return await _require(call.deps.registration).join(call.body)


async def list_peers(call: Call[None, PeerQuery]) -> Page[PeerView]:
    return await call.deps.store.peers.page(paging(call.query), kind=call.query.kind)


async def revoke_peer(call: Call[None, NoQuery]) -> PeerView:
    return await call.deps.store.peers.revoke(
        call.path("kind"), call.path("name"), actor=call.scope.actor
    )


async def get_ca(call: Call[None, NoQuery]) -> CaView:
    return await _require(call.deps.registration).ca()


async def rotate_ca(call: Call[RotateCa, NoQuery]) -> CaView:
    return await _require(call.deps.registration).rotate_ca(call.body, actor=call.scope.actor)


def _require(registration: RegistrationSource | None) -> RegistrationSource:
    if registration is None:
        raise Conflict(
            "the links of this manager have no TLS, so registration is not available: agents and "
            "proxies on "
            "this machine use common.link_token",
            next_step="set manager.link_listen to an address that other machines reach "
            "(0.0.0.0:8701), or "
            "set common.link_tls to on",
        )

    return registration
