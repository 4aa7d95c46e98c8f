"""Start conditions: what a session must meet before any agent is considered.

A session that fails one blocks no other session, and the refusal does not count as a retry.
"""

from __future__ import annotations

from moorage.common.model.reasons import Reason
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.quotas import Quotas
from moorage.manager.scheduling.core.results import HoldDetails, UnmetCondition, UnmetKind

# The hold shows the first reason that applies: permanent ones first, then those with an unknown
# end.
_REASONS = {
    UnmetKind.DEPENDENCY_FAILED: Reason.DEPENDENCY_FAILED,
    UnmetKind.SESSION_TYPE: Reason.NOT_ALLOWED,
    UnmetKind.EXCLUSIVE: Reason.NOT_ALLOWED,
    UnmetKind.EARLIER_ATTEMPT: Reason.EARLIER_ATTEMPT,
    UnmetKind.DEPENDENCY: Reason.DEPENDENCY,
    UnmetKind.NOT_BEFORE: Reason.BACKOFF,
    UnmetKind.STARTS_AT: Reason.BEGIN_TIME,
    UnmetKind.QUOTA: Reason.QUOTA,
    UnmetKind.NODE_HOURS: Reason.NODE_HOURS,
}


def unmet_conditions(
    item: Pending, policy: Policy, quotas: Quotas, now: int
) -> tuple[UnmetCondition, ...]:
    """All conditions that ``item`` does not meet at ``now`` (Unix microseconds, inclusive)."""
    over_quota = quotas.check(item)
    ready = item.dependencies == "met" and item.not_before is None and item.starts_at is None
    if ready and not item.earlier_agents and policy.session_types is None and not policy.exclusive:
        return over_quota
    return (*_without_quotas(item, policy, now), *over_quota)


def _without_quotas(item: Pending, policy: Policy, now: int) -> list[UnmetCondition]:
    unmet: list[UnmetCondition] = []
    if item.dependencies != "met":
        failed = item.dependencies == "failed"
        kind = UnmetKind.DEPENDENCY_FAILED if failed else UnmetKind.DEPENDENCY
        unmet.append(UnmetCondition(kind, item.waits_on))

    if item.earlier_agents:
        unmet.append(UnmetCondition(UnmetKind.EARLIER_ATTEMPT, item.earlier_agents))
    if item.not_before is not None and now < item.not_before:
        unmet.append(UnmetCondition(UnmetKind.NOT_BEFORE, until=item.not_before))
    if item.starts_at is not None and now < item.starts_at:
        unmet.append(UnmetCondition(UnmetKind.STARTS_AT, until=item.starts_at))

    allowed = policy.session_types
    if allowed is not None and item.session_type and item.session_type not in allowed:
        names = tuple(sorted(allowed))
        unmet.append(UnmetCondition(UnmetKind.SESSION_TYPE, names, name=item.session_type))

    requested = {family.partition(".")[0] for family in item.shape.families}
    for families in policy.exclusive:
        conflicting = sorted(families & requested)
        if len(conflicting) > 1:
            unmet.append(UnmetCondition(UnmetKind.EXCLUSIVE, tuple(conflicting)))

    return unmet


def hold_for_unmet(unmet: tuple[UnmetCondition, ...]) -> HoldDetails:
    kinds = {condition.kind for condition in unmet}
    reason = next(reason for kind, reason in _REASONS.items() if kind in kinds)
    return HoldDetails(reason, unmet=unmet)
