"""Rules that map groups and e-mail domains of an OpenID provider to roles. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from moorage.common.model.roles import MemberRole, PlatformRole

_RANK: tuple[MemberRole, ...] = get_args(MemberRole)
_PLATFORM_RANK: tuple[PlatformRole, ...] = get_args(PlatformRole)


@dataclass(frozen=True, slots=True)
class Rule:
    """Gives members of ``group``, or users with a verified e-mail address in ``domain``, a role in
    ``project``; "" means the platform."""

    group: str
    domain: str
    project: str
    role: str

    @staticmethod
    def parse(text: str) -> Rule:
        """Parse ``group:NAME = WHAT`` or ``domain:NAME = WHAT``; ``WHAT`` is ``PROJECT:ROLE``,
        ``auditor`` or ``admin``.

        Raises ``ValueError``."""
        left, equals, right = (part.strip() for part in text.rpartition("="))
        kind, _, name = (part.strip() for part in left.partition(":"))
        project, colon, role = (part.strip() for part in right.rpartition(":"))
        if not equals or kind not in ("group", "domain") or not name:
            raise ValueError(
                f"{text!r} is not a rule: write group:NAME = WHAT, or domain:NAME = WHAT"
            )

        allowed: tuple[str, ...] = _RANK if colon else _PLATFORM_RANK
        if role not in allowed or (colon and not project):
            raise ValueError(
                f"{text!r} gives {right!r}: it must be PROJECT:viewer, PROJECT:member, "
                "PROJECT:admin, "
                "auditor or admin"
            )

        if kind == "domain" and not colon:
            raise ValueError(
                f"{text!r} gives a whole domain a role on the platform: name a group instead"
            )

        return Rule(
            name if kind == "group" else "", name.lower() if kind == "domain" else "", project, role
        )


@dataclass(frozen=True, slots=True)
class Grants:
    """Roles that rules give a user."""

    platform_role: PlatformRole | None = None
    projects: Mapping[str, MemberRole] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.platform_role is not None or bool(self.projects)


def grants(rules: Iterable[Rule], claims: Mapping[str, Any], groups_claim: str) -> Grants:
    """Evaluate ``rules`` for a user with these claims. If several rules match, the highest role
    wins."""
    given = claims.get(groups_claim)
    groups = (
        {given}
        if isinstance(given, str)
        else set(map(str, given))
        if isinstance(given, list)
        else set()
    )
    domain = verified_email(claims).rpartition("@")[2].lower()
    platform: PlatformRole | None = None
    projects: dict[str, MemberRole] = {}
    for rule in rules:
        if not (rule.group in groups if rule.group else domain == rule.domain):
            continue

        if not rule.project:
            role = cast(PlatformRole, rule.role)
            platform = role if platform is None else max(platform, role, key=_PLATFORM_RANK.index)
        else:
            member = cast(MemberRole, rule.role)
            projects[rule.project] = max(
                projects.get(rule.project, member), member, key=_RANK.index
            )

    return Grants(platform, projects)


def verified_email(claims: Mapping[str, Any]) -> str:
    """E-mail address that the provider has verified; "" if there is none."""
    email = claims.get("email")
    is_verified = claims.get("email_verified") is True
    return email if is_verified and isinstance(email, str) and email.count("@") == 1 else ""
