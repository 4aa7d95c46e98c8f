"""Stop controller: completes stops of many sessions that a request has begun but not finished, and
stops pipelines whose time is up."""

from __future__ import annotations

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.manager.loops.leader import Leader
from moorage.manager.store import Store
from moorage.manager.store.sessions.stops import SessionStop
from moorage.manager.termination import ANSWER_S, SessionTerminator, StopState

INTERVAL_S = 2.0
# A run works on one stop for this long, then continues with the next one.
EACH_S = 5.0


class StopController:
    """The request stops what it can before it answers. This loop finds the rest in the rows, no
    matter what happened to the request and its manager."""

    def __init__(
        self, store: Store, leader: Leader, terminator: SessionTerminator, clock: Clock
    ) -> None:
        self._store = store
        self._leader = leader
        self._terminator = terminator
        self._clock = clock
        self.loop = Loop("stops", self.run_once, interval_s=INTERVAL_S, clock=clock)

    async def run_once(self) -> None:
        await self._stop_overdue()
        for stop in await self._open():
            if (term := self._leader.term) is None:
                return
            state = await self._terminator.carry_out(stop, self._clock, for_s=EACH_S, term=term)
            if state is StopState.GOES_ON:
                self.loop.nudge()

    async def _stop_overdue(self) -> None:
        """Request the stops of pipelines whose time is up. The time is that by which the leader
        acts on the deadlines of sessions, which a jump of the database's clock does not bring
        forward."""
        stops = self._store.session_stops
        while (term := self._leader.term) is not None:
            if not await stops.ask_for_overdue(self._leader.deadlines.now(), term):
                return

    async def _open(self) -> list[SessionStop]:
        return [] if self._leader.term is None else await self._store.session_stops.open(ANSWER_S)
