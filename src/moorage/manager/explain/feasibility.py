"""Feasibility check: whether any agent could ever run a session, and whether its quotas could ever
admit it, answered when the session is created.

It asks the planner about this session alone, so its answer is the answer that the session would
get. Answers are cached for a short time, because most sessions that arrive in large numbers make
the same request.
"""

from __future__ import annotations

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import StoreUnavailable
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.manager.explain.candidate import candidate
from moorage.manager.identity.keys import Owner
from moorage.manager.scheduling import AgentState, Policy, Snapshot, plan, refusal_message
from moorage.manager.scheduling.core.messages import unmet_message
from moorage.manager.scheduling.core.quotas import Quotas
from moorage.manager.store.scheduling.repository import SchedulingStore
from moorage.manager.store.sessions import spec_kernels

CACHED_S = 5.0
QUOTAS_CACHED_S = 1.0
CACHED_ANSWERS = 256


class FeasibilityCheck:
    def __init__(self, scheduling: SchedulingStore, clock: Clock) -> None:
        self._scheduling = scheduling
        self._clock = clock
        # by group, with the time at which it was read
        self._agents: dict[str, tuple[float, tuple[AgentState, ...]]] = {}
        # by group, with the time at which they were read
        self._quotas: dict[str, tuple[float, Quotas]] = {}
        # with the time at which it expires
        self._answers: dict[tuple[object, ...], tuple[float, list[str]]] = {}

    async def refusals(self, spec: SessionSpec) -> list[str]:
        """Explain why no agent of the group could run the session even when empty, one line per
        kind of refusal. Empty if an agent could run it, if the group has no agents yet, or if the
        database is unavailable."""
        key = _cache_key(spec)
        now = self._clock.monotonic()
        expires_at, lines = self._answers.get(key, (0.0, []))
        if now < expires_at:
            return lines

        try:
            lines = await self._ask(spec, now)
        except StoreUnavailable:
            return []

        if len(self._answers) >= CACHED_ANSWERS:
            self._answers.clear()

        self._answers[key] = now + CACHED_S, lines
        return lines

    async def exceeded_quotas(self, spec: SessionSpec, owner: Owner) -> list[str]:
        """Explain which quotas of ``owner`` and of the group the session exceeds even if nothing
        else is counted, one line for each limit. Empty if the database is unavailable. A quota that
        changed within the last ``QUOTAS_CACHED_S`` may be missed."""
        group = spec.resource_group
        now = self._clock.monotonic()
        read_at, quotas = self._quotas.get(group, (-QUOTAS_CACHED_S, Quotas(group, ())))
        if now - read_at >= QUOTAS_CACHED_S:
            try:
                quotas = Quotas(group, await self._scheduling.unused_quotas(group))
            except StoreUnavailable:
                return []

            self._quotas[group] = now, quotas

        return [unmet_message(unmet) for unmet in quotas.check(candidate(spec, owner))]

    async def _ask(self, spec: SessionSpec, now: float) -> list[str]:
        """Ask the planner. The agents' capacity rarely changes, so only a refusal justifies reading
        the agents again."""
        read_at, agents = self._agents.get(spec.resource_group, (0.0, ()))
        lines = _refusals(spec, agents)
        if agents and (not lines or now - read_at < CACHED_S):
            return lines
        agents = await self._scheduling.agent_states(spec.resource_group)
        if agents:
            self._agents[spec.resource_group] = now, agents
        return _refusals(spec, agents)


def _cache_key(spec: SessionSpec) -> tuple[object, ...]:
    """Everything that the answer depends on. ``None`` separates variable-length fields."""
    cluster: tuple[object, ...] = ()
    if spec.cluster:
        cluster = spec.cluster.size, spec.cluster.mode, *spec_kernels.sub_slots(spec).items()

    constraints = (
        spec.runtime,
        spec.engine,
        spec.arch,
        *sorted(spec.labels.items()),
        *sorted(spec.agents),
    )
    slots = spec_kernels.main_slots(spec).items()
    return spec.resource_group, *slots, None, *constraints, None, *cluster


def _refusals(spec: SessionSpec, agents: tuple[AgentState, ...]) -> list[str]:
    decided = plan(Snapshot(spec.resource_group, agents, (candidate(spec),)), Policy())
    infeasible = [hold for hold in decided.holds if hold.reason is Reason.INFEASIBLE]
    return [refusal_message(refusal) for hold in infeasible for refusal in hold.refusals]
