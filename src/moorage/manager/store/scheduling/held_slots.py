"""Held slots: the amounts of sessions that count against quotas and fair shares, summed up and kept
between passes.

Without it, a pass with quotas or ``drf`` would sum up all running sessions. Sums are never too low:
during a leader's term, only this process places sessions, and it adds what it places; after a new
term or a lost connection, everything is summed up again. Sessions that no longer hold anything are
announced by ``Notifier.notify_quotas``, and only those are read again. Because a notification may
be lost, all sessions are also summed up again, a chunk per second; the new sums then replace the
old ones.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from moorage.common.aio.clock import Clock
from moorage.common.model.ids import SessionId
from moorage.manager.lifecycle.sweep import Sweep
from moorage.manager.scheduling.core.shape import SYSTEM_SESSIONS, user_of_qos
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row
from moorage.manager.store.sessions.lifecycle import NEWEST, SweepCursor

# Number of live sessions that the sweep reads each second. In a new term, and whenever
# notifications may be missing, it reads all of them at once.
SWEEP_S = 1.0
SWEPT = 500
# Seconds for which a placement with an unknown outcome may still be committed.
UNKNOWN_S = 60.0
# If another manager leads, ids accumulate here unread. Beyond this number, the sums are discarded
# instead.
MAX_STALE = 20_000
SESSIONS = ""  # the slot that counts sessions


class HeldSums:
    """Slots that sessions hold, by user, project, group, QoS and user of a QoS (the scopes of
    quotas), across all groups and in each group."""

    def __init__(self) -> None:
        self._sums: dict[str | None, dict[tuple[str, str], dict[str, int]]] = {}

    def add(
        self,
        group: str,
        owner: str,
        project: str,
        slots: Mapping[str, int],
        *,
        qos: str = "",
        times: int = 1,
    ) -> None:
        counted = [("user", owner), ("project", project), ("group", group)]
        if qos:
            counted += [("qos", qos), ("qos-user", user_of_qos(qos, owner))]

        for within in (None, group):
            scopes = self._sums.setdefault(within, {})
            for scope in counted:
                held = scopes.setdefault(scope, {})
                for slot, amount in slots.items():
                    held[slot] = held.get(slot, 0) + times * amount
                    if not held[slot]:
                        del held[slot]

                if not held:
                    del scopes[scope]

    def of(self, scope: str, name: str, within: str | None = None) -> dict[str, int]:
        """Slots of a subject. ``within``: a group; None means all groups."""
        return dict(self._sums.get(within, {}).get((scope, name), {}))

    def elsewhere(self, scope: str, name: str, group: str) -> dict[str, int]:
        """Slots in all groups except this one."""
        return dict(Counter(self.of(scope, name)) - Counter(self.of(scope, name, group)))

    def by_owner(self, scope: str, group: str) -> dict[str, dict[str, int]]:
        """Slots in a group by user or project, without the counts of sessions."""
        held = self._sums.get(group, {}).items()
        by_owner = {name: dict(slots) for (kind, name), slots in held if kind == scope}
        for slots in by_owner.values():
            slots.pop(SESSIONS, None)
            slots.pop(SYSTEM_SESSIONS, None)
        return {name: slots for name, slots in by_owner.items() if slots}


class _Holder(NamedTuple):
    """``slots``: the stored JSON object. ``system``: whether it belongs to a system session."""

    group: str
    owner: str
    project: str
    slots: str
    system: bool
    qos: str


@lru_cache(maxsize=65_536)
def _counted(slots: str, system: bool) -> Mapping[str, int]:
    return {SYSTEM_SESSIONS: 1} if system else {SESSIONS: 1, **json.loads(slots)}


@dataclass(slots=True)
class _Held:
    """Sessions that hold slots, and their sums. Equal holders share one object."""

    holders: dict[SessionId, _Holder] = field(default_factory=dict)
    sums: HeldSums = field(default_factory=HeldSums)
    interned: dict[_Holder, _Holder] = field(default_factory=dict)

    def put(self, found: Mapping[SessionId, _Holder | None]) -> None:
        """Set the current slots of these sessions; None means that a session holds nothing."""
        changes: Counter[_Holder] = Counter()
        for session_id, holder in found.items():
            if (before := self.holders.pop(session_id, None)) is not None:
                changes[before] -= 1
            if holder is not None:
                self.holders[session_id] = self.interned.setdefault(holder, holder)
                changes[holder] += 1

        for holder, times in changes.items():
            if times:
                self.sums.add(
                    holder.group,
                    holder.owner,
                    project=holder.project,
                    slots=_counted(holder.slots, holder.system),
                    qos=holder.qos,
                    times=times,
                )


class HeldSlots:
    """``sums`` is only for the leader's scheduler, whose calls and placements never overlap."""

    def __init__(self, db: Database, notifier: Notifier, clock: Clock) -> None:
        self._connection = db.dedicated_connection()
        self._clock = clock

        # The leader's term in which counting began, and the connection's loss count then; None if
        # counting has not begun.
        self._counted_in: tuple[int, int] | None = None
        # Current slots, and those that replace them once the sweep has read all sessions.
        self._held = _Held()
        self._next = _Held()
        self._sweep: Sweep[SweepCursor] = Sweep()
        self._swept_at = 0.0

        # Sessions to read again: once, or until a time (monotonic seconds).
        self._stale: dict[SessionId, float] = {}
        notifier.on_quotas(self._invalidate)

    def _invalidate(self, sessions: Collection[SessionId] | None) -> None:
        """Record that these sessions may no longer hold anything; None means that this applies to
        any session."""
        if sessions is None:
            self._sweep.restart()
        elif self._counted_in is not None:
            for session_id in sessions:
                self._stale.setdefault(session_id, 0.0)
            if len(self._stale) > MAX_STALE:
                self._discard()

    def _discard(self) -> None:
        now = self._clock.monotonic()
        self._held = _Held()
        self._next = _Held()
        self._counted_in = None
        self._stale = {
            session_id: until for session_id, until in self._stale.items() if until > now
        }
        self._sweep.restart()

    def note_placements(self, sessions: Iterable[SessionId], *, finished: bool) -> None:
        """Record that these sessions are being placed or, with ``finished``, that they have been
        placed or refused."""
        now = self._clock.monotonic()
        for session_id in sessions:
            if not finished:
                self._stale[session_id] = now + UNKNOWN_S
            elif self._counted_in is not None:
                self._stale[session_id] = now
            else:
                self._stale.pop(session_id, None)

    async def sums(self) -> HeldSums:
        """Current sums. Raises ``StoreUnavailable``."""
        now = self._clock.monotonic()
        await self._read_stale(now)

        if self._sweep.urgent or now - self._swept_at >= SWEEP_S:
            self._swept_at = now
            await self._read_chunk()
            while self._sweep.urgent:
                await self._read_chunk()

        if self._counted_in is None or self._counted_in[1] != self._connection.losses:
            return await self.sums()  # another server may now answer, without the latest commits

        return self._held.sums

    async def _read_stale(self, now: float) -> None:
        stale = self._stale
        self._stale = {}
        remaining = list(stale)

        try:
            await self._read(remaining[:SWEPT])  # needed anyway, for the term
            while remaining := remaining[SWEPT:]:
                await self._read(remaining[:SWEPT])
        finally:
            again = {
                *remaining,
                *(session_id for session_id, until in stale.items() if until > now),
            }
            self._stale |= {
                session_id: max(stale[session_id], self._stale.get(session_id, 0.0))
                for session_id in again
            }

    async def _read(self, sessions: Sequence[SessionId]) -> None:
        rows = await self._connection.fetch(SQL["sessions_held"], sessions)
        counted_in = rows[0]["term"], self._connection.losses
        if counted_in != self._counted_in or counted_in[0] is None:
            self._discard()
            self._counted_in = counted_in
        found = {**dict.fromkeys(sessions), **_holders(rows)}
        self._held.put(found)
        self._next.put(found)

    async def _read_chunk(self) -> None:
        """Read the sweep's next chunk."""
        cursor = self._sweep.begin()
        if cursor is None:
            self._next = _Held()

        rows = await self._connection.fetch(SQL["sessions_held_sweep"], *(cursor or NEWEST), SWEPT)
        self._next.put(_holders(rows))
        last = (rows[-1]["created_at"], SessionId(rows[-1]["id"])) if len(rows) == SWEPT else None
        self._sweep.advance(last)
        if last is None and not self._sweep.urgent:  # no restart has happened in between
            self._held = self._next


def _holders(rows: Iterable[Row]) -> dict[SessionId, _Holder]:
    return {
        SessionId(row["id"]): _Holder(
            row["resource_group"],
            row["owner"],
            row["project"],
            row["slots"],
            system=row["system"],
            qos=row["qos"] or "",
        )
        for row in rows
        if row["slots"] is not None
    }
