"""Explanations of pending sessions: what prevents their start, and when it is expected. Pure.

``probe_placement`` asks the planner about one session; ``explain_probe`` puts the answer into
words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from moorage.common.model.ids import AgentId, SessionId
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.slots import WHOLE_DEVICE, format_amount
from moorage.common.views.pending import Condition, PendingExplanation, StartCalibration, StartKind
from moorage.manager.explain.forecast import forecast_start
from moorage.manager.scheduling import (
    AgentState,
    HeldSession,
    Pending,
    Place,
    Policy,
    Snapshot,
    plan,
    refusal_message,
)
from moorage.manager.scheduling.backfill.earliest_fit import (
    awaited_sessions,
    capacity_at,
    earliest_fit,
)
from moorage.manager.scheduling.core.demand import DEVICE_SUFFIX, SHARES_SUFFIX
from moorage.manager.scheduling.core.messages import unmet_message
from moorage.manager.scheduling.core.results import (
    Refusal,
    RefusalKind,
    Reservation,
    UnmetCondition,
    UnmetKind,
)
from moorage.manager.scheduling.placement.node_state import NodeState
from moorage.manager.scheduling.placement.selector_plugin import Selector

_MAX_NAMES = 5  # maximum number of session names in one line
_KINDS = {
    "dependencies": (UnmetKind.DEPENDENCY, UnmetKind.DEPENDENCY_FAILED),
    "earlier attempt": (UnmetKind.EARLIER_ATTEMPT,),
    "time": (UnmetKind.NOT_BEFORE, UnmetKind.STARTS_AT),
    "quotas": (UnmetKind.QUOTA,),
    "node-hours": (UnmetKind.NODE_HOURS,),
    "session type": (UnmetKind.SESSION_TYPE,),
    "device families": (UnmetKind.EXCLUSIVE,),
}
_MET = {
    "dependencies": "no unmet dependency",
    "time": "no begin time",
    "quotas": "within every quota",
    "session type": "allowed in this resource group",
    "device families": "none that exclude each other",
}


@dataclass(frozen=True, slots=True)
class EarliestFit:
    """When the best agent named in a capacity ``refusal`` can run the session.

    At ``at`` (Unix microseconds) it has ``amount`` of the slot, once the sessions ``after`` have
    ended. None means unknown, because ``unlimited`` sessions there have no time limit.
    """

    refusal: Refusal
    at: int | None
    amount: int
    after: tuple[SessionId, ...]
    unlimited: int


@dataclass(frozen=True, slots=True)
class PlacementProbe:
    """The planner's answer about one session.

    ``position``: its place among the ``waiting`` sessions that wait for capacity, from 1.
    ``reservation``: its own or, if ``alone``, the reservation that it would get if no other session
    were pending. ``fits_now``: it would start now if no other session were pending.
    ``unlimited_ahead``: how many sessions ahead of it have no time limit. ``dependencies_end``:
    when all sessions that it depends on have ended (Unix microseconds), if no other condition is
    unmet, or None if unknown. ``forecast``: when it starts if all sessions ahead of it run until
    their limits, or None if unknown.
    """

    place: Place | None
    hold: HeldSession | None
    earliest_fits: tuple[EarliestFit, ...] = ()
    position: int | None = None
    waiting: int | None = None
    unlimited_ahead: int = 0
    reservation: Reservation | None = None
    alone: bool = False
    fits_now: bool = False
    dependencies_end: int | None = None
    forecast: int | None = None

    def mentions(self) -> set[SessionId]:
        """Sessions that the explanation names."""
        found = {session_id for fit in self.earliest_fits for session_id in fit.after}
        found |= set(self.reservation.waits_for) if self.reservation else set()

        if self.hold is not None:
            found |= {self.hold.blocked_by} if self.hold.blocked_by is not None else set()
            found |= {
                SessionId(r.slot) for r in self.hold.refusals if r.kind is RefusalKind.RESERVED
            }
            about = (UnmetKind.DEPENDENCY, UnmetKind.DEPENDENCY_FAILED)
            found |= {SessionId(n) for u in self.hold.unmet if u.kind in about for n in u.names}

        return found - {SessionId("")}


def probe_placement(
    snapshot: Snapshot,
    policy: Policy,
    now: int,
    session_id: SessionId,
    *,
    selectors: Mapping[str, Selector] | None = None,
) -> PlacementProbe:
    """Probe the placement of ``session_id``, which is pending in ``snapshot``. ``now`` is in Unix
    microseconds."""
    made = plan(snapshot, policy, now, selectors)
    place = next((place for place in made.places if place.session_id == session_id), None)
    if place is not None:
        return PlacementProbe(place, None)

    queue = [hold for hold in made.holds if _waits_for_capacity(hold)]
    hold = next(hold for hold in made.holds if hold.session_id == session_id)
    items = {item.session_id: item for item in snapshot.pending}
    item = items[session_id]
    agents = {agent.agent_id: agent for agent in snapshot.agents}
    found = PlacementProbe(
        None, hold, _earliest_fits(hold, item, agents=agents, policy=policy, now=now)
    )
    if hold.unmet:
        return replace(found, dependencies_end=_dependencies_end(hold.unmet, snapshot.agents, now))
    if not _waits_for_capacity(hold):
        return found

    position = queue.index(hold) + 1
    unlimited = sum(items[other.session_id].time_limit is None for other in queue[: position - 1])
    found = replace(found, position=position, waiting=len(queue), unlimited_ahead=unlimited)
    own = next(
        (reservation for reservation in made.reservations if reservation.session_id == session_id),
        None,
    )
    if own is not None:
        return replace(found, reservation=own)

    relaxed = replace(policy, hol="backfill", strategy="fifo", preemption=None)
    alone = plan(replace(snapshot, pending=(item,)), relaxed, now, selectors)
    if not hold.attempted:
        # The pass ended before this session, so its refusals are known only after planning it
        # alone.
        tried = alone.holds[0] if alone.holds else hold
        fits = _earliest_fits(tried, item, agents=agents, policy=policy, now=now)
        found = replace(found, hold=hold._replace(refusals=tried.refusals), earliest_fits=fits)

    first = next(iter(alone.reservations), None)
    ahead = [other.session_id for other in queue[: position - 1]] + [
        place.session_id for place in made.places
    ]
    forecast = forecast_start(
        snapshot, policy, now=now, session_id=session_id, ahead=ahead, selectors=selectors
    )
    return replace(
        found, reservation=first, alone=True, fits_now=bool(alone.places), forecast=forecast
    )


def _dependencies_end(
    unmet: Iterable[UnmetCondition], agents: Iterable[AgentState], now: int
) -> int | None:
    """Time at which dependencies end, according to the limits of those that run on ``agents``."""
    names: set[str] = set()
    for condition in unmet:
        if condition.kind is not UnmetKind.DEPENDENCY:
            return None
        names.update(condition.names)

    if not names:  # an element waits for any other of its array to end
        return None

    running = [kernel for agent in agents for kernel in agent.running if kernel.session_id in names]
    ends = [kernel.ends_at for kernel in running if kernel.ends_at is not None]
    if len(ends) < len(running) or {kernel.session_id for kernel in running} != names:
        return None

    return max(now, *ends)


def _waits_for_capacity(hold: HeldSession) -> bool:
    return hold.capacity or not hold.attempted or hold.reason is Reason.RESERVED


def _earliest_fits(
    hold: HeldSession,
    item: Pending,
    agents: Mapping[AgentId, AgentState],
    policy: Policy,
    *,
    now: int,
) -> tuple[EarliestFit, ...]:
    demands = item.shape.demands if item.shape.mode == "single-node" else (max(item.shape.demands),)
    found = []
    for refusal in hold.refusals:
        agent = agents.get(refusal.best) if refusal.best is not None else None
        if refusal.kind is not RefusalKind.CAPACITY or agent is None:
            continue

        node = NodeState(agent, 0)
        at = earliest_fit(node, demands, fraction=policy.fraction, now=now, before=None)
        unlimited = len({r.session_id for r in agent.running if r.ends_at is None})
        if at is None:
            found.append(
                EarliestFit(refusal, None, amount=refusal.available, after=(), unlimited=unlimited)
            )
            continue

        slot = refusal.slot
        after = awaited_sessions([node], at, now)
        free = capacity_at(node, at, now).free
        amount = free.get(slot, 0)
        if slot.endswith(DEVICE_SUFFIX):
            amount = free.get(slot.removesuffix(DEVICE_SUFFIX) + SHARES_SUFFIX, 0) // WHOLE_DEVICE

        found.append(EarliestFit(refusal, at, amount=amount, after=after, unlimited=unlimited))

    return tuple(found)


def explain_probe(
    found: PlacementProbe, names: Mapping[SessionId, str], now: int
) -> PendingExplanation:
    """Explain a probe in words. ``names`` are the names of the sessions in ``found.mentions()``."""
    if found.place is not None:
        where = ", ".join(dict.fromkeys(kernel.agent_id for kernel in found.place.kernels))
        return PendingExplanation(
            text=f"there is capacity on {where}: the next pass places it",
            conditions=_conditions((), names),
            expected_start=at_time(now),
            expected_kind="capacity-now",
            basis="there is capacity now",
        )

    hold = found.hold
    assert hold is not None
    starts, basis = _expected(found, names, now)
    blockers = [hold.blocked_by] if hold.blocked_by is not None else []
    blockers += found.reservation.waits_for if found.reservation is not None else ()
    text = REASONS[hold.reason].text
    if hold.blocked_by is not None:
        text = f"{text}; behind {names.get(hold.blocked_by, hold.blocked_by)}"

    return PendingExplanation(
        text=text,
        conditions=_conditions(hold.unmet, names),
        refusals=_refusals(found, names, now),
        position=found.position,
        waiting=found.waiting,
        blockers=[names.get(blocker, blocker) for blocker in dict.fromkeys(blockers)],
        expected_start=None if starts is None else at_time(starts),
        expected_kind=None if starts is None else _kind(found),
        basis=basis,
    )


def _expected(
    found: PlacementProbe, names: Mapping[SessionId, str], now: int
) -> tuple[int | None, str]:
    hold = found.hold
    reservation = found.reservation
    assert hold is not None

    if hold.unmet and all(
        u.kind is UnmetKind.NODE_HOURS and u.requested <= u.limit for u in hold.unmet
    ):
        until = max(unmet.until for unmet in hold.unmet)
        when = f"from {_clock(until, now)}, when the node-hours reset, if there is capacity then"
        return until, f"{when}; sooner if jobs end before their walltime"

    if found.dependencies_end is not None:
        named = tuple(SessionId(name) for unmet in hold.unmet for name in unmet.names)
        end = f"{_list(named, names)} {'has' if len(named) == 1 else 'have'} ended"
        latest = _clock(found.dependencies_end, now)
        return (
            found.dependencies_end,
            f"when {end}, at {latest} at the latest, if there is capacity then",
        )

    if hold.unmet:
        return None, "unknown: a condition is not met, and agents are considered only afterwards"
    if not _waits_for_capacity(hold):
        return None, f"unknown: waiting does not help; {REASONS[hold.reason].next_step}"

    if found.alone and found.forecast is not None:
        ahead = (found.position or 1) - 1
        behind = f"behind {_count(ahead)} ahead of it" if ahead else "behind those that start now"
        return found.forecast, f"{behind}, if all run until their limits"

    if found.fits_now:
        if hold.blocked_by is None:
            return None, "unknown: the free capacity goes to sessions ahead of it now"

        behind = names.get(hold.blocked_by, hold.blocked_by)
        has = "the capacity for it is reserved" if hold.attempted else "there is capacity for it"
        return None, f"unknown: {has}, and it starts after {behind}"

    if reservation is None or reservation.starts_at is None:
        unlimited = sum(fit.unlimited for fit in found.earliest_fits)
        kept = (
            f"; {', '.join(reservation.agents)} is held for it"
            if reservation and not found.alone
            else ""
        )
        return (
            None,
            f"unknown: {_count(unlimited)} without a time limit on the agents where it fits{kept}",
        )

    ends = _list(reservation.waits_for, names) if reservation.waits_for else "those that start now"
    when = f"these end by {_clock(reservation.starts_at, now)} at the latest: {ends}"
    if not found.alone:
        return (
            reservation.starts_at,
            f"capacity is reserved for it on {', '.join(reservation.agents)}: {when}",
        )

    ahead = (found.position or 1) - 1
    if found.unlimited_ahead:
        ahead_of_it = _count(found.unlimited_ahead)
        return (
            None,
            f"unknown: {ahead_of_it} ahead of it without a time limit; for it alone, {when}",
        )

    return reservation.starts_at, f"at the earliest, with {_count(ahead)} ahead of it: {when}"


def _kind(found: PlacementProbe) -> StartKind:
    if found.dependencies_end is not None:
        return "dependency"
    if found.hold is not None and found.hold.unmet:
        return "begin-time"
    return "earliest" if found.alone else "reserved"


def _refusals(found: PlacementProbe, names: Mapping[SessionId, str], now: int) -> list[str]:
    assert found.hold is not None
    lines = []
    fits = {id(fit.refusal): fit for fit in found.earliest_fits}
    for refusal in found.hold.refusals:
        fit = fits.get(id(refusal))
        if fit is None:
            reserved = refusal.kind is RefusalKind.RESERVED
            name = names.get(SessionId(refusal.slot), refusal.slot)
            lines.append(refusal_message(replace(refusal, slot=name) if reserved else refusal))
            continue

        asked, had, then = (
            format_amount(refusal.slot, n)
            for n in (refusal.requested, refusal.available, fit.amount)
        )
        line = f"needs {asked} {refusal.slot}; best agent {refusal.best} has {had} free"
        if found.fits_now:
            line += (
                " besides reserved capacity"
                if found.hold.blocked_by is not None
                else " after those ahead of it"
            )

        if fit.at is not None and fit.after:  # free capacity that goes to sessions ahead
            ends = "session " + _list(fit.after, names)
            line += f", {then} after {ends} ends at about {_clock(fit.at, now)}"
        elif fit.at is None and fit.unlimited:
            line += f", and {_count(fit.unlimited)} there without a time limit"

        lines.append(f"{line} ({refusal.agents} agents)" if refusal.agents > 1 else line)

    return lines


def _conditions(
    unmet: tuple[UnmetCondition, ...], names: Mapping[SessionId, str]
) -> list[Condition]:
    found = []
    for kind, kinds in _KINDS.items():
        failed = [condition for condition in unmet if condition.kind in kinds]
        for condition in failed:
            named = replace(
                condition, names=tuple(names.get(SessionId(name), name) for name in condition.names)
            )
            found.append(Condition(kind=kind, met=False, text=unmet_message(named)))

        if not failed and kind in _MET:
            found.append(Condition(kind=kind, met=True, text=_MET[kind]))

    return found


def waits_for_time(until: int, now: int, text: str) -> PendingExplanation:
    """The outlook for a session that is not eligible for scheduling before ``until``."""
    conditions = [condition for condition in _conditions((), {}) if condition.kind != "time"]
    not_before = f"not before {_clock(until, now)}"
    return PendingExplanation(
        text=text,
        conditions=[Condition(kind="time", met=False, text=not_before), *conditions],
        expected_start=at_time(until),
        expected_kind="begin-time",
        basis=f"{not_before}, if there is capacity then",
    )


def corrected(
    outlook: PendingExplanation, past: StartCalibration, now: datetime
) -> PendingExplanation:
    """Add the accuracy of such estimates, and the time at which half of them had started. Known end
    times are limits, and most sessions end earlier."""
    outlook, at, share = (
        outlook.model_copy(update={"calibration": past}),
        outlook.expected_start,
        past.share_p50,
    )
    if at is None or at <= now or share == 1.0:
        return outlook

    basis = (
        f"{outlook.basis}; half of {past.starts} such sessions started after {share:.0%} of "
        "that time"
    )
    return outlook.model_copy(update={"expected_start": now + (at - now) * share, "basis": basis})


def at_time(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def _clock(micros: int, now: int) -> str:
    at = at_time(micros)
    far = abs(micros - now) > 12 * 3600 * 1_000_000
    return f"{at:%Y-%m-%d %H:%M} UTC" if far else f"{at:%H:%M} UTC"


def _list(sessions: tuple[SessionId, ...], names: Mapping[SessionId, str]) -> str:
    shown = [names.get(session, session) for session in sessions[:_MAX_NAMES]]
    others = len(sessions) - len(shown)
    return ", ".join(shown) + (f" and {others} more" if others else "")


def _count(n: int) -> str:
    return "1 session" if n == 1 else f"{n} sessions"
