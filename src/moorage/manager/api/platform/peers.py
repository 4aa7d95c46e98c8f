"""Handlers for join tokens, registration, registered agents and proxies, and the other managers."""

from __future__ import annotations

from typing import Literal

from moorage.common.model.errors import Conflict
from moorage.common.views.managers import ManagerView
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
from moorage.manager.api.http.listing import WholeQuery, order, paging
from moorage.manager.api.http.route import Call, Items, NoQuery, route
from moorage.manager.pki.registration import Registration


@route(
    "POST",
    "/v1/join-tokens",
    "Create a join token. The secret is returned only once.",
    body=JoinTokenSpec,
    returns=NewJoinTokenView,
    status=201,
    access="admin",
)
async def create_join_token(call: Call[JoinTokenSpec, NoQuery]) -> NewJoinTokenView:
    call.response_headers["Cache-Control"] = "no-store"
    return await _require(call.deps.registration).create_token(call.body, actor=call.scope.actor)


class JoinTokenQuery(WholeQuery):
    kind: PeerKind | None = None
    sort: Literal["created_at", "-created_at", "expires_at", "-expires_at"] = order("created_at")


class PeerQuery(WholeQuery):
    kind: PeerKind | None = None
    sort: Literal["kind", "-kind", "name", "-name", "joined_at", "-joined_at"] = order("kind")


@route(
    "GET",
    "/v1/join-tokens",
    "List the join tokens that are still valid",
    query=JoinTokenQuery,
    returns=Page[JoinTokenView],
    access="auditor",
)
async def list_join_tokens(call: Call[None, JoinTokenQuery]) -> Page[JoinTokenView]:
    return await call.deps.store.peers.join_tokens(paging(call.query), kind=call.query.kind)


@route(
    "DELETE",
    "/v1/join-tokens/{id}",
    "Delete a join token, so that no further agent or proxy can join with it",
    returns=JoinTokenView,
    access="admin",
)
async def delete_join_token(call: Call[None, NoQuery]) -> JoinTokenView:
    return await call.deps.store.peers.delete_join_token(call.path("id"), actor=call.scope.actor)


@route(
    "POST",
    "/v1/join",
    "Register an agent or a proxy with a request signed by a join token",
    body=JoinRequest,
    returns=JoinReply,
    access="open",
)
async def join_peer(call: Call[JoinRequest, NoQuery]) -> JoinReply:
    return await _require(call.deps.registration).join(call.body)


@route(
    "GET",
    "/v1/peers",
    "List the registered agents and proxies",
    query=PeerQuery,
    returns=Page[PeerView],
    access="auditor",
)
async def list_peers(call: Call[None, PeerQuery]) -> Page[PeerView]:
    return await call.deps.store.peers.page(paging(call.query), kind=call.query.kind)


@route(
    "DELETE",
    "/v1/peers/{kind}/{name}",
    "Revoke the certificates of an agent or a proxy and close its links",
    returns=PeerView,
    access="admin",
)
async def revoke_peer(call: Call[None, NoQuery]) -> PeerView:
    return await call.deps.store.peers.revoke(
        call.path("kind"), call.path("name"), actor=call.scope.actor
    )


@route(
    "GET",
    "/v1/ca",
    "Get the CA of the links and its rotation",
    returns=CaView,
    access="auditor",
)
async def get_ca(call: Call[None, NoQuery]) -> CaView:
    return await _require(call.deps.registration).ca()


@route(
    "POST",
    "/v1/ca/rotate",
    "Start a rotation of the CA of the links, or continue the one in progress",
    body=RotateCa,
    returns=CaView,
    access="admin",
)
async def rotate_ca(call: Call[RotateCa, NoQuery]) -> CaView:
    return await _require(call.deps.registration).rotate_ca(call.body, actor=call.scope.actor)


def _require(registration: Registration | None) -> Registration:
    if registration is None:
        raise Conflict(
            "the links of this manager have no TLS, so registration is not available: agents and "
            "proxies on "
            "this machine use common.link_token",
            next_step=(
                "set manager.link_listen to an address that other machines can reach "
                "(0.0.0.0:8701), or set common.link_tls to on"
            ),
        )

    return registration


@route(
    "GET",
    "/v1/managers",
    ("List the managers, with the leader, and the agents and proxies that each serves"),
    returns=Items[ManagerView],
    access="auditor",
)
async def list_managers(call: Call[None, NoQuery]) -> Items[ManagerView]:
    return Items[ManagerView](items=await call.deps.store.managers.views())
