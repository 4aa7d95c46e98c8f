"""Explanation service: why a session is pending, and where a new session would be placed.

It reads the store and asks the planner. It uses the scheduler's caches where they are current, and
never changes them. It writes only the estimates that it returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Set
from dataclasses import replace
from datetime import UTC, datetime

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import Conflict
from moorage.common.model.ids import SessionId
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import TERMINAL, Status
from moorage.common.views.pending import KernelPlaceView, PendingExplanation, PlanView, WhyView
from moorage.common.views.resources import DeviceView, SessionView
from moorage.manager.explain.candidate import CANDIDATE_ID, candidate
from moorage.manager.explain.extension import find_delayed
from moorage.manager.explain.feasibility import FeasibilityCheck
from moorage.manager.explain.pending import (
    PlacementProbe,
    corrected,
    explain_probe,
    probe_placement,
    waits_for_time,
)
from moorage.manager.explain.site_queue import (
    explain_late,
    explain_queued,
    explain_short,
    history_text,
)
from moorage.manager.explain.unreachable import explain_unreachable
from moorage.manager.identity.scope import Scope
from moorage.manager.scheduling import Pending, Place, Policy, Snapshot
from moorage.manager.selector_plugins import SelectorPlugins
from moorage.manager.store import Store
from moorage.manager.store.groups.repository import policy_of
from moorage.manager.store.scheduling.expected_starts import ExpectedStart

# Replaces the name of a session that the store no longer has, or that the caller may not see.
_GONE = "{}"
_OTHER = "one of another project"


class ExplanationService:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._feasibility = FeasibilityCheck(store.scheduling, clock)
        self._selectors = SelectorPlugins()

    async def infeasible(self, spec: SessionSpec) -> list[str]:
        """See ``FeasibilityCheck.refusals``."""
        return await self._feasibility.refusals(spec)

    async def exceeded_quotas(self, scope: Scope, spec: SessionSpec) -> list[str]:
        """See ``FeasibilityCheck.exceeded_quotas``."""
        return await self._feasibility.exceeded_quotas(spec, scope.owner)

    async def why(self, scope: Scope, ref: str) -> WhyView:
        """Explain why a session is pending and until when, or return its status if it is not.

        An expected start is stored for comparison with the actual one. Raises ``NotFound``."""
        session = await self._store.sessions.get(scope, ref)
        outlook = await self._outlook(scope, session)
        if session.status is Status.PENDING:
            outlook = await self._of_agents(outlook, session.resource_group, session.slots)

        outlook = await self._of_site(scope, session, outlook)
        if outlook.expected_start is not None and outlook.expected_kind is not None:
            # Stored without the correction, which is computed from the stored estimates.
            told = ExpectedStart(
                SessionId(session.id), outlook.expected_start, outlook.expected_kind
            )
            await self._store.expected_starts.record(told)

        outlook = await self._calibrated(outlook, session.resource_group)
        return WhyView(
            session_id=session.id,
            name=session.name,
            status=session.status,
            since=session.status_since,
            resource_group=session.resource_group,
            **dict(outlook),
        )

    async def plan_session(self, scope: Scope, spec: SessionSpec) -> PlanView:
        """Where a session would be placed now, or what prevents it.

        Raises ``NotFound`` for an unknown group, and for the same dependencies as
        ``SessionStore.create``."""
        policy = policy_of((await self._store.groups.get(spec.resource_group)).options)
        now = self._now()
        pending = await self._with_dependencies(scope, candidate(spec, scope.owner, now), spec)
        snapshot = await self._store.scheduling.peek(spec.resource_group, policy, pending)
        begin_time = round(spec.starts_at.timestamp() * 1_000_000) if spec.starts_at else 0
        probe = await self._probe(snapshot, policy, now, pending.session_id)
        outlook = explain_probe(probe, await self._names(scope, probe.mentions()), now)
        if begin_time > now:
            outlook = waits_for_time(begin_time, now, "its start time is in the future")

        place = probe.place if begin_time <= now else None
        if place is not None:
            text = outlook.text.removesuffix(": the next pass places it")
            outlook = outlook.model_copy(update={"text": text})
        else:
            outlook = await self._of_agents(outlook, spec.resource_group, spec.resources)

        outlook = await self._calibrated(outlook, spec.resource_group)
        return PlanView(
            fits=place is not None,
            resource_group=spec.resource_group,
            places=_kernel_places(place) if place is not None else [],
            **dict(outlook),
        )

    async def delays(
        self, scope: Scope, session: SessionView, extension_s: float
    ) -> Conflict | None:
        """The error if a later end of a running session would delay a pending one for which the
        scheduler has reserved resources until then."""
        policy = policy_of((await self._store.groups.get(session.resource_group)).options)
        snapshot = await self._store.scheduling.peek(session.resource_group, policy)
        found = await asyncio.to_thread(
            find_delayed,
            snapshot,
            policy,
            self._now(),
            SessionId(session.id),
            extension=round(extension_s * 1_000_000),
            selectors=self._selectors.load(policy.custom),
        )
        if found is None:
            return None

        name = (await self._names(scope, {found.session_id}))[found.session_id]
        promised = datetime.fromtimestamp(found.promised / 1_000_000, UTC)
        return Conflict(
            f"time_limit_s of session {session.name!r} cannot grow by {extension_s:g}: session "
            f"{name!r} has a reservation that starts at {promised:%Y-%m-%d %H:%M:%S} UTC, and it "
            "would start later",
            next_step=f"extend it by less, or hold the other session first: `moorage why {name}`",
        )

    async def _of_site(
        self, scope: Scope, session: SessionView, outlook: PendingExplanation
    ) -> PendingExplanation:
        """Add the known state of the site's queue, if the session is or will be a job of a site."""
        if session.spec.walltime_s is None or session.status in TERMINAL:
            return outlook

        now = self._clock.now()
        session_id = SessionId(session.id)
        endpoint = await self._store.replicas.endpoint_of(scope, session_id)
        if session.status is Status.RUNNING:
            if endpoint is None:
                return outlook

            more = explain_late(session, endpoint, now), explain_short(session, endpoint)
            return outlook.model_copy(
                update={"text": "; ".join(filter(None, (outlook.text, *more)))}
            )

        group = session.resource_group
        history = endpoint.starts.get(group) if endpoint is not None else None
        history = history or await self._store.replicas.start_history(group)
        if session.status is Status.QUEUED:
            nodes = await self._store.groups.site_nodes(group)
            return explain_queued(outlook, session, history=history, nodes=nodes, now=now)
        if session.status is not Status.PENDING or history is None:
            return outlook

        basis = f"{outlook.basis}; then its site's queue: {history_text(history)}"
        return outlook.model_copy(update={"basis": basis})

    async def _calibrated(self, outlook: PendingExplanation, group: str) -> PendingExplanation:
        """Correct the estimate with past estimates of its kind, and add their accuracy."""
        if outlook.expected_kind is None:
            return outlook
        found = await self._store.expected_starts.calibration(group, outlook.expected_kind)
        return corrected(outlook, found[0], self._clock.now()) if found else outlook

    async def _of_agents(
        self, outlook: PendingExplanation, group: str, slots: Collection[str]
    ) -> PendingExplanation:
        """Add the fenced devices of the families that the session requests, and the reasons why
        agents accept no new work."""
        families = {slot.partition(".")[0] for slot in slots if "." in slot}
        fenced = await self._store.agents.fenced_devices(group, families)
        said = await self._store.agents.not_ready(group) if outlook.refusals else []
        return outlook.model_copy(update={"fenced": fenced, "refusals": [*outlook.refusals, *said]})

    async def _outlook(self, scope: Scope, session: SessionView) -> PendingExplanation:
        if session.needs_newer_manager:
            return PendingExplanation(
                text=f"it is {session.status}, and {session.needs_newer_manager}"
            )

        if session.status is not Status.PENDING:
            reason = REASONS[session.reason].text
            why = "; ".join(part for part in (reason, session.detail) if part)
            text = f"it is not pending: it is {session.status}" + (f" ({why})" if why else "")
            unreachable = explain_unreachable(session)

            return PendingExplanation(text=f"{text}; {unreachable}" if unreachable else text)

        if session.held is not None and session.hold is not None:
            step = f"`moorage update {session.name} --release`"
            return PendingExplanation(text=f"{session.hold.text}: {step}")

        policy = policy_of((await self._store.groups.get(session.resource_group)).options)
        now = self._now()
        session_id = SessionId(session.id)
        snapshot = await self._store.scheduling.peek(session.resource_group, policy)
        if all(item.session_id != session_id for item in snapshot.pending):
            until = session.not_before or session.spec.starts_at
            if until is None or session.hold is None:
                return PendingExplanation(text="its status has just changed: ask again")

            return waits_for_time(round(until.timestamp() * 1_000_000), now, session.hold.text)

        probe = await self._probe(snapshot, policy, now, session_id)
        outlook = explain_probe(probe, await self._names(scope, probe.mentions()), now)
        if session.reason is not Reason.PREEMPTED:
            return outlook

        before = f"it was preempted before, {session.detail}"
        return outlook.model_copy(update={"text": f"{outlook.text}; {before}"})

    async def _probe(
        self, snapshot: Snapshot, policy: Policy, now: int, session_id: SessionId
    ) -> PlacementProbe:
        """Probe in a thread: planning ten thousand pending sessions would block the event loop for
        too long."""
        selectors = self._selectors.load(policy.custom)
        return await asyncio.to_thread(
            probe_placement, snapshot, policy, now, session_id, selectors=selectors
        )

    async def _with_dependencies(
        self, scope: Scope, pending: Pending, spec: SessionSpec
    ) -> Pending:
        states = await self._store.sessions.dependency_states(scope, spec)
        if states["failed"]:
            return replace(pending, dependencies="failed", waits_on=tuple(states["failed"]))
        if states["unmet"]:
            return replace(pending, dependencies="unmet", waits_on=tuple(states["unmet"]))
        return pending

    async def _names(self, scope: Scope, session_ids: Set[SessionId]) -> dict[SessionId, str]:
        """Names of the sessions. For those that the caller may not see, a text says that they
        belong to another project."""
        found = await self._store.sessions.names(scope, session_ids - {CANDIDATE_ID})
        unseen = _GONE if scope.projects is None else _OTHER
        return {
            session_id: found[session_id][0] if session_id in found else unseen.format(session_id)
            for session_id in session_ids
        }

    def _now(self) -> int:
        return round(self._clock.now().timestamp() * 1_000_000)


def _kernel_places(place: Place) -> list[KernelPlaceView]:
    return [
        KernelPlaceView(
            hostname=f"sub{n}" if n else "main1",
            agent_id=kernel.agent_id,
            devices=[
                DeviceView(slot=a.slot, device_id=a.device_id, amount=a.amount)
                for a in kernel.allocations
            ],
        )
        for n, kernel in enumerate(place.kernels)
    ]
