"""Why a session waits, and where one would go: the planner asked on somebody's behalf. Nothing is written.

A question must not change what the scheduler's next pass knows. What that keeps of the agents is used where
it is fresh, with what has changed since; all else is read beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

from moorage.common.aio.clock import Clock
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.reasons import REASONS
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.common.views.pending import KernelPlaceView, PendingExplanation, PlanView, WhyView
from moorage.common.views.resources import DeviceView, SessionView
from moorage.manager.explain.pending import Look, look, waits_for_time, words
from moorage.manager.identity.keys import Owner
from moorage.manager.scheduling import Pending, Policy, Snapshot
from moorage.manager.selector_plugins import SelectorPlugins
from moorage.manager.store import cluster_rows, rows
from moorage.manager.store.database import Database
from moorage.manager.store.groups import Groups, policy_of
from moorage.manager.store.pending_cache import Waiting
from moorage.manager.store.queries import SQL
from moorage.manager.store.quotas import Quotas
from moorage.manager.store.scheduling import Planning
from moorage.manager.store.session_create import wrong_dependency
from moorage.manager.store.sessions import Sessions

# It comes last among those that ask for the same: what is only asked about takes nobody's turn.
_NEVER_FIRST = SessionId("ffffffff-ffff-ffff-ffff-ffffffffffff")


class Whys:
    """Part of ``Store``."""

    def __init__(
        self,
        db: Database,
        clock: Clock,
        sessions: Sessions,
        groups: Groups,
        quotas: Quotas,
        planning: Planning,
    ) -> None:
        self._db, self._clock = db, clock
        self._asked = Waiting(db, clock)  # not the scheduler's own, which keeps what it read
        self._of_sessions, self._of_groups, self._of_quotas = sessions, groups, quotas
        self._of_planning = planning
        self._why_selectors = SelectorPlugins()

    async def why(self, ref: str) -> WhyView:
        """Why it waits and until when; of one that does not wait, what it is. Raises ``NotFound``."""
        session = await self._of_sessions.get_session(ref)
        found = await self._why_outlook(session)
        if session.status is Status.PENDING:
            fenced = await self._fenced(session.resource_group, session.slots)
            found = found.model_copy(update={"fenced": fenced})
        return WhyView(
            session_id=session.id,
            name=session.name,
            status=session.status,
            waiting_since=session.status_since,
            resource_group=session.resource_group,
            **dict(found),
        )

    async def plan_session(self, spec: SessionSpec, *, owner: Owner) -> PlanView:
        """Where it would go if it were created now, or what is missing. Raises ``NotFound`` for its resource
        group, and for what it depends on as ``create_session`` does."""
        policy = policy_of((await self._of_groups.get_group(spec.resource_group)).options)
        now = self._why_now()
        item = await self._with_needs(_pending(spec, owner, now), spec, owner)
        snapshot = await self._why_snapshot(spec.resource_group, policy, item)
        starts = round(spec.starts_at.timestamp() * 1_000_000) if spec.starts_at else 0
        found = await self._why_look(snapshot, policy, now, item.session_id)
        told = words(found, await self._why_names(found.mentions()), now)
        if starts > now:
            told = waits_for_time(starts, now, "it was asked to start later")
        place = found.place if starts <= now else None
        if place is not None:
            told = told.model_copy(update={"text": told.text.removesuffix(": the next pass places it")})
        else:
            fenced = await self._fenced(spec.resource_group, spec.resources)
            told = told.model_copy(update={"fenced": fenced})
        kernels = place.kernels if place is not None else ()
        return PlanView(
            fits=place is not None,
            resource_group=spec.resource_group,
            places=[
                KernelPlaceView(
                    hostname=f"sub{n}" if n else "main1",
                    agent_id=kernel.agent_id,
                    devices=[
                        DeviceView(slot=take.slot, device_id=take.device_id, amount=take.amount)
                        for take in kernel.allocations
                    ],
                )
                for n, kernel in enumerate(kernels)
            ],
            **dict(told),
        )

    async def _fenced(self, group: str, slots: Collection[str]) -> list[str]:
        """``slots``: names of those that it asks for."""
        families = sorted({slot.partition(".")[0] for slot in slots if "." in slot})
        found = await self._db.fetch(SQL["devices_fenced"], group, families) if families else []
        return [
            f"{row['device_id']} of {row['agent_id']}: {row['unhealthy_reason'] or 'it errs'}"
            for row in found
        ]

    async def _why_outlook(self, session: SessionView) -> PendingExplanation:
        if session.status is not Status.PENDING:
            reason = REASONS[session.reason].text
            why = "; ".join(part for part in (reason, session.detail) if part)
            return PendingExplanation(
                text=f"it does not wait: it is {session.status}" + (f" ({why})" if why else "")
            )
        policy = policy_of((await self._of_groups.get_group(session.resource_group)).options)
        now, session_id = self._why_now(), SessionId(session.id)
        snapshot = await self._why_snapshot(session.resource_group, policy)
        if all(item.session_id != session_id for item in snapshot.pending):
            until = session.not_before or session.spec.starts_at
            if until is None or session.hold is None:
                return PendingExplanation(text="it has just been moved: ask again")
            return waits_for_time(round(until.timestamp() * 1_000_000), now, session.hold.text)
        found = await self._why_look(snapshot, policy, now, session_id)
        return words(found, await self._why_names(found.mentions()), now)

    async def _why_look(self, snapshot: Snapshot, policy: Policy, now: int, session_id: SessionId) -> Look:
        """In a thread: ten thousand that wait are planned for longer than others should wait."""
        selectors = self._why_selectors.load(policy.custom)
        return await asyncio.to_thread(look, snapshot, policy, now, session_id, selectors)

    async def _why_snapshot(self, group: str, policy: Policy, *more: Pending) -> Snapshot:
        waiting = await self._asked.of(group)
        agents = await self._of_planning.glance(group)
        if agents is None:
            there = await self._db.fetch(SQL["agent_states"], group)
            found = await self._db.fetch(SQL["agent_running"], [row["id"] for row in there])
            agents = rows.agent_states(there, rows.running(found))
        turns = policy.agent_selection == "round-robin"
        cursors = await self._of_groups.cursors(group) if turns else {}
        quotas, usage = await self._of_quotas.shares(group, policy)
        return Snapshot(group, agents, (*waiting, *more), quotas, cursors, usage)

    async def _with_needs(self, item: Pending, spec: SessionSpec, owner: Owner) -> Pending:
        """With what it depends on, as far as that has not ended as it needs."""
        if not spec.depends_on:
            return item
        refs = [needed.session for needed in spec.depends_on]
        ids, conditions = [rows.as_id(ref) for ref in refs], [needed.on for needed in spec.depends_on]
        waits: dict[str, list[SessionId]] = {"failed": [], "unmet": [], "met": []}
        found = await self._db.fetch(SQL["dependency_states"], refs, ids, conditions, owner.project)
        for at, row in enumerate(found):
            if row["why"] is not None:
                raise wrong_dependency(spec, owner, at, row["why"], row["project"])
            waits[row["state"]].append(SessionId(row["id"]))
        if waits["failed"]:
            return replace(item, dependencies="failed", waits_on=tuple(waits["failed"]))
        return replace(
            item, dependencies="unmet" if waits["unmet"] else "met", waits_on=tuple(waits["unmet"])
        )

    async def _why_names(self, ids: Collection[SessionId]) -> dict[SessionId, str]:
        asked = sorted(ids - {_NEVER_FIRST} if isinstance(ids, set) else ids)
        found = await self._db.fetch(SQL["session_names"], asked) if asked else []
        return {SessionId(row["id"]): row["name"] for row in found}

    def _why_now(self) -> int:
        return round(self._clock.now().timestamp() * 1_000_000)


def _pending(spec: SessionSpec, owner: Owner, now: int) -> Pending:
    limits = [limit for limit in (spec.timeout_s, spec.max_lifetime_s) if limit is not None]
    return Pending(
        session_id=_NEVER_FIRST,
        kernel_id=KernelId(_NEVER_FIRST),
        revision=1,
        priority=spec.priority,
        created=now,
        retries=0,
        runtime=spec.runtime,
        engine=spec.engine,
        slots=cluster_rows.main_slots(spec),
        sub_kernels=cluster_rows.unmade(spec),
        mode=spec.cluster.mode if spec.cluster else "single-node",
        user=owner.user,
        project=owner.project,
        session_type=spec.type,
        arch=spec.arch or "",
        labels=spec.labels,
        designated=frozenset(AgentId(agent) for agent in spec.agents),
        time_limit=round((min(limits) + spec.stop_grace_s) * 1_000_000) if limits else None,
    )
