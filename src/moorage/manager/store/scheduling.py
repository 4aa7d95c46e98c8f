"""What the planner is given, and what becomes of its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.model.ids import SessionId
from moorage.common.model.reasons import REASONS
from moorage.common.views import resources
from moorage.manager.lifecycle.deadlines import APPLY_ORDERS_S
from moorage.manager.scheduling import AgentState, Hold, Pending, Place, Policy, Snapshot, refusal_message
from moorage.manager.scheduling.core.messages import unmet_message
from moorage.manager.scheduling.core.model import Quota
from moorage.manager.scheduling.core.results import UnmetCondition, UnmetKind
from moorage.manager.store.agent_cache import Rooms
from moorage.manager.store.batch_writer import Coalescer
from moorage.manager.store.database import Database
from moorage.manager.store.groups import Groups
from moorage.manager.store.notifier import Notifier
from moorage.manager.store.pending_cache import Waiting
from moorage.manager.store.queries import SQL
from moorage.manager.store.quotas import Quotas

log = structlog.get_logger("moorage.store.planning")


_DEFAULT = Policy()


@dataclass(frozen=True, slots=True)
class _Placing:
    place: Place
    term: int


# How often words that differ only in their numbers are written again.
RENOTE_S = 2.0
# Of a hundred thousand that wait, so many are told why at each pass, the others at the next: to write takes
# longer than to plan.
MOST_NOTES = 4_000


@dataclass(frozen=True, slots=True)
class _Noted:
    """What was written of a session that waits, at ``at`` (monotonic seconds)."""

    revision: int
    hold: Hold
    retries: int
    at: float

    def says_it(self, new: _Noted, count_to: int) -> bool:
        """Whether ``new`` would tell nobody anything."""
        old_hold, hold = self.hold, new.hold
        if self.revision != new.revision or (old_hold.reason, old_hold.attempted) != (
            hold.reason,
            hold.attempted,
        ):
            return False
        if hold.capacity and new.retries < count_to:
            return False
        same = (old_hold.refusals, old_hold.blocked_by, old_hold.unmet) == (
            hold.refusals,
            hold.blocked_by,
            hold.unmet,
        )
        return same or new.at - self.at < RENOTE_S


class Planning:
    """Part of ``Store``."""

    def __init__(
        self, db: Database, notifier: Notifier, clock: Clock, groups: Groups, quotas: Quotas
    ) -> None:
        self._db, self._notifier, self._clock, self._groups = db, notifier, clock, groups
        self._quotas = quotas
        self._place_line = db.line()
        self._rooms, self._waiting = Rooms(db, notifier, clock), Waiting(db, clock, notifier)
        # What was noted last of each session that waits, by group: (revision, reason, refusals, retries).
        self._noted: dict[str, dict[SessionId, _Noted]] = {}
        self._unsaid: dict[str, list[Hold]] = {}
        self._places: Coalescer[_Placing, bool] = Coalescer("place", self._write_places, clock)

    async def snapshot(
        self, group: str, policy: Policy = _DEFAULT, *, who_runs: bool | None = None
    ) -> Snapshot:
        """A resource group now. Agents and sessions are read one after the other: the commit checks again.

        ``policy``: what the group's own does not ask about is not read. ``who_runs``: also what runs, and
        until when; None: if somebody waited for room at the last pass, or a replica is spread or packed.
        """
        waiting = await self._waiting.of(group)
        if who_runs is None:
            replicas = policy.replicas != "none" and any(p.endpoint_id is not None for p in waiting)
            noted = self._noted.get(group, {})
            who_runs = replicas or any(one.hold.capacity for one in noted.values())
        agents = await self._rooms.of(group, view=who_runs)
        turns = policy.agent_selection == "round-robin"
        cursors = await self._groups.cursors(group) if turns else {}
        quotas: tuple[Quota, ...] = ()
        usage: Mapping[str, Mapping[str, int]] | None = None
        if self._groups.limited or policy.strategy == "drf":
            quotas, usage = await self._quotas.shares(group, policy)
        return Snapshot(group, agents, tuple(waiting), quotas, cursors, usage)

    async def glance(self, group: str) -> tuple[AgentState, ...] | None:
        """See ``Rooms.glance``."""
        return await self._rooms.glance(group)

    def knows_who_runs(self, group: str) -> bool:
        """Whether snapshots of this group tell what runs. Whom room is kept for depends on it: a plan in
        which somebody waits for room is made with it."""
        return self._rooms.in_view(group)

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
        placed = {p.session_id for p, answer in zip(places, answers, strict=True) if answer is True}
        self._waiting.gone(placed)
        self._waiting.changed({place.session_id for place in places} - placed)
        done = len(placed)
        # Also where it was refused: then what we knew of the agent was out of date.
        agents = {kernel.agent_id for place in places for kernel in place.kernels}
        self._notifier.notify_capacity(agents, more=False)
        if done:
            self._notifier.notify_orders(agents)
        return done

    async def _write_places(self, items: Sequence[_Placing]) -> Sequence[bool]:
        places = [i.place for i in items]
        takes = [(k.kernel_id, t) for p in places for k in p.kernels for t in k.allocations]
        subs = [(p.session_id, k) for p in places for k in p.sub_kernels]
        found = await self._place_line.fetch(
            SQL["session_place"],
            max(i.term for i in items),
            [p.session_id for p in places],
            [p.revision for p in places],
            [p.kernel_id for p in places],
            [p.agent_id for p in places],
            [APPLY_ORDERS_S for _ in places],
            [kernel_id for kernel_id, _ in takes],
            [t.slot for _, t in takes],
            [t.device_id for _, t in takes],
            [t.amount for _, t in takes],
            [session_id for session_id, _ in subs],
            [k.kernel_id for _, k in subs],
            [k.agent_id for _, k in subs],
            [", ".join(dict.fromkeys(k.agent_id for k in p.kernels)) for p in places],
        )
        done = {row["id"] for row in found}
        return [p.session_id in done for p in places]

    async def note_holds(
        self,
        snapshot: Snapshot,
        holds: Sequence[Hold],
        count_to: int = 1000,
        bypasses: Mapping[SessionId, int] | None = None,
    ) -> None:
        """Keep why each session waits, where it says something new; retries are counted up to ``count_to``.
        ``bypasses``: how often those that were overtaken now have been. Who waits and is not in ``holds``
        waits as was noted before.

        Words that only count differently (another number of agents is full) are written every ``RENOTE_S``.
        """
        overtaken = bypasses or {}
        waiting = {p.session_id: p for p in snapshot.pending}
        known = self._noted.get(snapshot.group, {})
        now = self._clock.monotonic()
        kept = {session_id: old for session_id, old in known.items() if session_id in waiting}
        fresh: list[Hold] = []
        unsaid = self._unsaid.pop(snapshot.group, ())
        said = {hold.session_id for hold in holds} if unsaid else set()
        late = [h for h in unsaid if h.session_id in waiting and h.session_id not in said]
        later: list[Hold] = []
        for hold in chain(late, holds):
            if len(fresh) >= MOST_NOTES and hold.session_id not in overtaken:
                later.append(hold)
                continue
            retries = waiting[hold.session_id].retries
            noted = _Noted(waiting[hold.session_id].revision, hold, retries, now)
            old = known.get(hold.session_id)
            if old is not None and hold.session_id not in overtaken and old.says_it(noted, count_to):
                continue
            kept[hold.session_id] = noted
            fresh.append(hold)
        if later:
            self._unsaid[snapshot.group] = later
        if fresh:
            await self._write_holds(waiting, fresh, overtaken)
            # How often each has been tried and overtaken was counted with it.
            self._waiting.changed({h.session_id for h in fresh if h.capacity or h.session_id in overtaken})
        self._noted[snapshot.group] = kept

    async def _write_holds(
        self, waiting: Mapping[SessionId, Pending], holds: Sequence[Hold], overtaken: Mapping[SessionId, int]
    ) -> None:
        at, names = self._clock.now(), await self._names(holds)
        notes = [
            resources.Hold(
                reason=h.reason,
                text=_text(h),
                refusals=[
                    *(unmet_message(_named(u, names)) for u in h.unmet),
                    *map(refusal_message, h.refusals),
                ],
                attempts=waiting[h.session_id].retries + h.capacity,
                at=at,
            ).model_dump_json()
            for h in holds
        ]
        await self._place_line.fetch(
            SQL["holds_note"],
            [h.session_id for h in holds],
            [waiting[h.session_id].revision for h in holds],
            notes,
            [int(h.capacity) for h in holds],
            [overtaken.get(h.session_id, 0) for h in holds],
        )

    async def _names(self, holds: Sequence[Hold]) -> Mapping[str, str]:
        """Of the sessions that these wait for, as people know them."""
        ids = {
            name
            for hold in holds
            for unmet in hold.unmet
            if unmet.kind in _ABOUT_SESSIONS
            for name in unmet.names
        }
        found = await self._db.fetch(SQL["session_names"], sorted(ids)) if ids else []
        return {row["id"]: f"{row['name']} ({row['id']}, {row['status']})" for row in found}


_ABOUT_SESSIONS = (UnmetKind.DEPENDENCY, UnmetKind.DEPENDENCY_FAILED)


def _named(unmet: UnmetCondition, names: Mapping[str, str]) -> UnmetCondition:
    return replace(unmet, names=tuple(names.get(name, name) for name in unmet.names))


def _text(hold: Hold) -> str:
    if not hold.attempted:
        return f"waits behind session {hold.blocked_by}"
    kept = f": {hold.blocked_by}" if hold.blocked_by is not None else ""
    return REASONS[hold.reason].text + kept
