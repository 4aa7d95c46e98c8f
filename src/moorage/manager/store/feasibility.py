"""Whether anything could ever hold what is asked for: told when it is asked, not after an hour of waiting.

It is the planner that is asked, about this one session alone, so that its answer is the one that the session
would get. An answer holds for a while: sessions that come in numbers mostly ask for the same.
"""

from __future__ import annotations

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import StoreUnavailable
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.manager.scheduling import AgentState, Pending, Policy, Snapshot, plan, refusal_message
from moorage.manager.store import cluster_rows, rows
from moorage.manager.store.database import Database
from moorage.manager.store.queries import SQL

HOLDS_S = 5.0
KEPT = 256


class Fits:
    """Part of ``Store``."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._agents: dict[str, tuple[float, tuple[AgentState, ...]]] = {}
        self._answers: dict[tuple[object, ...], tuple[float, list[str]]] = {}

    async def never_fits(self, spec: SessionSpec) -> list[str]:
        """Why no agent of its group could hold it, even empty, one line per kind of refusal. Nothing: one
        could, or there is none yet, or nobody can tell now."""
        slots = cluster_rows.main_slots(spec)
        gang = (
            (spec.cluster.size, spec.cluster.mode, *cluster_rows.sub_slots(spec).items())
            if spec.cluster
            else ()
        )
        wanted = spec.runtime, spec.engine, spec.arch, *sorted(spec.labels.items()), *sorted(spec.agents)
        asked = spec.resource_group, *slots.items(), None, *wanted, None, *gang
        now = self._clock.monotonic()
        until, lines = self._answers.get(asked, (0.0, []))
        if now < until:
            return lines
        try:
            lines = await self._ask(spec, slots, now)
        except StoreUnavailable:
            return []
        if len(self._answers) >= KEPT:
            self._answers.clear()
        self._answers[asked] = now + HOLDS_S, lines
        return lines

    async def _ask(self, spec: SessionSpec, slots: dict[str, int], now: float) -> list[str]:
        """What agents have changes rarely: only a refusal is worth a new look at them."""
        read_at, agents = self._agents.get(spec.resource_group, (0.0, ()))
        lines = _lines(spec, slots, agents)
        if agents and (not lines or now - read_at < HOLDS_S):
            return lines
        agents = rows.agent_states(await self._db.fetch(SQL["agent_states"], spec.resource_group))
        if agents:
            self._agents[spec.resource_group] = now, agents
        return _lines(spec, slots, agents)


def _lines(spec: SessionSpec, slots: dict[str, int], agents: tuple[AgentState, ...]) -> list[str]:
    one = Pending(
        SessionId(""),
        KernelId(""),
        revision=0,
        priority=spec.priority,
        created=0,
        retries=0,
        runtime=spec.runtime,
        engine=spec.engine,
        slots=slots,
        sub_kernels=cluster_rows.unmade(spec),
        mode=spec.cluster.mode if spec.cluster else "single-node",
        arch=spec.arch or "",
        labels=spec.labels,
        designated=frozenset(AgentId(agent) for agent in spec.agents),
    )
    made = plan(Snapshot(spec.resource_group, agents, (one,)), Policy())
    return [
        refusal_message(r) for hold in made.holds if hold.reason is Reason.INFEASIBLE for r in hold.refusals
    ]
