"""The planner that is told what changed decides as if it had looked at everything."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from planned_worlds import MENU, NOW, USERS, WORLD, policies

from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling import AgentState, DeviceState, Pending, Plan, Policy, plan
from moorage.manager.scheduling.core.demand import in_shares
from moorage.manager.scheduling.core.model import Quota, Running
from moorage.manager.scheduling.core.results import UnmetCondition
from moorage.manager.scheduling.incremental.planner import IncrementalPlanner
from moorage.manager.scheduling.incremental.planner_cache import PlannerCache


def agent(
    number: int, running: dict[SessionId, tuple[AgentId, Running]], available: bool = True
) -> AgentState:
    name = AgentId(f"a{number}")
    mine = tuple(kernel for where, kernel in running.values() if where == name)
    taken: dict[tuple[str, str], int] = {}
    for kernel in mine:
        for take in kernel.allocations:
            taken[take.slot, take.device_id] = taken.get((take.slot, take.device_id), 0) + take.amount
    devices = tuple(
        DeviceState(DeviceId(f"g{n}"), "cuda.device", 1000 - taken.get(("cuda.device", f"g{n}"), 0))
        for n in range(1 + number)
    )
    free = {"cpu": 4000 - taken.get(("cpu", ""), 0)}
    serves = frozenset({"process"}), frozenset({"custom"})
    return AgentState(name, *serves, free, {"cpu": 4000}, devices, available, running=mine)


@st.composite
def session(draw: st.DrawFn, number: int, simple: bool) -> Pending:
    few = ({"cuda.device": 1}, {"cuda.device": 2}, {"cuda.device": 3}, {"cpu": 2000})
    return Pending(
        SessionId(f"s{number:03}"),
        KernelId(f"k{number:03}"),
        1,
        draw(st.sampled_from([10, 10, 10, 50])),
        draw(st.integers(0, 9)) if not simple else number,
        draw(st.integers(0, 2)),
        "process",
        "custom",
        draw(st.sampled_from(few if simple else MENU)),
        user=draw(st.sampled_from(("ann", "bob") if simple else USERS)),
        time_limit=draw(st.sampled_from([None, 3, 40] if simple else [None, None, 3, 8, 40])),
        not_before=draw(st.sampled_from([None] * 12 + [NOW])) if not simple else None,
        bypassed=draw(st.sampled_from([0, 0, 100])),
    )


def in_parts(unmet: UnmetCondition) -> UnmetCondition:
    """In 1/1000 of a device: people are told of whole devices as long as no number among them is a part."""
    (slot,) = in_shares({unmet.slot: 0})
    if slot == unmet.slot:
        return unmet
    asked, used, limit = (
        in_shares({unmet.slot: amount})[slot] for amount in (unmet.requested, unmet.used, unmet.limit)
    )
    return replace(unmet, slot=slot, requested=asked, used=used, limit=limit)


class Cluster:
    """What the planner is told of, told to it as it changes."""

    def __init__(self, policy: Policy, agents: int, limit: int, gpus: int, all_gpus: int | None) -> None:
        self.policy, self.planner, self.now = policy, IncrementalPlanner("g", policy), NOW
        self.comparing = PlannerCache()
        self.running: dict[SessionId, tuple[AgentId, Running]] = {}
        self.user_of: dict[SessionId, str] = {}
        self.limit, self.agents, self.gpus, self.all_gpus = limit, agents, gpus, all_gpus
        self.new: set[SessionId] = set()
        self.silent: set[AgentId] = set()
        self.planner.update_agents(agent(number, {}) for number in range(agents))
        self.tell_quota()

    def tell_quota(self) -> None:
        mine = [name for name in self.running if self.user_of[name] == "ann"]
        quotas = [Quota("user", "ann", {}, {}, self.limit, len(mine))]
        his = sum(self.gpus_of(name) for name in self.running if self.user_of[name] == "bob")
        quotas.append(Quota("user", "bob", {"cuda.device": self.gpus}, {"cuda.shares": his}))
        if self.all_gpus is not None:
            used = {"cuda.shares": sum(map(self.gpus_of, self.running))}
            quotas.append(Quota("group", "g", {"cuda.device": self.all_gpus}, used))
        self.planner.update_quotas(quotas)

    def gpus_of(self, name: SessionId) -> int:
        return sum(take.amount for take in self.running[name][1].allocations if take.device_id)

    def changed(self, name: AgentId) -> None:
        self.planner.update_agents([agent(int(name[1:]), self.running, name not in self.silent)])
        self.tell_quota()

    def start(self, answer: Plan, keep: int) -> None:
        """The first ``keep`` places are taken; the others were stale."""
        pending = {item.session_id: item for item in self.planner.snapshot().pending}
        for place in answer.places[:keep]:
            item = pending[place.session_id]
            ends = None if item.time_limit is None else self.now + item.time_limit
            kernel = Running(place.session_id, place.kernel_id, place.allocations, ends, user=item.user)
            self.running[place.session_id] = (place.agent_id, kernel)
            self.user_of[place.session_id] = item.user
            self.planner.update_sessions((), [place.session_id])
            self.changed(place.agent_id)

    def end(self, number: int) -> None:
        if self.running:
            name = sorted(self.running)[number % len(self.running)]
            where, _ = self.running.pop(name)
            self.changed(where)

    def turn(self, number: int) -> None:
        """An agent falls silent, or is heard of again."""
        name = AgentId(f"a{number % self.agents}")
        self.silent ^= {name}
        self.changed(name)

    def give_up(self, number: int) -> None:
        """One that waits is stopped by its user."""
        waiting = sorted(self.planner.pending)
        if waiting:
            name = waiting[number % len(waiting)]
            self.planner.update_sessions((), [name])
            self.new.discard(name)

    def decide(self) -> Plan:
        whole = plan(self.planner.snapshot(), self.policy, self.now)
        answer = self.planner.plan(self.now)
        compared = self.comparing.plan(self.planner.snapshot(), self.policy, self.now)
        assert (compared.places, compared.reservations) == (whole.places, whole.reservations)
        assert answer.places == whole.places
        assert answer.reservations == whole.reservations
        assert (answer.victims, answer.bypasses) == (whole.victims, whole.bypasses)
        holds = {hold.session_id: hold for hold in whole.holds}
        told = {hold.session_id for hold in answer.holds}
        new, self.new = self.new, set()
        assert new & holds.keys() <= told, "who is new is always told something"
        for hold in answer.holds:
            same = holds[hold.session_id]
            if hold.session_id in new and hold.reason != same.reason:
                # It was not looked at, and is told how things are after the pass: others may have taken more.
                told_otherwise = {hold.reason, same.reason}
                assert Reason.QUOTA in told_otherwise or told_otherwise == {
                    Reason.RESERVED,
                    Reason.INSUFFICIENT_RESOURCES,
                }
                continue
            assert (hold.reason, hold.capacity, hold.blocked_by) == (
                same.reason,
                same.capacity,
                same.blocked_by,
            )
            # Who is told without a look is told what is used after the pass, which is not less.
            mine = {(one.kind, one.scope, one.name, one.slot): one for one in map(in_parts, hold.unmet)}
            for other in map(in_parts, same.unmet):
                found = mine[other.kind, other.scope, other.name, other.slot]
                assert replace(found, used=0) == replace(other, used=0)
                assert found.used >= other.used
        return answer


def play(data: st.DataObject, policy: Policy, steps: int, simple: bool) -> None:
    gpus = data.draw(st.integers(0, 6)), data.draw(st.none() | st.integers(3, 9))
    cluster = Cluster(policy, data.draw(st.integers(1, 3)), data.draw(st.integers(0, 4)), *gpus)
    number = 0
    for _ in range(steps):
        cluster.now += data.draw(st.sampled_from([0, 1, 10]))
        for _ in range(data.draw(st.sampled_from([1, 2, 5] if number < 4 else [0, 0, 1, 3]))):
            number += 1
            item = data.draw(session(number, simple))
            cluster.new.add(item.session_id)
            cluster.planner.update_sessions([item])
        for _ in range(data.draw(st.integers(0, 2))):
            cluster.end(data.draw(st.integers(0, 20)))
        if data.draw(st.integers(0, 3)) == 3:
            cluster.give_up(data.draw(st.integers(0, 20)))
        if data.draw(st.integers(0, 5)) == 5:
            cluster.turn(data.draw(st.integers(0, 2)))
        answer = cluster.decide()
        cluster.start(answer, data.draw(st.sampled_from([9, 9, 1, 0])))


@WORLD
@given(st.data(), policies())
def test_told_what_changed_it_decides_as_if_it_had_looked_at_everything(
    data: st.DataObject, policy: Policy
) -> None:
    play(data, policy, data.draw(st.integers(2, 6)), False)


@WORLD
@given(st.data(), policies(hol="backfill", strategy="fifo", preemption=None))
def test_and_so_where_it_really_looks_at_less(data: st.DataObject, policy: Policy) -> None:
    selection = policy.agent_selection.replace("round-robin", "dispersed")
    play(data, replace(policy, agent_selection=selection), data.draw(st.integers(4, 12)), True)


def test_a_quota_told_in_whole_devices_is_told_in_parts_once_a_part_is_used() -> None:
    # Who comes to a line that is blocked is told of the room that this pass gives away, too.
    cluster = Cluster(Policy(hol="backfill", num_retries_to_skip=0), 2, 0, 2, 3)
    waiting = [(9, {"cuda.device": 3}), (0, {"cuda.device": 3}), (4, {"cuda.shares": 1500})]
    for number, (created, slots) in enumerate(waiting):
        name, kernel = SessionId(f"s{number}"), KernelId(f"k{number}")
        item = Pending(name, kernel, 1, 10, created, 0, "process", "custom", slots, user="bob")
        cluster.new.add(name)
        cluster.planner.update_sessions([item])
        answer = cluster.decide() if number != 1 else None
    assert answer is not None
    assert [place.session_id for place in answer.places] == ["s2"]
    (told,) = [hold for hold in answer.holds if hold.session_id == "s1"]
    everybodys = [(one.slot, one.used, one.limit) for one in told.unmet if one.scope == "group"]
    assert everybodys == [("cuda.shares", 1500, 3000)]
