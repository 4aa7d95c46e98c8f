"""The incremental planner and the planner cache, checked over random histories against plans made
from scratch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planner_snapshots import JOBS, NOW, PLANS, QOS, REQUESTS, USERS, policies

from moorage.common.model.ids import AgentId, DeviceId, EndpointId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.scheduling import AgentState, DeviceState, Pending, Plan, Policy, plan
from moorage.manager.scheduling.core.demand import in_shares
from moorage.manager.scheduling.core.model import Allocation, KernelRequest, Quota, Running
from moorage.manager.scheduling.core.results import UnmetCondition
from moorage.manager.scheduling.core.shape import user_of_qos
from moorage.manager.scheduling.incremental.planner import IncrementalPlanner
from moorage.manager.scheduling.incremental.planner_cache import PlannerCache

Kernels = list[tuple[AgentId, Running]]


def agent(number: int, running: dict[SessionId, Kernels], available: bool = True) -> AgentState:
    name = AgentId(f"a{number}")
    mine = tuple(
        kernel for kernels in running.values() for where, kernel in kernels if where == name
    )
    taken: dict[tuple[str, str], int] = {}
    for kernel in mine:
        for take in kernel.allocations:
            taken[take.slot, take.device_id] = (
                taken.get((take.slot, take.device_id), 0) + take.amount
            )

    devices = tuple(
        DeviceState(DeviceId(f"g{n}"), "cuda.device", 1000 - taken.get(("cuda.device", f"g{n}"), 0))
        for n in range(1 + number)
    )
    free = {"cpu": 4000 - taken.get(("cpu", ""), 0)}
    serves = frozenset({"process"}), frozenset({"custom"})
    return AgentState(name, *serves, free, {"cpu": 4000}, devices, available, running=mine)


def cluster(
    number: int, mode: Literal["single-node", "multi-node"], *slots: dict[str, int]
) -> dict[str, Any]:
    subs = [KernelRequest(KernelId(f"k{number:03}-{n}"), one) for n, one in enumerate(slots)]
    return {"sub_kernels": tuple(subs), "mode": mode}


def constraints(number: int) -> st.SearchStrategy[dict[str, Any]]:
    """The properties that distinguish a session from others with its shape and owner."""
    return st.sampled_from(
        [
            *[{}] * 6,
            *[{"endpoint_id": EndpointId(name)} for name in "eef"],
            {"avoid": frozenset({AgentId("a0")})},
            {"designated": frozenset({AgentId("a1")})},
            {"designated": frozenset({AgentId("a9")})},
            cluster(number, "single-node", {"cuda.device": 1}),
            cluster(number, "multi-node", {"cuda.device": 1}),
            cluster(number, "multi-node", {"cpu": 1000}, {"cpu": 1000}),
            {"dependencies": "unmet", "waits_on": (SessionId("s001"),)},
            {"earlier_agents": (AgentId("a0"),)},
            {"starts_at": NOW + 10},
        ]
    )


@st.composite
def session(draw: st.DrawFn, number: int, simple: bool) -> Pending:
    few = ({"cuda.device": 1}, {"cuda.device": 2}, {"cuda.device": 3}, {"cpu": 2000})
    return Pending(
        SessionId(f"s{number:03}"),
        KernelId(f"k{number:03}"),
        revision=1,
        priority=draw(st.sampled_from([10, 10, 10, 50])),
        created=draw(st.integers(0, 9)) if not simple else number,
        retries=draw(st.integers(0, 2)),
        runtime="process",
        engine="custom",
        slots=draw(st.sampled_from(few if simple else REQUESTS)),
        user=draw(st.sampled_from(("ann", "bob") if simple else USERS)),
        qos=draw(QOS),
        time_limit=draw(st.sampled_from([None, 3, 40] if simple else [None, None, 3, 8, 40])),
        not_before=draw(st.sampled_from([None] * 12 + [NOW])) if not simple else None,
        bypassed=draw(st.sampled_from([0, 0, 100])),
        node_seconds=draw(JOBS),
        **(draw(constraints(number)) if simple else {}),
    )


def as_shares(unmet: UnmetCondition) -> UnmetCondition:
    """Amounts are counted in shares: a quota hold shows whole devices if none of its numbers is a
    fraction."""
    (slot,) = in_shares({unmet.slot: 0})
    if slot == unmet.slot:
        return unmet
    asked, used, limit = (
        in_shares({unmet.slot: amount})[slot]
        for amount in (unmet.requested, unmet.used, unmet.limit)
    )
    return replace(unmet, slot=slot, requested=asked, used=used, limit=limit)


class History:
    """A history that reports its changes to the planner."""

    def __init__(
        self,
        policy: Policy,
        agents: int,
        limit: int,
        gpus: int,
        *,
        all_gpus: int | None,
        node_seconds: int | None = None,
    ) -> None:
        self.policy = policy
        self.planner = IncrementalPlanner("g", policy)
        self.now = NOW
        self.cache = PlannerCache()
        self.running: dict[SessionId, Kernels] = {}
        self.user_of: dict[SessionId, str] = {}
        self.qos_of: dict[SessionId, str] = {}
        self.limit = limit
        self.agents = agents
        self.gpus = gpus
        self.all_gpus = all_gpus
        self.node_seconds = node_seconds
        self.used_of_job = dict[SessionId, int]()
        self.new: set[SessionId] = set()
        self.silent: set[AgentId] = set()
        self.planner.update_agents(agent(number, {}) for number in range(agents))
        self.report_quotas()

    def report_quotas(self) -> None:
        mine = [name for name in self.running if self.user_of[name] == "ann"]
        quotas = [Quota("group-user", "ann", {}, {}, self.limit, len(mine))]
        debugged = [name for name in self.running if self.qos_of[name] == "debug"]
        anns = [name for name in mine if name in debugged]
        quotas.append(Quota("qos", "debug", {}, {}, 2, len(debugged)))
        quotas.append(Quota("qos-user", user_of_qos("debug", "ann"), {}, {}, 1, len(anns)))
        bobs = sum(self.gpus_of(name) for name in self.running if self.user_of[name] == "bob")
        jobs = sum(used for name, used in self.used_of_job.items() if self.user_of[name] == "bob")
        gpus = {"cuda.device": self.gpus}
        used = {"cuda.shares": bobs}
        hours = {"node_seconds": self.node_seconds, "node_seconds_used": jobs}
        quotas.append(Quota("user", "bob", gpus, used, **hours))  # type: ignore[arg-type]
        if self.all_gpus is not None:
            used = {"cuda.shares": sum(map(self.gpus_of, self.running))}
            quotas.append(Quota("group", "g", {"cuda.device": self.all_gpus}, used))

        self.planner.update_quotas(quotas)

    def gpus_of(self, name: SessionId) -> int:
        takes = [take for _, kernel in self.running[name] for take in kernel.allocations]
        return sum(take.amount for take in takes if take.device_id)

    def report_agent(self, name: AgentId) -> None:
        self.planner.update_agents([agent(int(name[1:]), self.running, name not in self.silent)])
        self.report_quotas()

    def start(self, answer: Plan, keep: int) -> None:
        """Commit the first ``keep`` placements; the others are stale."""
        pending = {item.session_id: item for item in self.planner.snapshot().pending}
        for place in answer.places[:keep]:
            item = pending[place.session_id]
            ends = None if item.time_limit is None else self.now + item.time_limit
            self.running[place.session_id] = [
                (
                    kernel.agent_id,
                    Running(
                        place.session_id,
                        kernel.kernel_id,
                        kernel.allocations,
                        ends,
                        user=item.user,
                        endpoint_id=item.endpoint_id,
                    ),
                )
                for kernel in place.kernels
            ]
            self.user_of[place.session_id] = item.user
            self.qos_of[place.session_id] = item.qos
            self.used_of_job[place.session_id] = item.node_seconds
            self.planner.update_sessions((), [place.session_id])
            for kernel in place.kernels:
                self.report_agent(kernel.agent_id)

    def end(self, number: int) -> None:
        if self.running:
            name = sorted(self.running)[number % len(self.running)]
            self.used_of_job[name] //= 2  # earlier than its walltime
            for where, _ in self.running.pop(name):
                self.report_agent(where)

    def turn_of_month(self) -> None:
        self.used_of_job.clear()
        self.used_of_job |= dict.fromkeys(self.running, 1)
        self.report_quotas()

    def toggle_agent(self, number: int) -> None:
        """An agent becomes unavailable, or available again."""
        name = AgentId(f"a{number % self.agents}")
        self.silent ^= {name}
        self.report_agent(name)

    def cancel(self, number: int) -> None:
        """A user cancels a pending session."""
        waiting = sorted(self.planner.pending)
        if waiting:
            name = waiting[number % len(waiting)]
            self.planner.update_sessions((), [name])
            self.new.discard(name)

    def meet(self, number: int) -> None:
        """A pending session's dependencies are met, and its earlier attempts have ended."""
        waiting = [
            item
            for item in self.planner.snapshot().pending
            if item.dependencies != "met" or item.earlier_agents
        ]
        if waiting:
            item = waiting[number % len(waiting)]
            self.new.add(item.session_id)
            self.planner.update_sessions(
                [replace(item, dependencies="met", waits_on=(), earlier_agents=())]
            )

    def plan(self) -> Plan:
        full = plan(self.planner.snapshot(), self.policy, self.now)
        answer = self.planner.plan(self.now)
        cached = self.cache.plan(self.planner.snapshot(), self.policy, self.now)
        assert (cached.places, cached.reservations) == (full.places, full.reservations)
        assert answer.places == full.places
        assert answer.reservations == full.reservations
        assert (answer.victims, answer.bypasses) == (full.victims, full.bypasses)
        holds = {hold.session_id: hold for hold in full.holds}
        held = {hold.session_id for hold in answer.holds}
        new = self.new
        self.new = set()
        assert new & holds.keys() <= held, "every new session that is held gets a hold"

        for hold in answer.holds:
            same = holds[hold.session_id]
            if hold.session_id in new and hold.reason != same.reason:
                # It was not examined, so its hold shows the state at the end of the pass, when
                # others may have taken more.
                reasons = {hold.reason, same.reason}
                assert reasons & {Reason.QUOTA, Reason.NODE_HOURS} or reasons == {
                    Reason.RESERVED,
                    Reason.INSUFFICIENT_RESOURCES,
                }
                continue

            assert (hold.reason, hold.capacity, hold.blocked_by) == (
                same.reason,
                same.capacity,
                same.blocked_by,
            )
            # A session that was not examined reports the usage after the pass, which is not lower.
            mine = {
                (one.kind, one.scope, one.name, one.slot): one for one in map(as_shares, hold.unmet)
            }
            for other in map(as_shares, same.unmet):
                found = mine[other.kind, other.scope, other.name, other.slot]
                assert replace(found, used=0) == replace(other, used=0)
                assert found.used >= other.used

        return answer


def run_history(data: st.DataObject, policy: Policy, steps: int, simple: bool) -> None:
    gpus = data.draw(st.integers(0, 6))
    all_gpus = data.draw(st.none() | st.integers(3, 9))
    node_seconds = data.draw(st.none() | st.integers(0, 9))
    history = History(
        policy,
        data.draw(st.integers(1, 3)),
        data.draw(st.integers(0, 4)),
        gpus,
        all_gpus=all_gpus,
        node_seconds=node_seconds,
    )
    number = 0
    for _ in range(steps):
        history.now += data.draw(st.sampled_from([0, 1, 10]))
        for _ in range(data.draw(st.sampled_from([1, 2, 5] if number < 4 else [0, 0, 1, 3]))):
            number += 1
            item = data.draw(session(number, simple))
            history.new.add(item.session_id)
            history.planner.update_sessions([item])

        for _ in range(data.draw(st.integers(0, 2))):
            history.end(data.draw(st.integers(0, 20)))

        if data.draw(st.integers(0, 3)) == 3:
            history.cancel(data.draw(st.integers(0, 20)))
        if data.draw(st.integers(0, 3)) == 3:
            history.meet(data.draw(st.integers(0, 20)))
        if data.draw(st.integers(0, 5)) == 5:
            history.toggle_agent(data.draw(st.integers(0, 2)))
        if data.draw(st.integers(0, 5)) == 5:
            history.turn_of_month()

        answer = history.plan()
        history.start(answer, data.draw(st.sampled_from([9, 9, 1, 0])))


@PLANS
@given(st.data(), policies())
def test_plans_equal_those_from_scratch(data: st.DataObject, policy: Policy) -> None:
    run_history(data, policy, data.draw(st.integers(2, 6)), False)


@PLANS
@given(st.data(), policies(hol="backfill", strategy="fifo", preemption=None))
def test_plans_equal_those_from_scratch_where_it_is_incremental(
    data: st.DataObject, policy: Policy
) -> None:
    selection = policy.agent_selection.replace("round-robin", "dispersed")
    run_history(
        data, replace(policy, agent_selection=selection), data.draw(st.integers(4, 12)), True
    )


@PLANS
@given(st.data(), policies(hol="backfill", strategy="fifo", preemption=None, max_skip_age=0))
def test_plans_equal_those_from_scratch_where_all_sessions_are_overdue(
    data: st.DataObject, policy: Policy
) -> None:
    selection = policy.agent_selection.replace("round-robin", "dispersed")
    run_history(
        data, replace(policy, agent_selection=selection), data.draw(st.integers(2, 6)), True
    )


def test_overdue_sessions_that_a_reserved_node_refuses_get_reservations_in_turn() -> None:
    """They fit on no node, and were refused while a node with enough room for them was reserved."""
    history = History(
        Policy(hol="backfill", num_retries_to_skip=0, max_skip_age=0), 1, 9, 9, all_gpus=None
    )
    waiting = [("cuda.device", 1, None)] * 2 + [("cpu", 2000, None)] * 2 + [("cpu", 2000, 3)] * 2
    for number, (slot, amount, limit) in enumerate(waiting):
        name = SessionId(f"s{number}")
        kernel = KernelId(f"k{number}")
        item = Pending(
            name,
            kernel,
            revision=1,
            priority=10,
            created=number,
            retries=0,
            runtime="process",
            engine="custom",
            slots={slot: amount},
            user="ann",
            time_limit=limit,
        )
        history.planner.update_sessions([item])

    answer = history.plan()
    assert [place.session_id for place in answer.places] == ["s0", "s2", "s3"]
    assert [one.session_id for one in answer.reservations] == ["s1", "s4", "s5"]


CONSTRAINTS: dict[str, dict[str, Any]] = {
    "a replica": {"endpoint_id": EndpointId("e")},
    "a retry": {"avoid": frozenset({AgentId("a0")})},
    "a named agent": {"designated": frozenset({AgentId("a1")})},
    "a cluster": cluster(0, "multi-node", {"cuda.device": 1}),
    "a dependency": {"dependencies": "unmet", "waits_on": (SessionId("s001"),)},
    "an earlier attempt": {"earlier_agents": (AgentId("a0"),)},
}


@pytest.mark.parametrize("one", CONSTRAINTS)
def test_pass_without_changes_examines_few_sessions_whatever_one_of_them_waits_for(
    one: str,
) -> None:
    def waiting(number: int, **constraints: Any) -> Pending:
        name = SessionId(f"s{number:03}")
        kernel = KernelId(f"k{number:03}")
        gpu = {"cuda.device": 1}
        return Pending(
            name,
            kernel,
            revision=1,
            priority=10,
            created=number,
            retries=0,
            runtime="process",
            engine="custom",
            slots=gpu,
            **constraints,
        )

    taken = {SessionId(f"r{n}"): busy(n) for n in range(2)}
    planner = IncrementalPlanner("g", Policy())
    planner.update_agents(agent(n, taken) for n in range(2))
    planner.update_sessions([waiting(0, **CONSTRAINTS[one]), *map(waiting, range(1, 200))])
    assert len(planner.plan(NOW).holds) == 200
    assert len(planner.plan(NOW + 1).holds) <= 3


def busy(number: int) -> Kernels:
    """All devices of an agent are in use."""
    held = tuple(Allocation("cuda.device", DeviceId(f"g{n}"), 1000) for n in range(1 + number))
    return [
        (AgentId(f"a{number}"), Running(SessionId(f"r{number}"), KernelId(f"rk{number}"), held))
    ]


def test_quota_hold_shows_shares_once_a_fraction_is_used() -> None:
    history = History(Policy(hol="backfill", num_retries_to_skip=0), 2, 0, 2, all_gpus=3)
    waiting = [(9, {"cuda.device": 3}), (0, {"cuda.device": 3}), (4, {"cuda.shares": 1500})]
    for number, (created, slots) in enumerate(waiting):
        name = SessionId(f"s{number}")
        kernel = KernelId(f"k{number}")
        item = Pending(
            name,
            kernel,
            revision=1,
            priority=10,
            created=created,
            retries=0,
            runtime="process",
            engine="custom",
            slots=slots,
            user="bob",
        )
        history.new.add(name)
        history.planner.update_sessions([item])
        answer = history.plan() if number != 1 else None

    assert answer is not None
    assert [place.session_id for place in answer.places] == ["s2"]
    (hold_of_s1,) = [hold for hold in answer.holds if hold.session_id == "s1"]
    of_group = [(one.slot, one.used, one.limit) for one in hold_of_s1.unmet if one.scope == "group"]
    assert of_group == [("cuda.shares", 1500, 3000)]
