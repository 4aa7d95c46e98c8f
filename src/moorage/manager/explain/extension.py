"""Extensions of running sessions: the reservation that a longer time limit delays. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from moorage.common.model.ids import SessionId
from moorage.manager.scheduling import AgentState, Policy, Snapshot, plan
from moorage.manager.scheduling.placement.selector_plugin import Selector


@dataclass(frozen=True, slots=True)
class DelayedStart:
    """A pending session with a reservation, and the time (Unix microseconds) for which the
    scheduler has promised its start."""

    session_id: SessionId
    promised: int


def find_delayed(
    snapshot: Snapshot,
    policy: Policy,
    now: int,
    running: SessionId,
    *,
    extension: int,
    selectors: Mapping[str, Selector] | None = None,
) -> DelayedStart | None:
    """The first reservation that starts later, or no longer at a known time, if ``running`` ends
    ``extension`` microseconds later than it must now."""
    promised = _starts(snapshot, policy, now, selectors)
    if not promised:
        return None

    agents = tuple(_extended(agent, running, extension) for agent in snapshot.agents)
    then = _starts(replace(snapshot, agents=agents), policy, now, selectors)
    delayed = [
        DelayedStart(session_id, at)
        for session_id, at in promised.items()
        if then.get(session_id, at + 1) > at
    ]
    return min(delayed, key=lambda start: (start.promised, start.session_id), default=None)


def _starts(
    snapshot: Snapshot, policy: Policy, now: int, selectors: Mapping[str, Selector] | None
) -> dict[SessionId, int]:
    made = plan(snapshot, policy, now, selectors)
    return {
        reservation.session_id: reservation.starts_at
        for reservation in made.reservations
        if reservation.starts_at is not None
    }


def _extended(agent: AgentState, running: SessionId, extension: int) -> AgentState:
    if all(kernel.session_id != running for kernel in agent.running):
        return agent

    kernels = tuple(
        replace(kernel, ends_at=kernel.ends_at + extension)
        if kernel.session_id == running and kernel.ends_at is not None
        else kernel
        for kernel in agent.running
    )
    return replace(agent, running=kernels)
