"""How far one kernel has come and what is wished of it: what beginning, living and ending it share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from moorage.agent.kernel.context import Surroundings
from moorage.agent.kernel.outcome import Doom, Outcome, judge
from moorage.agent.kernel.reconcile import ENDED
from moorage.agent.link.report_timing import HOUSEKEEPING, Changed, may_wait
from moorage.agent.runtimes import RuntimeObservation
from moorage.agent.state.checkpoint import Entry
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState

log = structlog.get_logger("moorage.agent.kernel.task")


class Course:
    """``entry`` is what the ledger keeps of it, but for its newest while ``unwritten``; ``state`` is what is
    reported. ``wished`` is set whenever a wish has come (``withdrawn``, ``doom``) or something else is worth
    another look."""

    def __init__(self, entry: Entry, around: Surroundings, changed: Changed) -> None:
        self.entry, self.around, self._changed = entry, around, changed
        self.state = ObservedState.RUNNING if entry.ready else ObservedState.CREATING
        if entry.outcome is not None:
            self.state = entry.outcome.state
        self.doom = entry.doom
        self.doing = ""
        self.withdrawn = False
        self.unwritten = False
        self.wished = asyncio.Event()
        self.log = log.bind(kernel=entry.kernel_id, session=entry.spec.session_name)

    def withdraw(self) -> None:
        self.withdrawn = True
        self.wished.set()

    def end_for(self, reason: Reason, detail: str) -> None:
        """The first reason stands."""
        if self.state not in ENDED and not self.doom:
            self.doom = Doom(reason, detail)
            self.wished.set()

    def unwanted(self) -> bool:
        return self.withdrawn or self.doom is not None

    def verdict(self, seen: RuntimeObservation) -> Outcome:
        doom = self.doom or (Doom() if self.withdrawn else None)
        return judge(
            seen.state, seen.exit_code, oom=seen.oom, refused=seen.refused, detail=seen.detail, doom=doom
        )

    def tell(self, doing: str) -> None:
        """What is done just now, for users; until ``show`` says that it is in another state."""
        if doing != self.doing:
            self.doing = doing
            self._changed(HOUSEKEEPING)

    def show(self, state: ObservedState) -> None:
        if self.state is not state or state in ENDED:
            self.state, self.doing = state, ""
            self._changed(may_wait(state))

    async def remember(self) -> None:
        entry, self.unwritten = self.entry, False
        await self.persist(lambda: self.around.ledger.write(entry))

    async def persist(self, write: Callable[[], None]) -> None:
        """A ledger that cannot be written now (a full disk) costs memory over a restart, not the kernel."""
        try:
            await asyncio.to_thread(write)
        except OSError as error:
            self.log.error("cannot write the ledger", error=str(error))
