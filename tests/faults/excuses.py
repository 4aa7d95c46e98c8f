"""Excuses: which session endings an injected fault explains. Pure.

A lost agent or kernel is excused only by a fault that hit its agent at that time. Faults of
managers, Postgres and proxies excuse nothing: a manager that was away, or whose database was away,
must not declare healthy agents lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from moorage.common.model.reasons import Reason

from .cluster import AGENTS, LOST_GRACE_S, SITE_AGENT, SUSPECT_AFTER_S
from .schedule import Fault
from .site import SITE

# How long an agent that runs again may take until its reports are applied.
RETURN_S = 20.0


@dataclass(frozen=True)
class InjectedFault:
    """``ended``: when it was undone, or None if it has not been."""

    fault: Fault
    began: datetime
    ended: datetime | None = None

    def hits(self, agent: str) -> bool:
        reached = {"network": AGENTS[-1], SITE: SITE_AGENT}
        return agent == reached.get(self.fault.component, self.fault.component)

    def overlaps(self, since: datetime, until: datetime) -> bool:
        return self.began <= until and (self.ended is None or self.ended >= since)


@dataclass(frozen=True)
class SessionEnd:
    """A session that ended for a reason that claims a fault. ``agents``: the agents of those
    kernels in its last attempt that give this reason, otherwise of all its kernels; empty if it was
    not placed."""

    reason: Reason
    agents: frozenset[str]
    placed_at: datetime
    ended_at: datetime


def met_fault(
    began: datetime, ended: datetime, way: Collection[str], injected: Iterable[InjectedFault]
) -> bool:
    """Whether a fault hit a component on the ``way`` during a request or just before it."""
    on_it = [each for each in injected if each.fault.component in way]
    return any(each.overlaps(began - timedelta(seconds=RETURN_S), ended) for each in on_it)


def is_excused(end: SessionEnd, injected: Iterable[InjectedFault]) -> bool:
    """Whether a fault of one of its agents explains the end.

    An agent is lost some time after it fell silent. All other endings concern the time since
    placement.
    """
    since = end.placed_at
    if end.reason is Reason.AGENT_LOST:
        since = end.ended_at - timedelta(seconds=SUSPECT_AFTER_S + LOST_GRACE_S + RETURN_S)

    concerned = [each for each in injected if any(each.hits(agent) for agent in end.agents)]
    return any(each.overlaps(since, end.ended_at) for each in concerned)
