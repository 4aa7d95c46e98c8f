"""Handlers for stored secrets. No response contains a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from moorage.common.model.errors import InvalidInput
from moorage.common.model.secret_names import MASK
from moorage.common.model.spec import Model, Name, Workload
from moorage.common.views.resources import Page
from moorage.common.views.secrets import SecretSpec, SecretView
from moorage.manager.api.http.listing import WholeQuery, order, paging
from moorage.manager.api.http.request import read_path
from moorage.manager.api.http.route import Call, NoQuery, Submission, route
from moorage.manager.workloads import plain_secrets

_SECRET = "/v1/secrets/{name:.+}"


class _SecretPath(Model):
    name: Name


class SecretQuery(WholeQuery):
    sort: Literal["name", "-name", "changed_at", "-changed_at"] = order("name")


@route(
    "GET",
    "/v1/secrets",
    "List the secrets of the project",
    query=SecretQuery,
    returns=Page[SecretView],
    access="member",
)
async def list_secrets(call: Call[None, SecretQuery]) -> Page[SecretView]:
    return await call.deps.store.secrets.page(call.scope, paging(call.query))


@route(
    "PUT",
    _SECRET,
    "Create a secret of the project, or replace its value",
    body=SecretSpec,
    returns=SecretView,
    access="project-admin",
)
async def put_secret(call: Call[SecretSpec, NoQuery]) -> SecretView:
    name = read_path({"name": call.path("name")}, _SecretPath).name
    return await call.deps.store.secrets.put(call.scope, name, call.body.value)


@route("DELETE", _SECRET, "Delete a secret", returns=SecretView, access="project-admin")
async def delete_secret(call: Call[None, NoQuery]) -> SecretView:
    return await call.deps.store.secrets.delete(call.scope, call.path("name"))


def check_no_mask(envs: Iterable[object]) -> None:
    """Raise ``InvalidInput`` for a masked value, which would replace the secret with its mask.

    ``envs`` holds the values of `env` fields."""
    masked = {
        name
        for env in envs
        if isinstance(env, Mapping)
        for name, value in env.items()
        if value == MASK
    }
    if masked:
        raise InvalidInput(
            f"env.{min(masked)} is {MASK!r}, the mask of a hidden value",
            field=f"env.{min(masked)}",
            next_step="enter the value, or name a stored secret in `secret_env`",
        )


async def check_secrets(call: Submission[Any, Any], spec: Workload) -> None:
    """Raise ``InvalidInput`` for a masked value, which would replace the secret with its mask, and
    for a secret that the project does not have."""
    check_no_mask(plain_secrets.of_workload(spec))
    await call.deps.store.secrets.check_exist(call.scope, spec.secrets)
