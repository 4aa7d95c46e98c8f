"""Scheduling in Postgres: the snapshots that the planner reads, and the placements and holds of its
plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import StoreUnavailable
from moorage.common.model.ids import SessionId
from moorage.manager.lifecycle.deadlines import APPLY_ORDERS_S
from moorage.manager.scheduling.core.model import AgentState, Pending, Quota, Snapshot
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.results import HeldSession, Place
from moorage.manager.store.database.batch_writer import BatchWriter
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.unreadable import UnreadableRows
from moorage.manager.store.groups.repository import GroupStore
from moorage.manager.store.scheduling import planner_rows
from moorage.manager.store.scheduling.agent_cache import AgentCache
from moorage.manager.store.scheduling.held_slots import HeldSlots
from moorage.manager.store.scheduling.hold_writer import HoldWriter
from moorage.manager.store.scheduling.pending_cache import PendingCache
from moorage.manager.store.scheduling.quotas import QuotaStore
from moorage.manager.store.sessions.repository import SessionStore

log = structlog.get_logger("moorage.store.scheduling")

_DEFAULT_POLICY = Policy()


@dataclass(frozen=True, slots=True)
class _Placement:
    place: Place
    term: int


class SchedulingStore:
    """Caches agents, pending sessions and the sums of the other sessions between passes, because a
    pass usually places only a few of many sessions."""

    def __init__(
        self,
        db: Database,
        notifier: Notifier,
        clock: Clock,
        sessions: SessionStore,
        *,
        groups: GroupStore,
        quotas: QuotaStore,
        unreadable: UnreadableRows,
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._groups = groups
        self._quotas = quotas
        self._unreadable = unreadable
        self._connection = db.dedicated_connection()
        self._agents = AgentCache(db, notifier, clock, unreadable)
        self._pending = PendingCache(db, clock, unreadable, notifier)
        self._uncached_pending = PendingCache(db, clock, unreadable)
        self._held = HeldSlots(db, notifier, clock)
        self._users: dict[str, set[tuple[str, str]]] = {}
        self._holds = HoldWriter(self._connection, clock, sessions, self._pending)
        self._placements: BatchWriter[_Placement, bool] = BatchWriter(
            "place", self._write_places, clock
        )

    async def snapshot(
        self,
        group: str,
        policy: Policy = _DEFAULT_POLICY,
        *,
        with_running: bool | None = None,
        now: datetime | None = None,
    ) -> Snapshot:
        """A resource group's current state, for a scheduling pass.

        Sessions, agents and quotas are read one after the other, so they may be inconsistent;
        committing a placement checks again. Data that ``policy`` does not use is not read.
        ``with_running``: include running kernels and when they end; None includes them only if a
        session was waiting for capacity in the last pass, or the policy spreads or packs replicas.
        ``now``: determines the month for node-hours; None means the database's time.
        """
        pending, changes = await self._pending.of(group)
        if with_running is None:
            has_replicas = policy.replicas != "none" and self._pending.has_replicas(group)
            with_running = has_replicas or self._holds.any_waits_for_capacity(group)

        agents, agent_changes = await self._agents.of(group, with_running=with_running)
        cursors = (
            await self._groups.cursors(group) if policy.agent_selection == "round-robin" else {}
        )
        quotas: tuple[Quota, ...] = ()
        usage: Mapping[str, Mapping[str, int]] | None = None
        if self._groups.has_quotas or policy.strategy == "drf":
            quotas, usage = await self._quotas.shares(
                group,
                policy,
                self._held.sums,
                of_site=await self._groups.site(group) is not None,
                now=now,
                users=lambda: self._users_of(group, pending),
            )

        return Snapshot(
            group,
            agents,
            pending=pending,
            quotas=quotas,
            cursors=cursors,
            usage=usage,
            changes=changes,
            agent_changes=agent_changes,
        )

    def _users_of(self, group: str, pending: Sequence[Pending]) -> set[tuple[str, str]]:
        """The users to whom the limits of the group apply, each with its QoS. Nobody is removed,
        because a planner must plan from scratch if a quota is removed."""
        users = self._users.setdefault(group, set())
        users.update([(item.user, item.qos) for item in pending])
        return users

    async def peek(self, group: str, policy: Policy, *candidates: Pending) -> Snapshot:
        """A snapshot with running kernels, for a query, with ``candidates`` as if they were
        pending. The caches of the scheduling passes stay as they are."""
        pending, _ = await self._uncached_pending.of(group)
        agents = await self._agents.peek(group)
        if agents is None:
            # Read in this order, as in ``AgentCache``.
            ids = [row["id"] for row in await self._db.fetch(SQL["agent_ids"], group)]
            kernel_rows = await self._db.fetch(SQL["agent_running_kernels"], ids, [group])
            agent_rows = await self._db.fetch(SQL["agent_states"], group)
            running = planner_rows.running_kernels(kernel_rows, self._unreadable)
            agents = planner_rows.agent_states(agent_rows, self._unreadable, running)

        cursors = (
            await self._groups.cursors(group) if policy.agent_selection == "round-robin" else {}
        )
        of_site = await self._groups.site(group) is not None
        everyone = (*pending, *candidates)
        quotas, usage = await self._quotas.shares(
            group,
            policy,
            of_site=of_site,
            users=lambda: {(item.user, item.qos) for item in everyone},
        )
        return Snapshot(
            group,
            agents,
            pending=(*pending, *candidates),
            quotas=quotas,
            cursors=cursors,
            usage=usage,
        )

    async def unused_quotas(self, group: str) -> tuple[Quota, ...]:
        """The quotas that apply in the group, as if nothing were used."""
        of_site = await self._groups.site(group) is not None
        return await self._quotas.unused(group, of_site=of_site)

    def invalidate_caches(self) -> None:
        """Make the next snapshots reread all agents and pending sessions."""
        self._agents.invalidate(None)
        self._pending.invalidate(None)

    async def agent_states(self, group: str) -> tuple[AgentState, ...]:
        """The group's agents now, without running kernels."""
        return planner_rows.agent_states(
            await self._db.fetch(SQL["agent_states"], group), self._unreadable
        )

    def includes_running(self, group: str) -> bool:
        """Whether snapshots of the group include running kernels. Reservations need them, so a plan
        in which a session waits for capacity must be made with them."""
        return self._agents.includes_running(group)

    async def place(self, places: Sequence[Place], term: int) -> int:
        """Commit placements under the leader's term. A stale placement changes nothing. Returns how
        many were applied."""
        self._held.note_placements([place.session_id for place in places], finished=False)
        results = await self._placements.submit_all([_Placement(place, term) for place in places])
        finished = [
            place.session_id
            for place, result in zip(places, results, strict=True)
            if not isinstance(result, StoreUnavailable)
        ]
        self._held.note_placements(finished, finished=True)

        for place, result in zip(places, results, strict=True):
            # a constraint was violated: the next pass tries again
            if isinstance(result, BaseException):
                log.warning(
                    "placement rejected",
                    session_id=place.session_id,
                    agent=place.agent_id,
                    error=str(result),
                )

        placed = {p.session_id for p, result in zip(places, results, strict=True) if result is True}
        self._pending.remove(placed)
        self._pending.put_back({place.session_id for place in places} - placed)

        # This includes the agents of rejected placements, whose cached state was out of date.
        agents = {kernel.agent_id for place in places for kernel in place.kernels}
        self._notifier.notify_capacity(agents, freed=False)
        if placed:
            self._notifier.notify_sessions(placed)
            self._notifier.notify_orders(
                (k.agent_id, k.kernel_id) for p in places for k in p.kernels
            )

        return len(placed)

    async def _write_places(self, items: Sequence[_Placement]) -> Sequence[bool]:
        places = [i.place for i in items]
        allocations = [(k.kernel_id, a) for p in places for k in p.kernels for a in k.allocations]
        subs = [(p.session_id, k) for p in places for k in p.sub_kernels]
        rows = await self._connection.fetch(
            SQL["session_place"],
            max(i.term for i in items),
            [p.session_id for p in places],
            [p.revision for p in places],
            [p.kernel_id for p in places],
            [p.agent_id for p in places],
            [APPLY_ORDERS_S for _ in places],
            [kernel_id for kernel_id, _ in allocations],
            [a.slot for _, a in allocations],
            [a.device_id for _, a in allocations],
            [a.amount for _, a in allocations],
            [session_id for session_id, _ in subs],
            [k.kernel_id for _, k in subs],
            [k.agent_id for _, k in subs],
            [", ".join(dict.fromkeys(k.agent_id for k in p.kernels)) for p in places],
        )
        applied = {row["id"] for row in rows}

        return [p.session_id in applied for p in places]

    async def record_holds(
        self,
        snapshot: Snapshot,
        holds: Sequence[HeldSession],
        max_retries: int = 1000,
        bypasses: Mapping[SessionId, int] | None = None,
        *,
        term: int | None = None,
    ) -> None:
        """See ``HoldWriter.record``."""
        await self._holds.record(
            snapshot, holds, max_retries=max_retries, bypasses=bypasses, term=term
        )

    def forget_holds(self) -> None:
        """Forget recorded holds, because another manager may have recorded some. All holds of the
        next pass are then written."""
        self._holds.forget()
