"""Checks an installation for keys, templates and queued sessions whose priority is above the
ceilings of their resource groups. Pure.

``facts`` are read by ``manager/store/platform/sql/cluster_facts.sql``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from moorage.common.model.group_options import PriorityCeilings
from moorage.common.model.roles import Role
from moorage.manager.identity.limits import priority_ceiling
from moorage.manager.identity.roles import effective_role, role_of_user
from moorage.server.doctor.checks import CheckResult

_NAMED = 5


def check_priorities(facts: Mapping[str, Any]) -> list[CheckResult]:
    """One result for each kind that has findings, or a single ok."""
    ceilings = {ceiling["group"]: _ceilings(ceiling["ceilings"]) for ceiling in facts["ceilings"]}
    found = [*_keys(facts["kept_keys"], ceilings), *_templates(facts["templates"], ceilings)]
    found += _queued(facts["queued"], ceilings)
    detail = "no key, template or queued session is above the ceiling of its role"
    return found or [CheckResult("ok", "priorities", detail)]


def _ceilings(stored: Mapping[str, Any] | None) -> PriorityCeilings:
    try:
        return PriorityCeilings.model_validate(stored or {})
    except ValidationError:  # a role from a newer release
        return PriorityCeilings()


def _keys(
    keys: Sequence[Mapping[str, Any]], ceilings: Mapping[str, PriorityCeilings]
) -> Iterator[CheckResult]:
    """Keys that may request more than their role allows in any of the resource groups."""
    above = []
    for key in keys:
        role = effective_role(Role(key["role"]), key["membership"], key["platform"])
        if role is None:
            continue

        ceiling = min((priority_ceiling(role, limits) for limits in ceilings.values()), default=100)
        if key["priority"] > ceiling:
            above.append(f"{key['name']} ({key['priority']})")

    if above:
        next_step = (
            "they predate the ceilings; lower them with `moorage keys set NAME --max-priority 10`"
        )
        yield _warning("keys", above, next_step)


def _templates(
    templates: Sequence[Mapping[str, Any]], ceilings: Mapping[str, PriorityCeilings]
) -> Iterator[CheckResult]:
    """Templates that give members a higher priority than they may request themselves."""
    above = [
        f"{template['name']} ({template['priority']}, "
        f"{'project ' + template['project'] if template['project'] else 'for all'})"
        for template in templates
        if template["priority"] > ceilings.get(template["group"], PriorityCeilings()).member
    ]
    if above:
        next_step = (
            "members may start them unchanged; lower `spec.priority` if this is not intended"
        )
        yield _warning("templates", above, next_step)


def _queued(
    queued: Sequence[Mapping[str, Any]], ceilings: Mapping[str, PriorityCeilings]
) -> Iterator[CheckResult]:
    """Sessions by owner, resource group and priority."""
    above = []
    for row in queued:
        role = role_of_user(row["membership"], row["platform"]) or Role.MEMBER
        group = row["group"]
        if row["priority"] > priority_ceiling(role, ceilings.get(group, PriorityCeilings())):
            owner = f"{row['user']} of {row['project']}"
            above.append(f"{row['sessions']} of {owner} in {group} ({row['priority']})")

    if above:
        next_step = (
            "they keep their places in the queue; `moorage ps` lists them, `moorage stop` stops one"
        )
        yield _warning("queued sessions", above, next_step)


def _warning(kind: str, above: Sequence[str], next_step: str) -> CheckResult:
    more = f" and {len(above) - _NAMED} more" if len(above) > _NAMED else ""
    detail = f"{kind} above the ceiling of their role: {', '.join(above[:_NAMED])}{more}"
    return CheckResult("warn", "priorities", detail, next_step)
