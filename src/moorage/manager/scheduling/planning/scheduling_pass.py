"""One pass: session after session gets a place or a hold, and the first that is blocked gets its rights."""

from __future__ import annotations

from moorage.common.model.ids import AgentId, SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling.backfill.earliest_fit_index import Forecasts
from moorage.manager.scheduling.backfill.reservation import reserve
from moorage.manager.scheduling.backfill.reservation_guard import ReservationGuard
from moorage.manager.scheduling.core import predicates
from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.order import Line, overdue
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.quotas import Account, Quotas
from moorage.manager.scheduling.core.results import (
    HoldDetails,
    Holds,
    KernelPlace,
    Place,
    Plan,
    Refusal,
    RefusalKind,
    Reservation,
    Victim,
)
from moorage.manager.scheduling.core.shape import OwnedShape, Shape
from moorage.manager.scheduling.placement.feasible_set import judge, wanted
from moorage.manager.scheduling.placement.gang import Spots, judge_gang, place_gang
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.placement.selector_plugin import SelectorFailed
from moorage.manager.scheduling.planning.preemption import Preempter
from moorage.manager.scheduling.planning.refusal_cache import Answer, RefusalCache

_new = tuple.__new__  # a Place as fast as can be
_LASTING = frozenset({Reason.INSUFFICIENT_RESOURCES, Reason.NO_ELIGIBLE_AGENT, Reason.INFEASIBLE})


class SchedulingPass:
    """All that is decided in one pass; ``answer_all`` decides it, ``plan`` tells it."""

    def __init__(
        self,
        policy: Policy,
        now: int,
        bench: NodePool,
        quotas: Quotas,
        refused: RefusalCache,
        forecasts: Forecasts | None = None,
    ) -> None:
        self.policy, self.now, self.bench, self.quotas = policy, now, bench, quotas
        self.refused, self._forecasts = refused, forecasts
        self.guards: list[ReservationGuard] = []
        self.places: list[Place] = []
        self.holds = Holds()
        self.reservations: list[Reservation] = []
        self.victims: list[Victim] = []
        self._blocker: SessionId | None = None
        self._head: Pending | None = None  # the first that capacity refused
        self._before_head = 0  # placed before it was tried
        # fifo with skip tries the head after those behind it: then it is ranks that tell who overtook whom.
        self._ranks: list[tuple[int, int, str]] | None = None
        if policy.strategy == "fifo" and policy.hol == "skip":
            self._ranks = []
        self._cursors_before = dict(bench.cursors)
        self._has_reservation = False
        self._guards_of: dict[int, list[ReservationGuard]] = {}  # by the rank of their agent
        self._kept_moves = 0  # counts every change of what is kept
        self._preempter: Preempter | None = None
        if policy.preemption is not None:
            self._preempter = Preempter(self.bench, policy, policy.preemption, now)
        # What was said to a claim, as long as it would be said again: room only shrinks, but what is kept may
        # still be had by who ends in time, and what is used of a quota grows.
        self._said: dict[OwnedShape | None, HoldDetails] = {}
        self._of_shape: dict[Shape, HoldDetails] = {}  # the same, for whom no quota stands in the way
        self._said_by: dict[Account, list[OwnedShape]] = {}  # until more is charged to this one
        self._said_since: list[
            OwnedShape
        ] = []  # not sorted into ``_said_by`` yet: where nothing is placed, none is
        self._plain = policy.session_types is None and not policy.exclusive
        # With backfill only the first that is refused has rights by that; and what makes room is decided anew
        # for each.
        self._same_for_all = policy.hol == "backfill" and self._preempter is None and self._plain
        self._swift = bench.swift and self._plain
        self._has_quotas = bool(quotas)

    def answer_all(self, queue: Line) -> None:
        """Each session of ``queue`` gets its place or its hold."""
        said, to, what = self._said, self.holds.ids.append, self.holds.details.append
        for item in queue:
            # Ten thousand that ask in vain for what others asked for in vain are told the same.
            body = said.get(item.equivalence_class)
            if body is not None:
                to(item.session_id)
                what(body)
                continue
            if self._answer(item):
                queue.placed(item)

    def _answer(self, item: Pending) -> bool:
        """Whether it got a place."""
        if self._blocker is not None:
            self.holds.add(
                item.session_id, (Reason.INSUFFICIENT_RESOURCES, (), False, False, self._blocker, ())
            )
            return False
        if self._plain and item.unconstrained:
            unmet = self.quotas.check(item) if self._has_quotas else ()
        else:
            unmet = predicates.check(item, self.policy, self.quotas, self.now)
        if unmet:
            body = predicates.told(unmet)
            self.holds.add(item.session_id, body)
            if self._plain and item.unconstrained:
                self._say(item.owned_shape, body)
            return False
        if item.unconstrained and (known := self._of_shape.get(item.shape)) is not None:
            self.holds.add(item.session_id, known)
            self._say(item.owned_shape, known)
            return False
        tried = self._quickly(item) if self._swift and item.fast_path else self._try(item)
        if isinstance(tried, Place):
            self._placed(item, tried)
            return True
        self.holds.add(item.session_id, tried)
        reason, _, _, capacity, _, _ = tried
        if capacity:
            self._blocked(item)
        if self._same_for_all and item.unconstrained and reason in _LASTING:
            self._of_shape[item.shape] = tried
            self._say(item.owned_shape, tried)
        return False

    def _say(self, claim: OwnedShape, body: HoldDetails) -> None:
        self._said[claim] = body
        if self._has_quotas:
            self._said_since.append(claim)

    def _charge(self, item: Pending) -> None:
        """What was said to those whose quota it takes of may be otherwise now."""
        said_by = self._said_by
        for claim in self._said_since:
            for account, _, _ in self.quotas.terms(claim):
                said = said_by.get(account)
                if said is None:
                    said = said_by[account] = []
                said.append(claim)
        self._said_since.clear()
        for account, _, _ in self.quotas.charge(item):
            for claim in said_by.pop(account, ()) if said_by else ():
                self._said.pop(claim, None)

    def _quickly(self, item: Pending) -> Place | HoldDetails:
        """``_try`` for most sessions of most groups, which the best agent that they fit on will do for."""
        bench = self.bench
        want = bench.want(item.shape)
        known = self.refused.find(item, want.demand)
        if known is not None and known.but_on <= self._guards_of.keys():
            return self._try_beside(item, known)
        hot = self.refused.hot(item.shape)
        room = bench.first(want) if hot is None else bench.choose_among(hot, want, item.shape.families)
        if room is None:
            return self._try_beside(item, self._refuse(item, want.demand))
        takes = bench.seize(room, want, None if item.time_limit is None else self.now + item.time_limit)
        return _new(Place, (item.session_id, item.kernel_id, item.revision, room.agent.agent_id, takes, ()))

    def _try(self, item: Pending) -> Place | HoldDetails:
        try:
            found = self._spots(item)
        except SelectorFailed as error:
            agents = len(self.bench.crowd(item.shape.constraints).open_to)
            refusals = (Refusal(RefusalKind.SELECTOR, str(error), agents=agents),)
            return Reason.SELECTOR_FAILED, refusals, True, False, None, ()
        return self._book(item, found) if isinstance(found, list) else found

    def _try_beside(self, item: Pending, known: Answer) -> Place | HoldDetails:
        found = self._beside(item, known)
        return self._book(item, found) if isinstance(found, list) else found

    def _book(self, item: Pending, spots: Spots) -> Place:
        ends = self._ends(item)
        for room, takes in spots:
            for guard in self._guards_of.get(room.rank, ()):
                guard.charge(takes, ends)
                self._kept_moves += 1
            self.bench.book(room, takes, ends)
            self.bench.chosen(item, room)
        return _place(item, spots)

    def _spots(self, item: Pending) -> Spots | Place | HoldDetails:
        """Where its kernels go, or why nowhere. Agents that are kept for nobody come first."""
        shape, bench = item.shape, self.bench
        if not shape.alone:
            return self._gang(item)
        demand = bench.demand(shape.total)
        known = self.refused.find(item, demand)
        if known is None or not known.but_on <= self._guards_of.keys():
            hot = self.refused.hot(shape)
            if hot is None:
                room = bench.choose(item, demand)
            else:
                room = bench.choose_among(hot, bench.want(shape), shape.families)
            if room is not None:
                takes = bench.grab(room, demand, self._ends(item))
                bench.chosen(item, room)
                agent_id = room.agent.agent_id
                return Place(item.session_id, item.kernel_id, item.revision, agent_id, takes)
            known = self._refuse(item, demand)
        return self._beside(item, known)

    def _refuse(self, item: Pending, demand: Demand) -> Answer:
        """No agent that is kept for nobody takes it."""
        bench, shape = self.bench, item.shape
        crowd = bench.crowd(shape.constraints)
        known = self.refused.again(shape) if item.unconstrained else None
        if known is None:
            known = self.refused.add(
                item, demand, judge(crowd, item, shape, demand, bench.grained, bench.moves)
            )
        kept = self._guards_of.keys() & crowd.open_ranks
        known.but_on = frozenset(rank for rank in kept if bench.rooms[rank].fits(demand))
        return known

    def _gang(self, item: Pending) -> Spots | HoldDetails:
        spots = place_gang(self.bench, item, self.policy.fraction)
        if spots is not None:
            return spots
        answer = judge_gang(self.bench, item, self.policy.fraction)
        if item.shape.mode == "single-node":
            return self._beside(item, answer)
        return answer.body

    def _beside(self, item: Pending, known: Answer) -> Spots | HoldDetails:
        """On an agent that is kept for another session, if that one is not delayed by it."""
        if known.turn != self.refused.turn:
            known.renew(self.refused.turn)
        if known.guards == len(self.guards):
            return known.body
        ends = self._ends(item)
        in_time = tuple([guard.in_time(ends) for guard in self.guards])
        asked, behind = known.denied.get(in_time, (-1, None))
        if asked != self._kept_moves:
            found = self._ask_guards(item, ends)
            if isinstance(found, list):
                return found
            behind = found
            if behind is None:
                known.guards = len(self.guards)
                return known.body
            known.denied[in_time] = self._kept_moves, behind
        return Reason.RESERVED, known.refusals, True, False, behind, ()

    def _ask_guards(self, item: Pending, ends: int | None) -> Spots | SessionId | None:
        """A place, or for whom the room is kept that it would need, or that there is none in any case."""
        demands = [self.bench.demand(demand) for demand in item.shape.demands]
        ranks = self.bench.crowd(item.shape.constraints).open_ranks
        behind: SessionId | None = None
        for rank, guards in sorted(self._guards_of.items()):
            room = self.bench.rooms[rank]
            if rank not in ranks or not wanted(item, room, self.bench.grained):
                continue
            takes = room.fit_together(demands, self.policy.fraction)
            if takes is None:
                continue
            every = tuple([take for each in takes for take in each])
            if all(guard.access_tokens(every, ends, len(takes)) for guard in guards):
                return [(room, each) for each in takes]
            behind = behind or guards[0].session_id
        return behind

    def _ends(self, item: Pending) -> int | None:
        return None if item.time_limit is None else self.now + item.time_limit

    def _placed(self, item: Pending, place: Place) -> None:
        self.places.append(place)
        if self._has_quotas:
            self._charge(item)
        if self._ranks is not None:
            self._ranks.append(item.queue_key)

    def _blocked(self, item: Pending) -> None:
        """Capacity refused it: it may end the pass, or have room kept for it, or made."""
        policy, first = self.policy, self._head is None
        if first:
            self._head, self._before_head = item, len(self.places)
        elif self._head is not None and self._ranks is not None and item.queue_key < self._head.queue_key:
            self._head = item
        if policy.head_blocks:
            self._blocker = item.session_id
            self._said.clear()
            self._of_shape.clear()
        if self._preempter is not None:
            found = self._preempter.search(item)
            if found is not None:
                self._keep(found[0], found[1])
                self.victims += found[2]
                self._has_reservation = self._has_reservation or first
        if self._has_reservation or policy.hol == "strict":
            return
        late = overdue(item, policy, self.now)
        if (policy.hol == "backfill" and first) or (policy.hol == "skip" and late):
            reserved = reserve(self.bench, item, policy, self.now, late, self._forecasts)
            if reserved is not None:
                self._keep(*reserved)
                self._has_reservation = True

    def _keep(self, reservation: Reservation, guards: list[ReservationGuard]) -> None:
        self.reservations.append(reservation)
        for guard in guards:
            room = guard.room
            if not room.guarded:
                self.bench.set_aside(room, reservation.session_id)
            self.guards.append(guard)
            self._guards_of.setdefault(room.rank, []).append(guard)
        self._kept_moves += 1
        self._said.clear()
        self._of_shape.clear()
        self._said_by.clear()
        self._said_since.clear()

    @property
    def has_head(self) -> bool:
        """Whether anybody was refused for capacity."""
        return self._head is not None

    @property
    def kept_moves(self) -> int:
        """It grows with every change of what is kept for somebody."""
        return self._kept_moves

    def plan(self) -> Plan:
        cursors = {
            arch: AgentId(last)
            for arch, last in sorted(self.bench.cursors.items())
            if self._cursors_before.get(arch) != last
        }
        return Plan(
            tuple(self.places),
            self.holds,
            tuple(self.reservations),
            tuple(self.victims),
            cursors,
            self._bypasses(),
        )

    def _bypasses(self) -> dict[SessionId, int]:
        """The head was overtaken by everybody who got a place and should have come after it."""
        head = self._head
        if head is None:
            return {}
        if self._ranks is not None:
            overtaken = sum(rank > head.queue_key for rank in self._ranks)
        else:
            overtaken = len(self.places) - self._before_head
        return {head.session_id: head.bypassed + overtaken} if overtaken else {}


def _place(item: Pending, spots: Spots) -> Place:
    (room, takes), *rest = spots
    others = tuple(
        KernelPlace(kernel.kernel_id, other.agent.agent_id, each)
        for kernel, (other, each) in zip(item.sub_kernels, rest, strict=True)
    )
    return Place(item.session_id, item.kernel_id, item.revision, room.agent.agent_id, takes, others)
