"""Handlers for the public keys with which users log in over SSH."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from moorage.common.model.spec import NoNul
from moorage.common.views.resources import Page
from moorage.common.views.ssh_keys import SSH_KEY_NAMESPACE, SshKeyChallenge, SshKeySpec, SshKeyView
from moorage.manager.api.http.listing import WholeQuery, order, paging
from moorage.manager.api.http.route import Call, NoQuery, route
from moorage.manager.identity.ssh_proof import VALID, challenge_of, check_proof, parse_key

_SSH_KEY = "/v1/ssh-keys/{name:.+}"


class SshKeyQuery(WholeQuery):
    user: NoNul | None = Field(None, description="Only keys of this user.")
    sort: Literal["name", "-name", "created_at", "-created_at"] = order("name")


@route(
    "GET",
    "/v1/ssh-keys/challenge",
    "Get the text to sign with a private key in order to register its public key",
    returns=SshKeyChallenge,
    access="member",
)
async def get_ssh_key_challenge(call: Call[None, NoQuery]) -> SshKeyChallenge:
    now = call.deps.clock.now()
    installation = await call.deps.store.managers.installation()
    return SshKeyChallenge(
        challenge=challenge_of(call.scope.owner.user, installation, now),
        namespace=SSH_KEY_NAMESPACE,
        expires_at=now + VALID,
    )


@route(
    "POST",
    "/v1/ssh-keys",
    "Register a public key of the caller for SSH, with proof that the caller holds the private key",
    body=SshKeySpec,
    returns=SshKeyView,
    status=201,
    location="/v1/ssh-keys/{fingerprint}",
    access="member",
)
async def create_ssh_key(call: Call[SshKeySpec, NoQuery]) -> SshKeyView:
    key = parse_key(call.body.public_key)
    installation = await call.deps.store.managers.installation()
    user = call.scope.owner.user
    now = call.deps.clock.now()
    check_proof(call.body, key.fingerprint, user, installation, now=now)
    return await call.deps.store.ssh_keys.create(call.scope, key, call.body.name)


@route(
    "GET",
    "/v1/ssh-keys",
    "List public keys for SSH",
    query=SshKeyQuery,
    returns=Page[SshKeyView],
    access="viewer",
)
async def list_ssh_keys(call: Call[None, SshKeyQuery]) -> Page[SshKeyView]:
    return await call.deps.store.ssh_keys.page(call.scope, paging(call.query), user=call.query.user)


@route(
    "GET",
    _SSH_KEY,
    "Get a public key, by name or fingerprint",
    returns=SshKeyView,
    access="viewer",
)
async def get_ssh_key(call: Call[None, NoQuery]) -> SshKeyView:
    return await call.deps.store.ssh_keys.get(call.scope, call.path("name"))


@route(
    "DELETE",
    _SSH_KEY,
    "Remove a public key, by name or fingerprint, and close its connections",
    returns=SshKeyView,
    access="owner",
)
async def delete_ssh_key(call: Call[None, NoQuery]) -> SshKeyView:
    return await call.deps.store.ssh_keys.delete(call.scope, call.path("name"))
