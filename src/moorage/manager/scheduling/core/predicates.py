"""What must be true of a session before any agent is asked. None of it blocks anybody or counts a retry."""

from __future__ import annotations

from moorage.common.model.reasons import Reason
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.quotas import Quotas
from moorage.manager.scheduling.core.results import HoldDetails, UnmetCondition, UnmetKind

# Of several, the reason that is told first: what no waiting mends, then what takes longest to know.
_REASONS = {
    UnmetKind.DEPENDENCY_FAILED: Reason.DEPENDENCY_FAILED,
    UnmetKind.SESSION_TYPE: Reason.NOT_ALLOWED,
    UnmetKind.EXCLUSIVE: Reason.NOT_ALLOWED,
    UnmetKind.DEPENDENCY: Reason.DEPENDENCY,
    UnmetKind.NOT_BEFORE: Reason.BACKOFF,
    UnmetKind.STARTS_AT: Reason.BEGIN_TIME,
    UnmetKind.QUOTA: Reason.QUOTA,
}


def check(item: Pending, policy: Policy, quotas: Quotas, now: int) -> tuple[UnmetCondition, ...]:
    """All that ``item`` does not meet at ``now`` (unix microseconds). A time that has come is met."""
    unmet = quotas.check(item)
    free = item.dependencies == "met" and item.not_before is None and item.starts_at is None
    if free and policy.session_types is None and not policy.exclusive:
        return unmet
    return (*_own(item, policy, now), *unmet)


def _own(item: Pending, policy: Policy, now: int) -> list[UnmetCondition]:
    found: list[UnmetCondition] = []
    if item.dependencies != "met":
        failed = item.dependencies == "failed"
        found.append(
            UnmetCondition(UnmetKind.DEPENDENCY_FAILED if failed else UnmetKind.DEPENDENCY, item.waits_on)
        )
    if item.not_before is not None and now < item.not_before:
        found.append(UnmetCondition(UnmetKind.NOT_BEFORE, until=item.not_before))
    if item.starts_at is not None and now < item.starts_at:
        found.append(UnmetCondition(UnmetKind.STARTS_AT, until=item.starts_at))
    allowed = policy.session_types
    if allowed is not None and item.session_type and item.session_type not in allowed:
        found.append(UnmetCondition(UnmetKind.SESSION_TYPE, tuple(sorted(allowed)), name=item.session_type))
    for families in policy.exclusive:
        asked = sorted(families & {family.partition(".")[0] for family in item.shape.families})
        if len(asked) > 1:
            found.append(UnmetCondition(UnmetKind.EXCLUSIVE, tuple(asked)))
    return found


def told(unmet: tuple[UnmetCondition, ...]) -> HoldDetails:
    """What one is told who does not meet these."""
    kinds = {one.kind for one in unmet}
    reason = next(reason for kind, reason in _REASONS.items() if kind in kinds)
    return reason, (), True, False, None, unmet
