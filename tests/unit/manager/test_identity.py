"""Roles, new keys and limits: tables of cases for the rules."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.common.model.errors import Forbidden, InvalidInput, MoorageError, NotFound
from moorage.common.model.group_options import GroupOptions
from moorage.common.model.roles import Role
from moorage.common.model.spec import SessionSpec
from moorage.common.views.keys import KeySpec
from moorage.manager.identity import limits
from moorage.manager.identity.keys import ApiKey, Owner
from moorage.manager.identity.roles import (
    NewKey,
    UserFacts,
    decide_key,
    effective_role,
    model_access,
    owner_of_new_key,
)
from moorage.manager.identity.scope import Scope

VIEWER, MEMBER, LEAD, AUDITOR, ADMIN = Role


@pytest.mark.parametrize(
    ("granted", "membership", "platform", "role"),
    [
        (MEMBER, "member", None, MEMBER),
        (MEMBER, "viewer", None, VIEWER),
        (LEAD, "member", None, MEMBER),
        (LEAD, "admin", None, LEAD),
        (VIEWER, "admin", None, VIEWER),
        (MEMBER, None, None, None),
        (MEMBER, None, "admin", MEMBER),
        (LEAD, "viewer", "admin", LEAD),
        (MEMBER, None, "auditor", None),
        (ADMIN, "admin", None, None),
        (ADMIN, None, "admin", ADMIN),
        (ADMIN, None, "auditor", AUDITOR),
        (AUDITOR, None, "admin", AUDITOR),
        (AUDITOR, "admin", None, None),
    ],
)
def test_key_has_at_most_the_role_of_its_user(
    granted: Role, membership: str | None, platform: str | None, role: Role | None
) -> None:
    assert effective_role(granted, membership, platform) == role


def scope(role: Role, **fields: Any) -> Scope:
    return Scope.of(ApiKey("id", "key", role, Owner("ann", "vision"), **fields))


STRANGER = UserFacts(False, None, None)


def member(role: str | None, platform: str | None = None) -> UserFacts:
    return UserFacts(True, platform, role)


@pytest.mark.parametrize(
    ("caller", "spec", "facts", "outcome"),
    [
        # A member may create its own keys, up to its role.
        (MEMBER, {}, member("member"), NewKey(Owner("ann", "vision"), MEMBER)),
        (MEMBER, {}, member("admin"), NewKey(Owner("ann", "vision"), MEMBER)),
        (MEMBER, {"role": "viewer"}, member("member"), NewKey(Owner("ann", "vision"), VIEWER)),
        (MEMBER, {"role": "project-admin"}, member("admin"), Forbidden),
        (MEMBER, {"role": "admin"}, member("member"), Forbidden),
        (MEMBER, {"user": "bob"}, member("member"), Forbidden),
        (MEMBER, {"project": "speech"}, member("member"), NotFound),
        # A project admin may create keys for the project's members, up to their role.
        (LEAD, {"user": "bob"}, member("viewer"), NewKey(Owner("bob", "vision"), VIEWER)),
        (LEAD, {"user": "bob", "role": "member"}, member("viewer"), InvalidInput),
        (LEAD, {"user": "bob"}, STRANGER, InvalidInput),
        (LEAD, {"user": "bob", "project": "speech"}, member("member"), NotFound),
        (LEAD, {"role": "auditor"}, member("admin", "auditor"), Forbidden),
        # An administrator may create keys for anyone; a user who does not exist is created with the
        # key.
        (ADMIN, {}, STRANGER, NewKey(Owner("k", "default"), MEMBER)),
        (ADMIN, {"user": "bob", "project": "new"}, STRANGER, NewKey(Owner("bob", "new"), MEMBER)),
        (ADMIN, {"role": "admin"}, STRANGER, NewKey(Owner("k", "default"), ADMIN)),
        (ADMIN, {"role": "admin"}, member("admin"), InvalidInput),
        (ADMIN, {"role": "admin"}, member(None, "admin"), NewKey(Owner("k", "default"), ADMIN)),
        (ADMIN, {"user": "bob", "role": "member"}, member("viewer"), InvalidInput),
        (AUDITOR, {}, member("member"), Forbidden),
        (VIEWER, {}, member("viewer"), Forbidden),
    ],
)
def test_who_may_make_which_key(
    caller: Role, spec: dict[str, Any], facts: UserFacts, outcome: NewKey | type[MoorageError]
) -> None:
    wanted = KeySpec.model_validate({"name": "k"} | spec)
    decided = decide_key(scope(caller), wanted, facts)
    if isinstance(outcome, type):
        assert isinstance(decided, outcome)
        assert decided.next_step
    else:
        assert decided == outcome
        assert owner_of_new_key(scope(caller), wanted) == outcome.owner


@pytest.mark.parametrize(
    ("role", "scopes", "models", "asked"),
    [
        (MEMBER, None, None, None),
        (MEMBER, {"sessions:read"}, None, ()),
        (MEMBER, {"models:use"}, {"m"}, {"m"}),
        (VIEWER, None, None, ()),
        (VIEWER, None, {"m"}, {"m"}),
        (AUDITOR, None, {"m"}, ()),
        (ADMIN, None, None, None),
    ],
)
def test_models_that_a_key_may_ask(role: Role, scopes: Any, models: Any, asked: Any) -> None:
    assert model_access(role, scopes, models) == asked


def spec(**fields: Any) -> SessionSpec:
    return SessionSpec.model_validate({"command": ["x"]} | fields)


@pytest.mark.parametrize(
    ("key", "wanted", "refused"),
    [
        ({}, {"priority": 100}, None),
        ({"max_priority": 10}, {}, None),
        ({"max_priority": 10}, {"priority": 11}, Forbidden),
        ({"resource_groups": frozenset({"small"})}, {"resource_group": "small"}, None),
        ({"resource_groups": frozenset({"small"})}, {}, NotFound),
        ({"resource_groups": frozenset()}, {"resource_group": "small"}, NotFound),
    ],
)
def test_limits_of_a_key(key: dict[str, Any], wanted: dict[str, Any], refused: type | None) -> None:
    error = limits.check_key(scope(MEMBER, **key), spec(**wanted))
    assert error is None if refused is None else isinstance(error, refused)
    assert limits.check_key(Scope.system(), spec(**wanted)) is None


IMAGE = {"runtime": "docker", "image": "registry.example/team/app:1"}
GGUF = {"type": "inference", "engine": "llamacpp", "command": []}


@pytest.mark.parametrize(
    ("options", "wanted", "allowed"),
    [
        ({}, IMAGE, True),
        ({"images": []}, {}, True),
        ({"images": []}, IMAGE, False),
        ({"images": ["registry.example/team/*"]}, IMAGE, True),
        ({"images": ["registry.example/team"]}, IMAGE, False),
        ({"images": ["registry.example/other/*"]}, IMAGE, False),
        (
            {"images": ["registry.example/team/*"]},
            IMAGE | {"cluster": {"size": 2, "sub": {"image": "evil"}}},
            False,
        ),
        ({"mounts": ["/models"]}, GGUF | {"model": "/models/a.gguf"}, True),
        ({"mounts": ["/models/"]}, GGUF | {"model": "/models/x/../a.gguf"}, True),
        ({"mounts": ["/models"]}, GGUF | {"model": "/models/../etc/a.gguf"}, False),
        ({"mounts": ["/models"]}, GGUF | {"model": "/models-of-others/a.gguf"}, False),
        ({"mounts": ["/models"]}, GGUF | {"model": "a.gguf"}, False),
        ({"mounts": ["/models"]}, GGUF | {"model": "~/a.gguf"}, False),
        (
            {"mounts": []},
            {"type": "inference", "engine": "vllm", "command": [], "model": "org/name"},
            True,
        ),
        ({}, GGUF | {"model": "/anywhere/a.gguf"}, True),
    ],
)
def test_images_and_directories_that_a_group_allows(
    options: dict[str, Any], wanted: dict[str, Any], allowed: bool
) -> None:
    error = limits.check_group("g", GroupOptions.model_validate(options), spec(**wanted))
    assert (error is None) is allowed
