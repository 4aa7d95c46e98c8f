"""Hold writer: records why each pending session was not placed, and writes only what is new to a
reader."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from moorage.common.aio.clock import Clock
from moorage.common.model.ids import SessionId
from moorage.common.model.reasons import REASONS
from moorage.common.views import resources
from moorage.manager.identity.scope import Scope
from moorage.manager.scheduling.core.messages import refusal_message, unmet_message
from moorage.manager.scheduling.core.model import Pending, Snapshot
from moorage.manager.scheduling.core.results import HeldSession, UnmetCondition, UnmetKind
from moorage.manager.store.database.connections import DedicatedConnection
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.scheduling.pending_cache import PendingCache
from moorage.manager.store.sessions.repository import SessionStore

# A hold that differs from the recorded one only in its counts is written again after this many
# seconds.
REWRITE_S = 2.0
# Maximum number of holds written per pass; the others are written with the next pass. With a
# hundred thousand pending sessions, writing holds takes longer than planning.
MAX_HOLDS_PER_PASS = 4_000
# Number of holds per statement: encoding all of them together would block the event loop for 50 ms.
_TOGETHER = 500
_ABOUT_SESSIONS = (UnmetKind.DEPENDENCY, UnmetKind.DEPENDENCY_FAILED)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The hold that was written for a session at ``at`` (monotonic seconds)."""

    revision: int
    hold: HeldSession
    retries: int
    at: float

    def covers(self, new: _Recorded, max_retries: int) -> bool:
        """Whether ``new`` contains nothing new for a reader."""
        old_hold = self.hold
        hold = new.hold
        if (self.revision, old_hold.reason, old_hold.attempted) != (
            new.revision,
            hold.reason,
            hold.attempted,
        ):
            return False

        if hold.capacity and new.retries < max_retries:
            return False

        is_same = (old_hold.refusals, old_hold.blocked_by, old_hold.unmet) == (
            hold.refusals,
            hold.blocked_by,
            hold.unmet,
        )
        return is_same or new.at - self.at < REWRITE_S


@dataclass(slots=True)
class _Group:
    """A group's pending sessions at its last pass (``number``: the number of their changes), the
    recorded holds, and those among them that are for lack of capacity."""

    pending: dict[SessionId, Pending] = field(default_factory=dict)
    recorded: dict[SessionId, _Recorded] = field(default_factory=dict)
    capacity: set[SessionId] = field(default_factory=set)
    number: int | None = None

    def update(self, snapshot: Snapshot) -> None:
        changes = snapshot.changes
        number = self.number
        self.number = None if changes is None else changes.number
        if changes is not None and changes.number - 1 == number:
            self.pending.update({item.session_id: item for item in changes.changed})
            gone: Collection[SessionId] = changes.gone
        else:
            self.pending = {item.session_id: item for item in snapshot.pending}
            gone = self.recorded.keys() - self.pending.keys()

        for session_id in gone:
            self.pending.pop(session_id, None)
            self.recorded.pop(session_id, None)
            self.capacity.discard(session_id)

    def put(self, recorded: Mapping[SessionId, _Recorded]) -> None:
        self.recorded.update(recorded)
        for session_id, record in recorded.items():
            (self.capacity.add if record.hold.capacity else self.capacity.discard)(session_id)


class HoldWriter:
    def __init__(
        self,
        connection: DedicatedConnection,
        clock: Clock,
        sessions: SessionStore,
        pending: PendingCache,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._sessions = sessions
        self._pending = pending
        self._groups: defaultdict[str, _Group] = defaultdict(_Group)
        self._deferred: dict[
            str, list[HeldSession]
        ] = {}  # by group: the holds beyond MAX_HOLDS_PER_PASS

    def forget(self) -> None:
        """Forget which holds were recorded, so that all are treated as unrecorded."""
        self._groups.clear()
        self._deferred.clear()

    def any_waits_for_capacity(self, group: str) -> bool:
        return bool(self._groups[group].capacity)

    async def record(
        self,
        snapshot: Snapshot,
        holds: Sequence[HeldSession],
        max_retries: int = 1000,
        bypasses: Mapping[SessionId, int] | None = None,
        *,
        term: int | None = None,
    ) -> None:
        """Record ``holds``; pending sessions without one keep the last recorded hold.

        ``max_retries``: retries are counted up to this number. ``bypasses``: the new count of each
        session that was bypassed in this pass. ``term``: the leader's term; a former leader's holds
        are not recorded.
        """
        bypasses = bypasses or {}
        state = self._groups[snapshot.group]
        state.update(snapshot)
        pending = state.pending
        known = state.recorded
        now = self._clock.monotonic()
        recorded: dict[SessionId, _Recorded] = {}
        to_write: list[HeldSession] = []
        deferred: list[HeldSession] = []
        for hold in self._with_deferred(snapshot.group, holds, pending):
            if len(to_write) >= MAX_HOLDS_PER_PASS and hold.session_id not in bypasses:
                deferred.append(hold)
                continue

            item = pending[hold.session_id]
            new = _Recorded(item.revision, hold, item.retries, now)
            old = known.get(hold.session_id)
            if old is not None and hold.session_id not in bypasses and old.covers(new, max_retries):
                continue

            recorded[hold.session_id] = new
            to_write.append(hold)

        if deferred:
            self._deferred[snapshot.group] = deferred

        if to_write:
            for start in range(0, len(to_write), _TOGETHER):
                await self._write(pending, to_write[start : start + _TOGETHER], bypasses, term)

            # The same statements counted retries and bypasses, and the cached sessions do not
            # reflect these yet.
            self._pending.invalidate(
                {
                    hold.session_id
                    for hold in to_write
                    if hold.capacity or hold.session_id in bypasses
                }
            )

        state.put(recorded)

    def _with_deferred(
        self, group: str, holds: Sequence[HeldSession], pending: Mapping[SessionId, Pending]
    ) -> Iterator[HeldSession]:
        """Holds deferred by the previous pass, unless replaced or obsolete, followed by
        ``holds``."""
        deferred = self._deferred.pop(group, ())
        replaced = {hold.session_id for hold in holds} if deferred else set()
        kept = [h for h in deferred if h.session_id in pending and h.session_id not in replaced]
        return chain(kept, holds)

    async def _write(
        self,
        pending: Mapping[SessionId, Pending],
        holds: Sequence[HeldSession],
        bypasses: Mapping[SessionId, int],
        term: int | None,
    ) -> None:
        now = self._clock.now()
        names = await self._names(holds)
        views = [
            resources.Hold(
                reason=hold.reason,
                text=_text(hold),
                refusals=[
                    *(unmet_message(_with_names(unmet, names)) for unmet in hold.unmet),
                    *map(refusal_message, hold.refusals),
                ],
                attempts=pending[hold.session_id].retries + hold.capacity,
                at=now,
            ).model_dump_json()
            for hold in holds
        ]

        await self._connection.fetch(
            SQL["holds_record"],
            [hold.session_id for hold in holds],
            [pending[hold.session_id].revision for hold in holds],
            views,
            [int(hold.capacity) for hold in holds],
            [bypasses.get(hold.session_id, 0) for hold in holds],
            term,
        )

    async def _names(self, holds: Sequence[HeldSession]) -> Mapping[str, str]:
        """Descriptions of the sessions that these holds depend on."""
        ids = {
            SessionId(name)
            for hold in holds
            for unmet in hold.unmet
            if unmet.kind in _ABOUT_SESSIONS
            for name in unmet.names
        }
        found = await self._sessions.names(Scope.system("scheduler"), ids)
        return {session_id: f"{session_id} ({status})" for session_id, (_, status) in found.items()}


def _with_names(unmet: UnmetCondition, names: Mapping[str, str]) -> UnmetCondition:
    return replace(unmet, names=tuple(names.get(name, name) for name in unmet.names))


def _text(hold: HeldSession) -> str:
    if not hold.attempted:
        return f"waits behind session {hold.blocked_by}"
    holder = f": {hold.blocked_by}" if hold.blocked_by is not None else ""
    return REASONS[hold.reason].text + holder
