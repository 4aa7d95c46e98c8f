"""What stands between a session and its start, from the planner's own answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from moorage.common.model.ids import AgentId, SessionId
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.slots import WHOLE_DEVICE, format_amount
from moorage.common.views.pending import Condition, PendingExplanation
from moorage.manager.scheduling import (
    AgentState,
    Hold,
    Pending,
    Place,
    Policy,
    Snapshot,
    plan,
    refusal_message,
)
from moorage.manager.scheduling.backfill.earliest_fit import awaited_sessions, capacity_at, earliest_fit
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

_SHOWN = 5  # names of sessions in one line
_KINDS = {
    "dependencies": (UnmetKind.DEPENDENCY, UnmetKind.DEPENDENCY_FAILED),
    "time": (UnmetKind.NOT_BEFORE, UnmetKind.STARTS_AT),
    "quotas": (UnmetKind.QUOTA,),
    "session type": (UnmetKind.SESSION_TYPE,),
    "device families": (UnmetKind.EXCLUSIVE,),
}
_MET = {
    "dependencies": "it waits for no other session",
    "time": "it may start at any time",
    "quotas": "within every quota",
    "session type": "allowed in this resource group",
    "device families": "none that exclude each other",
}


@dataclass(frozen=True, slots=True)
class Later:
    """The best agent for what ``refusal`` says is short: at ``at`` (unix microseconds) it has ``amount``,
    when ``after`` have ended. None: nobody knows when, for ``endless`` sessions there have no known end."""

    refusal: Refusal
    at: int | None
    amount: int
    after: tuple[SessionId, ...]
    endless: int


@dataclass(frozen=True, slots=True)
class Look:
    """What the planner says of one session. ``position`` counts those that wait for room before it, and it.

    ``reservation``: its own, or (``alone``) that which it would get if nobody else waited. ``room_now``: it
    would start now if nobody else waited. ``ahead_endless``: of those before it, so many have no known end.
    """

    place: Place | None
    hold: Hold | None
    rooms: tuple[Later, ...] = ()
    position: int | None = None
    waiting: int | None = None
    ahead_endless: int = 0
    reservation: Reservation | None = None
    alone: bool = False
    room_now: bool = False

    def mentions(self) -> set[SessionId]:
        """The sessions that its words are about."""
        found = {session_id for room in self.rooms for session_id in room.after}
        found |= set(self.reservation.waits_for) if self.reservation else set()
        if self.hold is not None:
            found |= {self.hold.blocked_by} if self.hold.blocked_by is not None else set()
            found |= {SessionId(r.slot) for r in self.hold.refusals if r.kind is RefusalKind.RESERVED}
            about = (UnmetKind.DEPENDENCY, UnmetKind.DEPENDENCY_FAILED)
            found |= {SessionId(n) for u in self.hold.unmet if u.kind in about for n in u.names}
        return found - {SessionId("")}


def look(
    snapshot: Snapshot,
    policy: Policy,
    now: int,
    session_id: SessionId,
    selectors: Mapping[str, Selector] | None = None,
) -> Look:
    """``session_id`` waits in ``snapshot``. ``now``: unix microseconds."""
    made = plan(snapshot, policy, now, selectors)
    place = next((place for place in made.places if place.session_id == session_id), None)
    if place is not None:
        return Look(place, None)
    queue = [hold for hold in made.holds if _waits_for_room(hold)]
    hold = next(hold for hold in made.holds if hold.session_id == session_id)
    items = {item.session_id: item for item in snapshot.pending}
    item = items[session_id]
    agents = {agent.agent_id: agent for agent in snapshot.agents}
    found = Look(None, hold, _rooms(hold, item, agents, policy, now))
    if not _waits_for_room(hold):
        return found
    position = queue.index(hold) + 1
    endless = sum(items[other.session_id].time_limit is None for other in queue[: position - 1])
    found = replace(found, position=position, waiting=len(queue), ahead_endless=endless)
    own = next((one for one in made.reservations if one.session_id == session_id), None)
    if own is not None:
        return replace(found, reservation=own)
    free = replace(policy, hol="backfill", strategy="fifo", preemption=None)
    alone = plan(replace(snapshot, pending=(item,)), free, now, selectors)
    if not hold.attempted:
        # It was not tried: what would be said to it is known from this.
        told = alone.holds[0] if alone.holds else hold
        refusals = _rooms(told, item, agents, policy, now)
        found = replace(found, hold=hold._replace(refusals=told.refusals), rooms=refusals)
    first = next(iter(alone.reservations), None)
    return replace(found, reservation=first, alone=True, room_now=bool(alone.places))


def _waits_for_room(hold: Hold) -> bool:
    return hold.capacity or not hold.attempted or hold.reason is Reason.RESERVED


def _rooms(
    hold: Hold, item: Pending, agents: Mapping[AgentId, AgentState], policy: Policy, now: int
) -> tuple[Later, ...]:
    demands = item.shape.demands if item.shape.mode == "single-node" else (max(item.shape.demands),)
    found = []
    for refusal in hold.refusals:
        agent = agents.get(refusal.best) if refusal.best is not None else None
        if refusal.kind is not RefusalKind.CAPACITY or agent is None:
            continue
        room = NodeState(agent, 0)
        at = earliest_fit(room, demands, policy.fraction, now, None)
        endless = len({r.session_id for r in agent.running if r.ends_at is None})
        if at is None:
            found.append(Later(refusal, None, refusal.available, (), endless))
            continue
        slot, after = refusal.slot, awaited_sessions([room], at, now)
        free = capacity_at(room, at, now).free
        amount = free.get(slot, 0)
        if slot.endswith(DEVICE_SUFFIX):
            amount = free.get(slot.removesuffix(DEVICE_SUFFIX) + SHARES_SUFFIX, 0) // WHOLE_DEVICE
        found.append(Later(refusal, at, amount, after, endless))
    return tuple(found)


def words(found: Look, names: Mapping[SessionId, str], now: int) -> PendingExplanation:
    """For people. ``names``: of the sessions that are mentioned."""
    if found.place is not None:
        where = ", ".join(dict.fromkeys(kernel.agent_id for kernel in found.place.kernels))
        return PendingExplanation(
            text=f"there is room on {where}: the next pass places it",
            conditions=_conditions((), names),
            expected_start=at_time(now),
            basis="there is room now",
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
        blockers=[names.get(one, one) for one in dict.fromkeys(blockers)],
        expected_start=None if starts is None else at_time(starts),
        basis=basis,
    )


def _expected(found: Look, names: Mapping[SessionId, str], now: int) -> tuple[int | None, str]:
    hold, reservation = found.hold, found.reservation
    assert hold is not None
    if hold.unmet:
        return None, "unknown: a condition is not met, and agents are asked only then"
    if not _waits_for_room(hold):
        return None, f"unknown: waiting alone does not help; {REASONS[hold.reason].next_step}"
    if found.room_now:
        behind = names.get(hold.blocked_by, hold.blocked_by) if hold.blocked_by is not None else "those ahead"
        return None, f"unknown: there is room for it, and it is let in when {behind} has started"
    if reservation is None or reservation.starts_at is None:
        endless = sum(later.endless for later in found.rooms)
        kept = f"; {', '.join(reservation.agents)} is held for it" if reservation and not found.alone else ""
        return None, f"unknown: {_count(endless)} where it could go, with no known end{kept}"
    ends = _list(reservation.waits_for, names)
    when = f"by {_clock(reservation.starts_at, now)} these have ended at the latest: {ends}"
    if not found.alone:
        return reservation.starts_at, f"room is reserved for it on {', '.join(reservation.agents)}: {when}"
    ahead = (found.position or 1) - 1
    if found.ahead_endless:
        return None, f"unknown: {_count(found.ahead_endless)} ahead with no known end; for it alone, {when}"
    return reservation.starts_at, f"at the earliest, with {_count(ahead)} ahead of it: {when}"


def _refusals(found: Look, names: Mapping[SessionId, str], now: int) -> list[str]:
    assert found.hold is not None
    lines = []
    rooms = {id(later.refusal): later for later in found.rooms}
    for refusal in found.hold.refusals:
        later = rooms.get(id(refusal))
        if later is None:
            reserved = refusal.kind is RefusalKind.RESERVED
            name = names.get(SessionId(refusal.slot), refusal.slot)
            lines.append(refusal_message(replace(refusal, slot=name) if reserved else refusal))
            continue
        asked, had, then = (
            format_amount(refusal.slot, n) for n in (refusal.requested, refusal.available, later.amount)
        )
        line = f"needs {asked} {refusal.slot}; best agent {refusal.best} has {had} free"
        if later.at is not None:
            ends = "session " + _list(later.after, names)
            line += f", {then} after {ends} ends at about {_clock(later.at, now)}"
        elif later.endless:
            line += f", and {_count(later.endless)} there with no known end"
        lines.append(f"{line} ({refusal.agents} agents)" if refusal.agents > 1 else line)
    return lines


def _conditions(unmet: tuple[UnmetCondition, ...], names: Mapping[SessionId, str]) -> list[Condition]:
    found = []
    for kind, kinds in _KINDS.items():
        failed = [one for one in unmet if one.kind in kinds]
        for one in failed:
            named = replace(one, names=tuple(names.get(SessionId(name), name) for name in one.names))
            found.append(Condition(kind=kind, met=False, text=unmet_message(named)))
        if not failed:
            found.append(Condition(kind=kind, met=True, text=_MET[kind]))
    return found


def waits_for_time(until: int, now: int, text: str) -> PendingExplanation:
    """Of a session about which the planner is not asked before ``until``."""
    conditions = [one for one in _conditions((), {}) if one.kind != "time"]
    told = f"not before {_clock(until, now)}"
    return PendingExplanation(
        text=text,
        conditions=[Condition(kind="time", met=False, text=told), *conditions],
        expected_start=at_time(until),
        basis=f"{told}, if there is room then",
    )


def at_time(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def _clock(micros: int, now: int) -> str:
    at = at_time(micros)
    far = abs(micros - now) > 12 * 3600 * 1_000_000
    return f"{at:%Y-%m-%d %H:%M} UTC" if far else f"{at:%H:%M} UTC"


def _list(sessions: tuple[SessionId, ...], names: Mapping[SessionId, str]) -> str:
    shown = [names.get(one, one) for one in sessions[:_SHOWN]]
    more = len(sessions) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "") if shown else "what is being stopped"


def _count(n: int) -> str:
    return "1 session" if n == 1 else f"{n} sessions"
