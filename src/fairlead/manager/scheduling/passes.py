"""One pass: session after session gets a place or a hold, and the first that is blocked gets its rights."""

from __future__ import annotations

from fairlead.common.ids import AgentId, SessionId
from fairlead.common.reasons import Reason
from fairlead.manager.scheduling import predicates
from fairlead.manager.scheduling.answer import (
    Hold,
    KernelPlace,
    Place,
    Plan,
    Refusal,
    RefusalKind,
    Reservation,
    Victim,
)
from fairlead.manager.scheduling.choose import Bench
from fairlead.manager.scheduling.crowd import judge, wanted
from fairlead.manager.scheduling.custom import SelectorFailed
from fairlead.manager.scheduling.forecast import Forecasts
from fairlead.manager.scheduling.gang import Spots, judge_gang, place_gang
from fairlead.manager.scheduling.guard import Guard
from fairlead.manager.scheduling.memo import Answer, NoFit
from fairlead.manager.scheduling.model import Pending
from fairlead.manager.scheduling.order import Line, overdue
from fairlead.manager.scheduling.policy import Policy
from fairlead.manager.scheduling.preempt import Preempter
from fairlead.manager.scheduling.quotas import Quotas
from fairlead.manager.scheduling.reserve import reserve

_new = tuple.__new__  # a Hold as fast as can be
_LASTING = frozenset({Reason.NO_CAPACITY, Reason.NO_AGENT, Reason.NEVER_FITS})


class Pass:
    """All that is decided in one pass; ``answer_all`` decides it, ``plan`` tells it."""

    def __init__(
        self,
        policy: Policy,
        now: int,
        bench: Bench,
        quotas: Quotas,
        refused: NoFit,
        forecasts: Forecasts | None = None,
    ) -> None:
        self.policy, self.now, self.bench, self.quotas = policy, now, bench, quotas
        self.refused, self._forecasts = refused, forecasts
        self.guards: list[Guard] = []
        self.places: list[Place] = []
        self.holds: list[Hold] = []
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
        self._guards_of: dict[int, list[Guard]] = {}  # by the rank of their agent
        self._kept_moves = 0  # counts every change of what is kept
        self._preempter: Preempter | None = None
        if policy.preemption is not None:
            self._preempter = Preempter(self.bench, policy, policy.preemption, now)
        # What was said to a shape, as long as it would be said again: room only shrinks, but what is kept may
        # still be had by who ends in time, and what is used of a quota grows.
        self._said: dict[object, tuple[object, ...]] = {}
        self._same_for_all = self._preempter is None and self._ranks is None
        self._plain = policy.session_types is None and not policy.exclusive
        self._same_for_all &= not policy.head_blocks and self._plain
        self._has_quotas = bool(quotas)

    def answer_all(self, queue: Line) -> None:
        """Each session of ``queue`` gets its place or its hold."""
        said, add, quotas = self._said, self.holds.append, bool(self.quotas)
        for item in queue:
            if item.plain:
                # Ten thousand that ask in vain for what others asked for in vain are told the same.
                same = said.get((item.user, item.project, item.shape) if quotas else item.shape)
                if same is not None:
                    add(_new(Hold, (item.session_id, *same)))
                    continue
            if self._answer(item):
                queue.placed(item)

    def _answer(self, item: Pending) -> bool:
        """Whether it got a place."""
        if self._blocker is not None:
            self.holds.append(Hold(item.session_id, Reason.NO_CAPACITY, (), False, False, self._blocker))
            return False
        if item.plain and self._plain:
            unmet = self.quotas.check(item) if self._has_quotas else ()
        else:
            unmet = predicates.check(item, self.policy, self.quotas, self.now)
        if unmet:
            self.holds.append(predicates.hold(item, unmet))
            return False
        tried = self._try(item)
        if isinstance(tried, Place):
            self._placed(item, tried)
            return True
        self.holds.append(tried)
        if tried.capacity:
            self._blocked(item)
        if self._same_for_all and item.plain and tried.reason in _LASTING:
            owner = (item.user, item.project, item.shape)
            self._said[owner if self._has_quotas else item.shape] = tried[1:]
        return False

    def _try(self, item: Pending) -> Place | Hold:
        try:
            found = self._spots(item)
        except SelectorFailed as error:
            agents = len(self.bench.crowd(item.shape.kind).open_to)
            refusals = (Refusal(RefusalKind.SELECTOR, str(error), agents=agents),)
            return Hold(item.session_id, Reason.SELECTOR_FAILED, refusals)
        if isinstance(found, Hold):
            return found
        if isinstance(found, Place):
            return found
        ends = self._ends(item)
        for room, takes in found:
            for guard in self._guards_of.get(room.rank, ()):
                guard.charge(takes, ends)
                self._kept_moves += 1
            self.bench.book(room, takes, ends)
            self.bench.chosen(item, room)
        return _place(item, found)

    def _spots(self, item: Pending) -> Spots | Place | Hold:
        """Where its kernels go, or why nowhere. Agents that are kept for nobody come first."""
        shape, bench = item.shape, self.bench
        if not shape.alone:
            return self._gang(item)
        demand = bench.demand(shape.total)
        known = self.refused.find(item, demand)
        if known is None or not known.but_on <= self._guards_of.keys():
            hot = self.refused.hot(shape)
            room = bench.choose(item, demand) if hot is None else bench.choose_among(hot, shape, demand)
            if room is not None:
                takes = bench.grab(room, demand, self._ends(item))
                if bench.counting or item.endpoint_id:
                    bench.chosen(item, room)
                agent_id = room.agent.agent_id
                return Place(item.session_id, item.kernel_id, item.revision, agent_id, takes)
            known = self.refused.again(item)
            if known is None:
                verdict = judge(bench.crowd(shape.kind), item, shape, demand, bench.grained)
                known = self.refused.add(item, demand, verdict)
            kept = self._guards_of.keys() & bench.crowd(shape.kind).open_ranks
            known.but_on = frozenset(rank for rank in kept if bench.rooms[rank].fits(demand))
        return self._beside(item, known)

    def _gang(self, item: Pending) -> Spots | Hold:
        spots = place_gang(self.bench, item, self.policy.fraction)
        if spots is not None:
            return spots
        answer = judge_gang(self.bench, item, self.policy.fraction)
        if item.shape.mode == "single-node":
            return self._beside(item, answer)
        return Hold(item.session_id, answer.reason, answer.refusals, True, answer.capacity)

    def _beside(self, item: Pending, known: Answer) -> Spots | Hold:
        """On an agent that is kept for another session, if that one is not delayed by it."""
        if known.guards == len(self.guards):
            return Hold(item.session_id, known.reason, known.refusals, True, known.capacity)
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
                return Hold(item.session_id, known.reason, known.refusals, True, known.capacity)
            known.denied[in_time] = self._kept_moves, behind
        return Hold(item.session_id, Reason.RESERVED, known.refusals, True, False, behind)

    def _ask_guards(self, item: Pending, ends: int | None) -> Spots | SessionId | None:
        """A place, or for whom the room is kept that it would need, or that there is none in any case."""
        demands = [self.bench.demand(demand) for demand in item.shape.demands]
        ranks = self.bench.crowd(item.shape.kind).open_ranks
        behind: SessionId | None = None
        for rank, guards in sorted(self._guards_of.items()):
            room = self.bench.rooms[rank]
            if rank not in ranks or not wanted(item, room, self.bench.grained):
                continue
            takes = room.fit_together(demands, self.policy.fraction)
            if takes is None:
                continue
            every = tuple([take for each in takes for take in each])
            if all(guard.permits(every, ends, len(takes)) for guard in guards):
                return [(room, each) for each in takes]
            behind = behind or guards[0].session_id
        return behind

    def _ends(self, item: Pending) -> int | None:
        return None if item.runs_for is None else self.now + item.runs_for

    def _placed(self, item: Pending, place: Place) -> None:
        self.places.append(place)
        if self._has_quotas:
            self.quotas.charge(item)
            if self._said:
                self._said.clear()
        if self._ranks is not None:
            self._ranks.append(item.rank)

    def _blocked(self, item: Pending) -> None:
        """Capacity refused it: it may end the pass, or have room kept for it, or made."""
        policy, first = self.policy, self._head is None
        if first:
            self._head, self._before_head = item, len(self.places)
        elif self._head is not None and self._ranks is not None and item.rank < self._head.rank:
            self._head = item
        if policy.head_blocks:
            self._blocker = item.session_id
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

    def _keep(self, reservation: Reservation, guards: list[Guard]) -> None:
        self.reservations.append(reservation)
        for guard in guards:
            room = guard.room
            if not room.guarded:
                self.bench.set_aside(room, reservation.session_id)
            self.guards.append(guard)
            self._guards_of.setdefault(room.rank, []).append(guard)
        self._kept_moves += 1
        self._said.clear()

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
            tuple(self.holds),
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
            overtaken = sum(rank > head.rank for rank in self._ranks)
        else:
            overtaken = len(self.places) - self._before_head
        return {head.session_id: head.bypassed + overtaken} if overtaken else {}


def _place(item: Pending, spots: Spots) -> Place:
    (room, takes), *rest = spots
    others = tuple(
        KernelPlace(kernel.kernel_id, other.agent.agent_id, each)
        for kernel, (other, each) in zip(item.others, rest, strict=True)
    )
    return Place(item.session_id, item.kernel_id, item.revision, room.agent.agent_id, takes, others)
