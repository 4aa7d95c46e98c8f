"""Budget controller: aggregates usage per budget, warns at limits, and stops the sessions of
exhausted budgets that require it.

The replica controller stops their endpoints."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.reasons import Reason
from moorage.manager.identity.scope import Scope
from moorage.manager.loops.leader import Leader
from moorage.manager.store import Store, Topic
from moorage.manager.termination import SessionTerminator

log = structlog.get_logger("moorage.budgets")
# Interval at which all budgets are aggregated; shorter if one will be exhausted earlier, but
# aggregating never takes more than this share of the time.
INTERVAL_S = 10.0
LEAST_S = 1.0
SHARE = 0.1


class BudgetController:
    def __init__(
        self, store: Store, leader: Leader, terminator: SessionTerminator, clock: Clock
    ) -> None:
        self._store = store
        self._leader = leader
        self._terminator = terminator
        self._clock = clock
        self.loop = Loop("budgets", self.run_once, interval_s=INTERVAL_S, clock=clock)
        store.notifier.on(Topic.BUDGETS, self.loop.nudge)

    async def run_once(self) -> None:
        term = self._leader.term
        if term is None:
            return

        began_at = self._clock.monotonic()
        found = await self._store.budgets.measure(term, INTERVAL_S)
        took_s = self._clock.monotonic() - began_at
        self.loop.repeat_after(next_in_s((reached.left_s for reached in found), took_s))
        for reached in found:
            budget = reached.budget
            if budget.level != reached.old:
                log.warning(
                    "budget changed its level",
                    scope=budget.scope,
                    name=budget.name,
                    unit=budget.unit,
                    period=budget.period,
                    level=budget.level,
                    used=budget.used,
                )

            if budget.level == "hard" and budget.policy == "stop":
                detail = f"the budget of {budget.scope} {budget.name} is exhausted"
                sessions = await self._store.budgets.sessions(
                    budget.scope, budget.name, budget.unit
                )
                await self._terminator.stop_all(
                    Scope.system("budgets").actor,
                    sessions,
                    reason=Reason.BUDGET_EXHAUSTED,
                    detail=detail,
                    term=term,
                )


def next_in_s(left_s: Iterable[float | None], took_s: float) -> float:
    """Seconds until the next aggregation, which is due when the first budget will be exhausted at
    its current rate. ``took_s``: duration of this aggregation. Pure."""
    soonest_s = min((seconds for seconds in left_s if seconds is not None), default=INTERVAL_S)
    return min(max(soonest_s, LEAST_S, took_s / SHARE), INTERVAL_S)
