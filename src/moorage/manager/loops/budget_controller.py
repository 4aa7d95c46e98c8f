"""Budget controller: sums up what counts against budgets, warns at their limits, and stops sessions of those
that say so."""

from __future__ import annotations

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.reasons import Reason
from moorage.manager.identity.scope import Scope
from moorage.manager.loops.leader import Leader
from moorage.manager.store import Store
from moorage.manager.termination import SessionTerminator

log = structlog.get_logger("moorage.budgets")
INTERVAL_S = 10.0


class BudgetController:
    def __init__(self, store: Store, leader: Leader, terminator: SessionTerminator, clock: Clock) -> None:
        self._store, self._leader, self._terminator = store, leader, terminator
        self.loop = Loop("budgets", self.run_once, interval_s=INTERVAL_S, clock=clock)

    async def run_once(self) -> None:
        term = self._leader.term
        if term is None:
            return
        for reached in await self._store.budgets.measure(term):
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
                for session in await self._store.budgets.sessions(budget.scope, budget.name):
                    await self._terminator.stop(
                        Scope.system("budgets"),
                        session,
                        reason=Reason.BUDGET_EXHAUSTED,
                        detail=detail,
                        term=term,
                    )
