"""Routes of identities: API keys, secrets, join tokens and peers. A part of the route table."""

from __future__ import annotations

from moorage.common.views.keys import KeySpec, KeyView, NewKeyView
from moorage.common.views.peers import (
    JoinReply,
    JoinRequest,
    JoinTokenSpec,
    JoinTokenView,
    NewJoinTokenView,
    PeerView,
)
from moorage.common.views.secrets import SecretSpec, SecretView
from moorage.manager.api import keys, peers, stored_secrets
from moorage.manager.api.route import Items, Route, route

_KEY = "/v1/keys/{name:.+}"
_SECRET = "/v1/secrets/{name:.+}"

IDENTITY_ROUTES: tuple[Route, ...] = (
    route(
        "POST",
        "/v1/keys",
        keys.create_key,
        "Create an API key. The secret is returned only once.",
        NewKeyView,
        body=KeySpec,
        status=201,
        location="/v1/keys/{name}",
        access="admin",
    ),
    route("GET", "/v1/keys", keys.list_keys, "List API keys", Items[KeyView], access="admin"),
    route("GET", _KEY, keys.get_key, "Get an API key", KeyView, access="admin"),
    route("DELETE", _KEY, keys.revoke_key, "Revoke an API key", KeyView, access="admin"),
    route(
        "GET",
        "/v1/secrets",
        stored_secrets.list_secrets,
        "List the secrets of the project",
        Items[SecretView],
    ),
    route(
        "PUT",
        _SECRET,
        stored_secrets.put_secret,
        "Create a secret of the project, or replace its value",
        SecretView,
        body=SecretSpec,
    ),
    route("DELETE", _SECRET, stored_secrets.delete_secret, "Delete a secret", SecretView),
    route(
        "POST",
        "/v1/join-tokens",
        peers.create_join_token,
        "Create a join token. The secret is returned only once.",
        NewJoinTokenView,
        body=JoinTokenSpec,
        status=201,
        access="admin",
    ),
    route(
        "GET",
        "/v1/join-tokens",
        peers.list_join_tokens,
        "List the join tokens that are still valid",
        Items[JoinTokenView],
        access="admin",
    ),
    route(
        "DELETE",
        "/v1/join-tokens/{id}",
        peers.delete_join_token,
        "Delete a join token, so that no agent or proxy can join with it",
        JoinTokenView,
        access="admin",
    ),
    route(
        "POST",
        "/v1/join",
        peers.join,
        "Register an agent or a proxy with a request signed by a join token",
        JoinReply,
        body=JoinRequest,
        access="open",
    ),
    route(
        "GET",
        "/v1/peers",
        peers.list_peers,
        "List the registered agents and proxies",
        Items[PeerView],
        access="admin",
    ),
    route(
        "DELETE",
        "/v1/peers/{kind}/{name}",
        peers.revoke_peer,
        "Revoke the certificates of an agent or a proxy and close its links",
        PeerView,
        access="admin",
    ),
)
