"""Vacancies: the sessions that may be stopped, and the free capacity of each node once they have
ended.

Cached by node, because every search in a pass looks at all nodes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence

from moorage.common.model.ids import SessionId
from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.model import Pending, Running
from moorage.manager.scheduling.core.policy import Preemption
from moorage.manager.scheduling.placement.free_capacity import Allocations, FreeCapacity
from moorage.manager.scheduling.placement.node_state import NodeState
from moorage.manager.scheduling.planning.victims import VictimCandidate, gains_of, release

# (time, allocations, session); the session is None for allocations planned by this pass
Event = tuple[int, Allocations, SessionId | None]


class _NodeView:
    """Cache of one node: by owner and level (see ``Vacancies.free``), and with the slot for
    ``gains``. ``planned``: number of places that this pass had planned there."""

    __slots__ = ("candidates", "free", "gains", "planned")

    def __init__(self) -> None:
        self.planned = 0
        self.free: dict[tuple[str | None, int], FreeCapacity] = {}
        self.candidates: dict[tuple[str | None, int], list[VictimCandidate]] = {}
        self.gains: dict[tuple[str | None, int, str], list[int]] = {}


def owner_of(session: Pending | Running, rules: Preemption) -> str | None:
    """The owner whose sessions may be stopped for this session, and for whose sessions this one may
    be stopped; None means anyone."""
    return {"all": None, "same-project": session.project, "same-user": session.user}[rules.among]


def stop_time(running: Running, rules: Preemption) -> int:
    """Maximum microseconds from its stop to its end."""
    return rules.grace if running.stop_time is None else running.stop_time


class Vacancies:
    """``look_for`` starts a search. ``any_terminating``: whether a session is already being
    stopped; known after ``levels``."""

    def __init__(
        self, nodes: Sequence[NodeState], fraction: str, rules: Preemption, now: int
    ) -> None:
        self._nodes = nodes
        self._fraction = fraction
        self._rules = rules
        self._now = now
        self._deadline = now + rules.grace
        self._victims: set[SessionId] = set()
        self._owner: str | None = None
        self._priorities: dict[str | None, list[int]] | None = (
            None  # levels of the candidates by owner, lowest first
        )
        self._on_node: dict[int, list[VictimCandidate]] = {}  # in the victim order
        self._views: dict[int, _NodeView] = {}
        self.any_terminating = False

    def look_for(self, owner: str | None) -> None:
        """Only sessions of ``owner`` may be stopped; None means anyone's, where the rules allow
        it."""
        self._owner = owner

    def levels(self, priority: int) -> list[int]:
        """Priorities of the candidates below ``priority``, lowest first."""
        if self._priorities is None:
            found: dict[str | None, set[int]] = {}
            for candidate in self._find_candidates():
                found.setdefault(candidate.owner, set()).add(candidate.priority)
                for rank in candidate.kernels:
                    self._on_node.setdefault(rank, []).append(candidate)

            self._priorities = {owner: sorted(priorities) for owner, priorities in found.items()}

        own = self._priorities.get(self._owner, [])
        return own[: bisect_left(own, priority)]

    def _find_candidates(self) -> list[VictimCandidate]:
        rules = self._rules
        now = self._now
        kernels: dict[SessionId, dict[int, list[Running]]] = {}
        protected: set[SessionId] = set()
        for node in self._nodes:
            for running in node.agent.running:
                self.any_terminating = self.any_terminating or running.terminating
                if self._ends_by_itself(running):
                    continue

                if not running.preemptible or now - running.started_at < rules.min_runtime:
                    protected.add(running.session_id)
                else:
                    kernels.setdefault(running.session_id, {}).setdefault(node.rank, []).append(
                        running
                    )

        def order(session_id: SessionId) -> tuple[int, int, int, str]:
            own = [running for each in kernels[session_id].values() for running in each]
            held = [allocation for running in own for allocation in running.allocations]
            size = sum(allocation.amount for allocation in held if allocation.device_id)
            started = max(running.started_at for running in own)
            age = -started if rules.order == "newest" else started
            return own[0].priority, size if rules.order == "smallest" else 0, age, session_id

        keys = sorted(order(session_id) for session_id in kernels if session_id not in protected)
        found = []
        for position, (priority, _, _, name) in enumerate(keys):
            own = kernels[SessionId(name)]
            first = next(iter(own.values()))[0]
            found.append(
                VictimCandidate(
                    position, SessionId(name), priority, owner_of(first, rules), kernels=own
                )
            )

        return found

    def _ends_by_itself(self, running: Running) -> bool:
        """Whether it ends before the grace period would end, or is already being stopped."""
        return running.terminating or (
            running.ends_at is not None and running.ends_at <= self._deadline
        )

    def _stopped_at(self, running: Running) -> int:
        """The latest time at which it will have ended if it is stopped now."""
        return self._now + stop_time(running, self._rules)

    def events(self, node: NodeState, stopped: Collection[SessionId]) -> list[Event]:
        """Capacity that becomes free on the node, by time, if ``stopped`` are stopped now. Work
        that ends by itself is included only if it ends before the grace period would end."""
        now = self._now
        deadline = self._deadline
        events: list[Event] = []
        for running in node.agent.running:
            if self._ends_by_itself(running):
                at = (
                    self._stopped_at(running)
                    if running.ends_at is None
                    else max(running.ends_at, now)
                )
            elif running.session_id in stopped or running.session_id in self._victims:
                at = self._stopped_at(running)
            else:
                continue

            events.append((at, running.allocations, running.session_id))

        for ends_at, allocations in node.planned:
            if ends_at is not None and ends_at <= deadline:
                events.append((ends_at, allocations, None))

        return sorted(events, key=lambda event: (event[0], event[2] or ""))

    def free(self, node: NodeState, level: int) -> FreeCapacity:
        """Capacity that will be free if all candidates up to the priority ``level`` are stopped
        now. Level -1: no candidate is stopped."""
        view = self._view(node)
        key = (self._owner if level >= 0 else None, level)
        if view.planned != len(node.planned):
            view.planned = len(node.planned)
            view.free.clear()

        known = view.free.get(key)
        if known is not None:
            return known

        if level < 0:
            capacity = node.copy()
            for _, allocations, _ in self.events(node, ()):
                capacity.release(allocations)
        else:
            capacity = self.free(node, -1).copy()
            for candidate in self.candidates_on(node, level):
                release(capacity, candidate, node.rank)

        view.free[key] = capacity
        return capacity

    def _view(self, node: NodeState) -> _NodeView:
        view = self._views.get(node.rank)
        if view is None:
            view = self._views[node.rank] = _NodeView()
        return view

    def candidates_on(self, node: NodeState, level: int) -> list[VictimCandidate]:
        """Candidates up to the priority ``level``, in the victim order."""
        candidates = self._view(node).candidates
        found = candidates.get((self._owner, level))
        if found is None:
            found = candidates[self._owner, level] = [
                candidate
                for candidate in self._on_node.get(node.rank, ())
                if candidate.owner == self._owner
                and candidate.priority <= level
                and candidate.session_id not in self._victims
            ]

        return found

    def gains_on(self, node: NodeState, level: int, slot: str) -> list[int]:
        """How much of ``slot`` each of these candidates may free at most, largest first."""
        known = self._view(node).gains
        gains = known.get((self._owner, level, slot))
        if gains is None:
            gains = known[self._owner, level, slot] = gains_of(
                self.candidates_on(node, level), slot, node.rank
            )
        return gains

    def starts_at(
        self, node: NodeState, demands: tuple[Demand, ...], stopped: Collection[SessionId]
    ) -> int:
        """The first time at which ``demands`` fit; they must fit eventually."""
        capacity = node.copy()
        starts_at = self._now
        for at, allocations, _ in self.events(node, stopped):
            if capacity.fits_all(demands, self._fraction):
                break

            capacity.release(allocations)
            starts_at = at

        return starts_at

    def fits(
        self, node: NodeState, demands: tuple[Demand, ...], stopped: Iterable[VictimCandidate]
    ) -> bool:
        return self.free_without(node, stopped).fits_all(demands, self._fraction)

    def free_without(self, node: NodeState, stopped: Iterable[VictimCandidate]) -> FreeCapacity:
        """Capacity that is eventually free if ``stopped`` are stopped now. Read-only."""
        capacity = known = self.free(node, -1)
        for candidate in stopped:
            if node.rank in candidate.kernels:
                capacity = known.copy() if capacity is known else capacity
                release(capacity, candidate, node.rank)
        return capacity

    def stop(self, victims: Iterable[VictimCandidate]) -> bool:
        """Remove them from the candidates and count what they free, on every agent. Returns whether
        there is more than one agent."""
        ranks: set[int] = set()
        for victim in victims:
            self._victims.add(victim.session_id)
            ranks.update(victim.kernels)
        for rank in ranks:
            self._views.pop(rank, None)
        return len(ranks) > 1
