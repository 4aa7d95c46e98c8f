"""Handlers for join tokens, registration, and registered agents and proxies."""

from __future__ import annotations

from moorage.common.model.errors import Conflict
from moorage.common.views.peers import (
    CaView,
    JoinReply,
    JoinRequest,
    JoinTokenSpec,
    JoinTokenView,
    NewJoinTokenView,
    PeerView,
    RotateCa,
)
from moorage.manager.api.dependencies import RegistrationSource
from moorage.manager.api.route import Call, Items, NoQuery


async def create_join_token(call: Call[JoinTokenSpec, NoQuery]) -> NewJoinTokenView:
    call.response_headers["Cache-Control"] = "no-store"
    return await _require(call.deps.registration).create_token(call.body, actor=call.scope.actor)


async def list_join_tokens(call: Call[None, NoQuery]) -> Items[JoinTokenView]:
    return Items[JoinTokenView](items=await call.deps.store.peers.join_tokens())


async def delete_join_token(call: Call[None, NoQuery]) -> JoinTokenView:
    return await call.deps.store.peers.delete_join_token(call.path("id"), actor=call.scope.actor)


async def join(call: Call[JoinRequest, NoQuery]) -> JoinReply:
    return await _require(call.deps.registration).join(call.body)


async def list_peers(call: Call[None, NoQuery]) -> Items[PeerView]:
    return Items[PeerView](items=await call.deps.store.peers.all())


async def revoke_peer(call: Call[None, NoQuery]) -> PeerView:
    return await call.deps.store.peers.revoke(call.path("kind"), call.path("name"), actor=call.scope.actor)


async def get_ca(call: Call[None, NoQuery]) -> CaView:
    return await _require(call.deps.registration).ca()


async def rotate_ca(call: Call[RotateCa, NoQuery]) -> CaView:
    return await _require(call.deps.registration).rotate_ca(call.body, actor=call.scope.actor)


def _require(registration: RegistrationSource | None) -> RegistrationSource:
    if registration is None:
        raise Conflict(
            "the links of this manager have no TLS, so registration is not available: agents and proxies on "
            "this machine use common.link_token",
            next_step="set manager.link_listen to an address that other machines reach (0.0.0.0:8701), or "
            "set common.link_tls to on",
        )
    return registration
