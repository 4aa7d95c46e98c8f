"""Silence of agents: decides which become SUSPECT or LOST, from the leader's own observations.
Pure.

Only the leader's monotonic clock is used here. The time of an agent's last report is a marker:
while it stays the same, the agent is silent, and any other value is a sign of life. A jump of the
database's clock, a failover or a resumed virtual machine therefore never marks an agent. The
database's clock only selects the agents to examine, so that the cost is proportional to the number
of silent agents.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from moorage.common.model.ids import AgentId
from moorage.common.model.status import AgentStatus

MISSED_REPORTS = 3


@dataclass(frozen=True, slots=True)
class AgentContact:
    """An agent that is ALIVE or SUSPECT, as stored. ``report_interval_s``: the longest pause
    between two of its reports, 0 if unknown. ``grace_s``: the longest silence that the runtimes of
    its live kernels tolerate, 0 if they leave that to the manager. ``silent_s``: how long the agent
    has been silent by the database's clock, at most a third of its patience. ``group_agents``: for
    a SUSPECT agent, the number of agents in its group."""

    agent_id: AgentId
    group: str
    status: AgentStatus
    last_seen: datetime
    report_interval_s: float = 0.0
    grace_s: float = 0.0
    silent_s: float = 0.0
    group_agents: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """An agent to be marked if it has been silent since ``last_seen``. ``silent_s``: the silence
    that the database's clock must also show."""

    agent_id: AgentId
    last_seen: datetime
    new: AgentStatus
    silent_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SilenceVerdict:
    """Result of one examination. ``held``: groups in which too many agents are silent
    simultaneously, with the number of agents that would otherwise be LOST."""

    marks: tuple[Mark, ...]
    held: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SilenceLimits:
    """``lost_share``: the share of a group's agents that may be silent while silent agents still
    become LOST. One agent may always be silent. ``longest_pause_s``: a leader that has not looked
    for this long starts from scratch."""

    suspect_after_s: float
    lost_grace_s: float
    lost_share: float
    longest_pause_s: float


class SilenceWatch:
    """One leader's observations in one term. A new term needs a new watch."""

    def __init__(self, limits: SilenceLimits) -> None:
        self._limits = limits
        self._observed: dict[AgentId, tuple[AgentStatus, datetime, float]] = {}
        self._looked_at: float | None = None

    def look(
        self, contacts: Iterable[AgentContact], sent: float, received: float
    ) -> SilenceVerdict:
        """``contacts``: the agents that may have to be marked, as read between ``sent`` and
        ``received`` (monotonic seconds); all others have reported."""
        limits = self._limits
        before = self._observed
        begins = self._looked_at is None or sent - self._looked_at > limits.longest_pause_s
        if begins:
            before = {}

        self._observed = {}
        self._looked_at = received
        marks: list[Mark] = []
        overdue: defaultdict[str, list[Mark]] = defaultdict(list)
        suspects: Counter[str] = Counter()
        agents: Counter[str] = Counter()
        for contact in contacts:
            status, last_seen, since = before.get(contact.agent_id, (None, None, received))
            if (status, last_seen) != (contact.status, contact.last_seen):
                # A jump of the database's clock may account for up to a third of its silence, but
                # not for more.
                counts = contact.status is AgentStatus.ALIVE and not begins
                since = received - (contact.silent_s if counts else 0.0)

            self._observed[contact.agent_id] = contact.status, contact.last_seen, since
            patience_s = max(limits.suspect_after_s, MISSED_REPORTS * contact.report_interval_s)
            if contact.status is AgentStatus.ALIVE and sent - since >= patience_s:
                marks.append(Mark(contact.agent_id, contact.last_seen, AgentStatus.SUSPECT))
            elif contact.status is AgentStatus.SUSPECT:
                suspects[contact.group] += 1
                agents[contact.group] = max(agents[contact.group], contact.group_agents)
                grace_s = max(limits.lost_grace_s, contact.grace_s)
                if sent - since >= grace_s:
                    mark = Mark(
                        contact.agent_id, contact.last_seen, AgentStatus.LOST, patience_s + grace_s
                    )
                    overdue[contact.group].append(mark)

        held = {
            group: len(found)
            for group, found in overdue.items()
            if suspects[group] > max(1, int(limits.lost_share * agents[group]))
        }
        marks += [mark for group, found in overdue.items() if group not in held for mark in found]
        return SilenceVerdict(tuple(marks), held)
