"""The current role of a key, and the rules for who may create which key. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from moorage.common.model.errors import Forbidden, InvalidInput, MoorageError, NotFound
from moorage.common.model.roles import PLATFORM_ROLES, Role
from moorage.common.views.keys import KeySpec
from moorage.manager.identity.keys import DEFAULT_PROJECT, Owner
from moorage.manager.identity.scope import Scope

_OF_MEMBER = {"viewer": Role.VIEWER, "member": Role.MEMBER, "admin": Role.PROJECT_ADMIN}
_RANK = {Role.VIEWER: 0, Role.MEMBER: 1, Role.PROJECT_ADMIN: 2}


def effective_role(granted: Role, membership: str | None, platform: str | None) -> Role | None:
    """Role of a key that was ``granted`` to a user who now has these roles, or None if the key is
    not valid."""
    if granted in PLATFORM_ROLES:
        return None if platform is None else granted if platform == "admin" else Role.AUDITOR
    if platform == "admin":
        return granted
    if membership is None:
        return None
    return min(granted, _OF_MEMBER[membership], key=_RANK.__getitem__)


def role_of_user(membership: str | None, platform: str | None) -> Role | None:
    """Role of a user who has signed in and acts in a project, or None."""
    return (
        Role(platform) if platform is not None else _OF_MEMBER[membership] if membership else None
    )


def model_access(
    role: Role, scopes: Collection[str] | None, models: Collection[str] | None
) -> Collection[str] | None:
    """Models that a key may use, among those that its project sees; None means all. A viewer's key
    may use the models that it lists, and an auditor's key none."""
    if role is Role.AUDITOR or (scopes is not None and "models:use" not in scopes):
        return ()
    return () if role is Role.VIEWER and models is None else models


@dataclass(frozen=True, slots=True)
class UserFacts:
    """Stored facts about the user for whom a key is to be created. ``known``: the user exists."""

    known: bool
    platform_role: str | None
    member_role: str | None


@dataclass(frozen=True, slots=True)
class NewKey:
    owner: Owner
    role: Role


def owner_of_new_key(scope: Scope, spec: KeySpec) -> Owner:
    """The user and project that ``spec`` names, or their defaults."""
    is_admin = scope.role is Role.ADMIN
    user = spec.user or (spec.name if is_admin else scope.owner.user)
    return Owner(user, spec.project or (DEFAULT_PROJECT if is_admin else scope.owner.project))


def decide_key(scope: Scope, spec: KeySpec, facts: UserFacts) -> NewKey | MoorageError:
    """Whether the caller may create this key, and with which role.

    A member creates keys for itself, a project admin for the members of its project, an
    administrator for everyone: a user, project or membership that does not exist yet is created
    with the key.
    """
    owner = owner_of_new_key(scope, spec)
    is_admin = scope.role is Role.ADMIN
    if not is_admin and not scope.reads(owner.project):
        return NotFound(
            f"there is no project {owner.project!r}", next_step="`moorage projects` lists yours"
        )

    if not scope.controls(owner.user, owner.project):
        return Forbidden(
            f"a key of user {owner.user!r} requires the role 'project-admin' in {owner.project!r}",
            next_step="omit the user for a key of your own, or ask a project admin",
        )

    role = spec.role or _OF_MEMBER[facts.member_role or "member"]
    if spec.role is None and scope.role is Role.MEMBER:
        role = min(role, scope.role, key=_RANK.__getitem__)

    if not is_admin and facts.member_role is None:
        return InvalidInput(
            f"user {owner.user!r} is not a member of project {owner.project!r}",
            field="user",
            next_step=f"`moorage projects members set {owner.project} {owner.user} member`",
        )

    if not is_admin and (role in PLATFORM_ROLES or _RANK[role] > _RANK.get(scope.role, 0)):
        return Forbidden(
            f"role {role!s} exceeds that of your key, {scope.role!s}",
            next_step=f"choose a role up to {scope.role!s}, or ask an administrator",
        )

    if _exceeds_user(role, facts):
        held = facts.platform_role if role in PLATFORM_ROLES else facts.member_role
        cure = (
            f"projects members set {owner.project} {owner.user} "
            f"{str(role).removeprefix('project-')}"
        )
        if role in PLATFORM_ROLES:
            cure = f"users set {owner.user} --role {role!s}"

        return InvalidInput(
            f"role {role!s} exceeds that of user {owner.user!r}: {held or 'none'}",
            field="role",
            next_step=f"`moorage {cure}`",
        )

    return NewKey(owner, role)


def _exceeds_user(role: Role, facts: UserFacts) -> bool:
    """Whether the role exceeds the user's role. False for a user or a membership that is created
    with the key."""
    exists = facts.known if role in PLATFORM_ROLES else facts.member_role is not None
    return exists and effective_role(role, facts.member_role, facts.platform_role) != role
