"""Handlers for the public keys by which users log in over SSH."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from moorage.common.model.spec import NoNul
from moorage.common.views.resources import Page
from moorage.common.views.ssh_keys import SshKeySpec, SshKeyView
from moorage.manager.api.listing import WholeQuery, order, paging
from moorage.manager.api.route import Call, NoQuery, Route, route


class SshKeyQuery(WholeQuery):
    user: NoNul | None = Field(None, description="Only of this user.")
    sort: Literal["name", "-name", "created_at", "-created_at"] = order("name")


async def create_ssh_key(call: Call[SshKeySpec, NoQuery]) -> SshKeyView:
    return await call.deps.store.ssh_keys.create(call.scope, call.body)


async def list_ssh_keys(call: Call[None, SshKeyQuery]) -> Page[SshKeyView]:
    return await call.deps.store.ssh_keys.page(call.scope, paging(call.query), user=call.query.user)


async def get_ssh_key(call: Call[None, NoQuery]) -> SshKeyView:
    return await call.deps.store.ssh_keys.get(call.scope, call.path("name"))


async def delete_ssh_key(call: Call[None, NoQuery]) -> SshKeyView:
    return await call.deps.store.ssh_keys.delete(call.scope, call.path("name"))


_SSH_KEY = "/v1/ssh-keys/{name:.+}"
SSH_KEY_ROUTES: tuple[Route, ...] = (
    route(
        "POST",
        "/v1/ssh-keys",
        create_ssh_key,
        "Register a public key of the caller for SSH",
        SshKeyView,
        body=SshKeySpec,
        status=201,
        location="/v1/ssh-keys/{fingerprint}",
        access="member",
    ),
    route(
        "GET",
        "/v1/ssh-keys",
        list_ssh_keys,
        "List public keys for SSH",
        Page[SshKeyView],
        query=SshKeyQuery,
        access="viewer",
    ),
    route(
        "GET", _SSH_KEY, get_ssh_key, "Get a public key, by name or fingerprint", SshKeyView, access="viewer"
    ),
    route(
        "DELETE",
        _SSH_KEY,
        delete_ssh_key,
        "Remove a public key, by name or fingerprint, and close its connections",
        SshKeyView,
        access="owner",
    ),
)
