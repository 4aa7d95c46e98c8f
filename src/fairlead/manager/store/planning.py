"""What the planner is given, and what becomes of its plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from fairlead.common import api
from fairlead.common.clock import Clock
from fairlead.common.reasons import REASONS
from fairlead.manager.lifecycle import TAKE_ORDERS_S
from fairlead.manager.scheduling import Hold, Place, Policy, Snapshot, explain
from fairlead.manager.store import rows
from fairlead.manager.store.bell import Bell
from fairlead.manager.store.coalesce import Coalescer
from fairlead.manager.store.db import Database
from fairlead.manager.store.queries import SQL

log = structlog.get_logger("fairlead.store.planning")


@dataclass(frozen=True, slots=True)
class _Placing:
    place: Place
    term: int


class Planning:
    """Part of ``Store``."""

    def __init__(self, db: Database, bell: Bell, clock: Clock) -> None:
        self._db, self._bell, self._clock = db, bell, clock
        self._place_line = db.line()
        self._places: Coalescer[_Placing, bool] = Coalescer("place", self._write_places)

    async def groups_with_pending(self) -> list[tuple[str, Policy]]:
        found = await self._db.fetch(SQL["groups_pending"])
        return [(row["name"], _policy(api.GroupOptions(**row["options"]))) for row in found]

    async def snapshot(self, group: str) -> Snapshot:
        """A resource group now. Agents and sessions are read one after the other: the commit checks again."""
        agents = await self._db.fetch(SQL["agent_states"], group)
        waiting = await self._db.fetch(SQL["pending_rows"], group)
        return Snapshot(group, rows.agent_states(agents), tuple(rows.pending(row) for row in waiting))

    async def place_all(self, places: Sequence[Place], term: int) -> int:
        """Commit placements under the leader's term; returns how many held. A stale one changes nothing."""
        answers = await self._places.submit_all([_Placing(place, term) for place in places])
        for place, answer in zip(places, answers, strict=True):
            if isinstance(
                answer, BaseException
            ):  # refused by a constraint: that session waits for the next pass
                log.warning(
                    "placement refused", session=place.session_id, agent=place.agent_id, error=str(answer)
                )
        done = sum(answer is True for answer in answers)
        if done:
            self._bell.ring_orders({place.agent_id for place in places})
        return done

    async def _write_places(self, items: Sequence[_Placing]) -> Sequence[bool]:
        places = [i.place for i in items]
        takes = [(p.kernel_id, t) for p in places for t in p.takes]
        found = await self._place_line.fetch(
            SQL["session_place"],
            max(i.term for i in items),
            [p.session_id for p in places],
            [p.revision for p in places],
            [p.kernel_id for p in places],
            [p.agent_id for p in places],
            [TAKE_ORDERS_S for _ in places],
            [kernel_id for kernel_id, _ in takes],
            [t.slot for _, t in takes],
            [t.device_id for _, t in takes],
            [t.amount for _, t in takes],
        )
        done = {row["id"] for row in found}
        return [p.session_id in done for p in places]

    async def note_holds(self, snapshot: Snapshot, holds: Sequence[Hold]) -> None:
        """Keep why each session waits, where it says something new."""
        if not holds:
            return
        waiting = {p.session_id: p for p in snapshot.pending}
        at = self._clock.now()
        notes = [
            api.Hold(
                reason=h.reason,
                text=f"waits behind session {h.behind}" if not h.attempted else REASONS[h.reason].text,
                refusals=[explain(r) for r in h.refusals],
                attempts=waiting[h.session_id].retries + h.capacity,
                at=at,
            ).model_dump(mode="json")
            for h in holds
        ]
        await self._place_line.fetch(
            SQL["holds_note"],
            [h.session_id for h in holds],
            [waiting[h.session_id].revision for h in holds],
            notes,
            [int(h.capacity) for h in holds],
        )


def _policy(options: api.GroupOptions) -> Policy:
    return Policy(options.hol, options.num_retries_to_skip, options.agent_selection)  # type: ignore[arg-type]
