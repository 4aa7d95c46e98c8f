"""Properties of every plan: clusters, capacity, quotas, reservations, fair shares and
preemption."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from planner_snapshots import (
    NOW,
    PLANS,
    USERS,
    add,
    any_snapshot,
    busy_snapshots,
    can_be_helped,
    fit,
    free_amounts,
    head_with_backfill,
    kernel_places,
    policies,
    shuffled,
    small_quota,
)

from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.manager.scheduling import (
    AgentState,
    DeviceState,
    Pending,
    Plan,
    Policy,
    Snapshot,
    plan,
)
from moorage.manager.scheduling.backfill.reservation import MAX_HOLDING
from moorage.manager.scheduling.core.model import Quota, Running
from moorage.manager.scheduling.core.order import is_overdue, overdue_key
from moorage.manager.scheduling.core.policy import Preemption
from moorage.manager.scheduling.core.results import Reservation


@PLANS
@given(any_snapshot(), policies(), st.integers())
def test_plan_does_not_depend_on_the_order_of_rows(
    snapshot: Snapshot, policy: Policy, seed: int
) -> None:
    answer = plan(snapshot, policy, NOW)
    assert (
        answer
        == plan(snapshot, policy, NOW)
        == plan(shuffled(snapshot, random.Random(seed)), policy, NOW)
    )


@PLANS
@given(any_snapshot(), policies())
def test_every_session_gets_one_place_or_hold(snapshot: Snapshot, policy: Policy) -> None:
    answer = plan(snapshot, policy, NOW)
    answered = Counter([p.session_id for p in answer.places] + [h.session_id for h in answer.holds])
    assert answered == Counter(item.session_id for item in snapshot.pending)
    waiting = {hold.session_id for hold in answer.holds}
    assert {reservation.session_id for reservation in answer.reservations} <= waiting
    assert {victim.for_session for victim in answer.victims} <= waiting


@PLANS
@given(any_snapshot(), policies())
def test_clusters_are_complete_and_get_their_request(snapshot: Snapshot, policy: Policy) -> None:
    pending = {item.session_id: item for item in snapshot.pending}
    by_id = {agent.agent_id: agent for agent in snapshot.agents}
    for place in plan(snapshot, policy, NOW).places:
        item = pending[place.session_id]
        assert [k.kernel_id for k in place.kernels] == [k.kernel_id for k in item.kernels]
        agents = [kernel.agent_id for kernel in place.kernels]
        assert len(set(agents)) == (1 if item.mode == "single-node" else len(agents))

        for asked, kernel in zip(item.kernels, place.kernels, strict=True):
            agent = by_id[kernel.agent_id]
            assert agent.schedulable
            assert not (agent.dials_out and len(set(agents)) > 1)
            assert kernel.agent_id not in item.avoid
            assert item.arch in ("", agent.arch)
            given_: Counter[str] = Counter()
            for take in kernel.allocations:
                assert take.amount > 0
                given_[take.slot] += take.amount

            shares = asked.slots.get("cuda.device", 0) * 1000 + asked.slots.get("cuda.shares", 0)
            wanted = {slot: asked.slots.get(slot, 0) for slot in ("cpu", "mem")} | {
                "cuda.device": shares
            }
            assert given_ == +Counter(wanted)


@PLANS
@given(any_snapshot(), policies())
def test_nothing_is_allocated_twice(snapshot: Snapshot, policy: Policy) -> None:
    used: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    kernels: Counter[str] = Counter()
    for _, kernel in kernel_places(plan(snapshot, policy, NOW)):
        kernels[kernel.agent_id] += 1
        for take in kernel.allocations:
            used[kernel.agent_id, take.slot, take.device_id] += take.amount

    for agent in snapshot.agents:
        for (slot, device_id), free in free_amounts(agent).items():
            assert used.pop((agent.agent_id, slot, device_id), 0) <= free

        if agent.max_kernels is not None and kernels[agent.agent_id]:
            assert agent.kernels + kernels[agent.agent_id] <= agent.max_kernels

    assert not used


@PLANS
@given(st.one_of(any_snapshot(), small_quota()), policies())
def test_no_quota_is_exceeded(snapshot: Snapshot, policy: Policy) -> None:
    placed = {place.session_id for place in plan(snapshot, policy, NOW).places}
    for quota in snapshot.quotas:
        mine = [p for p in snapshot.pending if p.session_id in placed and _counts(p, quota)]
        if mine and quota.sessions is not None:
            assert quota.running + len(mine) <= quota.sessions

        jobs = sum(item.node_seconds for item in mine)
        if jobs and quota.node_seconds is not None:
            assert quota.node_seconds_used + jobs <= quota.node_seconds

        for slot, limit in quota.limits.items():
            scale = 1000 if slot == "cuda.device" else 1
            asked = [_asked(item, slot) for item in mine]
            before = quota.used.get("cuda.shares", 0) if scale > 1 else quota.used.get(slot, 0)
            if any(asked):
                assert before + sum(asked) <= limit * scale


def _counts(item: Pending, quota: Quota) -> bool:
    if quota.scope == "qos":
        return item.qos == quota.name
    if quota.scope == "qos-user":
        return f"{item.qos}:{item.user}" == quota.name
    return item.user == quota.name


def _asked(item: Pending, slot: str) -> int:
    if slot == "cuda.device":
        return sum(
            k.slots.get(slot, 0) * 1000 + k.slots.get("cuda.shares", 0) for k in item.kernels
        )
    return sum(kernel.slots.get(slot, 0) for kernel in item.kernels)


@PLANS
@given(any_snapshot(), policies(hol="strict", max_bypasses=None, max_skip_age=None))
def test_strict_never_overtakes_within_a_priority(snapshot: Snapshot, policy: Policy) -> None:
    """Nor does a session for which no reservation is possible now block others."""
    answer = plan(snapshot, replace(policy, strategy="fifo", preemption=None), NOW)
    places = {place.session_id for place in answer.places}
    pending = {item.session_id: item for item in snapshot.pending}
    blocked = [hold.session_id for hold in answer.holds if hold.capacity]
    blocked = [name for name in blocked if can_be_helped(snapshot, pending[name])]
    assert len(blocked) <= 1

    for name in blocked:
        head = pending[name]
        later = [
            p
            for p in snapshot.pending
            if p.queue_key > head.queue_key and p.priority == head.priority
        ]
        assert not places & {p.session_id for p in later}


def world_at(
    snapshot: Snapshot, answer: Plan, agent_id: AgentId, at: int
) -> dict[tuple[str, str], int]:
    """The capacity that is free on the agent at ``at``, once everything whose end time is known and
    not later has ended."""
    (agent,) = (agent for agent in snapshot.agents if agent.agent_id == agent_id)
    unhealthy = {str(d.device_id) for d in agent.devices if not d.healthy}
    free = free_amounts(agent)
    for running in agent.running:
        if running.ends_at is not None and max(running.ends_at, NOW) <= at:
            free = add(
                free,
                tuple(take for take in running.allocations if take.device_id not in unhealthy),
                1,
            )

    pending = {item.session_id: item for item in snapshot.pending}
    for session_id, kernel in kernel_places(answer):
        time_limit = pending[session_id].time_limit
        if kernel.agent_id == agent_id and (time_limit is None or NOW + time_limit > at):
            free = add(free, kernel.allocations, -1)

    return free


def holds_true(snapshot: Snapshot, answer: Plan, reservation: Reservation) -> bool:
    (head,) = (item for item in snapshot.pending if item.session_id == reservation.session_id)
    kernels = [kernel.slots for kernel in head.kernels]
    assert reservation.starts_at is not None
    parts = [[slots] for slots in kernels] if head.mode == "multi-node" else [kernels]
    return all(
        fit(world_at(snapshot, answer, agent_id, reservation.starts_at), part)
        for agent_id, part in zip(reservation.agents, parts, strict=True)
    )


@PLANS
@given(st.one_of(any_snapshot(), head_with_backfill()), policies(hol="backfill", preemption=None))
def test_backfill_never_delays_the_reservation_of_the_head(
    snapshot: Snapshot, policy: Policy
) -> None:
    """With all placements of the plan in effect, the head still fits when its reservation
    starts."""
    answer = plan(snapshot, policy, NOW)
    for reservation in answer.reservations:
        if reservation.basis == "ends":
            assert holds_true(snapshot, answer, reservation)


@PLANS
@given(any_snapshot(), policies(preemption=None))
def test_overdue_sessions_and_the_first_blocked_one_get_reservations(
    snapshot: Snapshot, policy: Policy
) -> None:
    answer = plan(snapshot, policy, NOW)
    pending = {item.session_id: item for item in snapshot.pending}
    refused = [pending[hold.session_id] for hold in answer.holds if hold.capacity]
    blocked = [item for item in refused if can_be_helped(snapshot, item)]
    late = [item for item in snapshot.pending if is_overdue(item, policy, NOW)]
    heads = sorted((item for item in blocked if item not in late), key=lambda item: item.queue_key)
    reserved = {reservation.session_id for reservation in answer.reservations}

    # The first session in the strategy's order that is not overdue may reserve, and the oldest of
    # them counts the sessions that overtake it. drf's order depends on what was placed before.
    first = {"fifo": heads, "lifo": sorted(reversed(heads), key=_by_priority), "drf": heads}[
        policy.strategy
    ]
    may_reserve = (
        (first if policy.strategy == "drf" else first[:1])
        if policy.hol == "backfill" and not reserved & {i.session_id for i in late}
        else []
    )
    assert reserved <= {item.session_id for item in (*late, *may_reserve)}
    if policy.hol != "strict":
        waiting = sorted((item for item in blocked if item in late), key=overdue_key)
        assert {item.session_id for item in waiting[:MAX_HOLDING]} <= reserved

    for name, count in answer.bypasses.items():
        placed = [
            pending[place.session_id].queue_key > pending[name].queue_key for place in answer.places
        ]
        assert name == heads[0].session_id
        assert count == pending[name].bypassed + sum(placed) > pending[name].bypassed

    for hold in answer.holds:
        assert (hold.blocked_by is not None) == (hold.reason == "reserved" or not hold.attempted)


def _by_priority(item: Pending) -> int:
    return -item.priority


def test_bypasses_count_for_the_oldest_session_of_a_shape() -> None:
    """With lifo, the older session shares the refusal of the younger one, which has the same
    shape."""
    policy = Policy("backfill", 0, strategy="lifo", max_bypasses=3, max_skip_age=None)
    waiting = [_one("oldest", 0, 2), _one("younger", 1, 2), _one("youngest", 2, 1)]
    answer = plan(_gpus_world([2], {}, waiting), policy, NOW)
    assert [place.session_id for place in answer.places] == ["youngest"]
    assert answer.bypasses == {"oldest": 1}


@st.composite
def rush(draw: st.DrawFn) -> tuple[list[int], list[int], int, str]:
    """The number of GPUs per agent, the number of passes for which each newcomer runs, the bound,
    and the mode."""
    gpus = draw(st.lists(st.integers(2, 3), min_size=1, max_size=3))
    stays = draw(st.lists(st.integers(1, 4), min_size=40, max_size=40))
    return gpus, stays, draw(st.integers(0, 4)), draw(st.sampled_from(["skip", "backfill"]))


@PLANS
@given(rush())
def test_blocked_head_starts_within_its_bound(drawn: tuple[list[int], list[int], int, str]) -> None:
    """Sessions that need one GPU keep arriving without a known end time, and the queue head needs
    all GPUs of an agent. Once ``bound`` of them have overtaken it, an agent is held until it is
    free."""
    gpus, stays, bound, hol = drawn
    policy = Policy(hol, 1, max_bypasses=bound, max_skip_age=None)  # type: ignore[arg-type]
    head = _one("head", 0, max(gpus))
    live: dict[SessionId, tuple[AgentId, tuple[object, ...], int]] = {}
    arrivals = iter(stays)
    queue: list[Pending] = [_one(f"first-{n}", -1, 1) for n in range(sum(gpus))] + [head]

    # No session runs for more than four passes, so in at least one of five passes a session
    # overtakes the head until an agent is held.
    for number in range(5 * bound + 10):
        answer = plan(_gpus_world(gpus, live, queue), policy, NOW)
        for place in answer.places:
            live[place.session_id] = (place.agent_id, place.allocations, number + next(arrivals, 1))

        if head.session_id in live:
            return

        bypassed = answer.bypasses.get(head.session_id, head.bypassed)
        head = replace(head, bypassed=bypassed, retries=head.retries + 1)
        live = {name: kept for name, kept in live.items() if kept[2] > number}
        gone = {place.session_id for place in answer.places}
        rest = [item for item in queue if item.session_id not in gone and item.session_id != "head"]
        queue = [head, *rest, *(_one(f"new-{number}-{n}", number + 1, 1) for n in range(3))]

    raise AssertionError("the head never started")


def _one(name: str, created: int, gpus: int) -> Pending:
    slots = {"cuda.device": gpus}
    return Pending(
        SessionId(name),
        KernelId(name),
        revision=1,
        priority=10,
        created=created + 10,
        retries=0,
        runtime="process",
        engine="custom",
        slots=slots,
    )


def _gpus_world(
    gpus: list[int],
    live: dict[SessionId, tuple[AgentId, tuple[object, ...], int]],
    queue: list[Pending],
) -> Snapshot:
    states = []
    for number, count in enumerate(gpus):
        agent_id = AgentId(f"a{number}")
        running = tuple(
            Running(name, KernelId(name), takes)  # type: ignore[arg-type]
            for name, (where, takes, _) in live.items()
            if where == agent_id
        )
        used = {allocation.device_id for r in running for allocation in r.allocations}
        devices = tuple(
            DeviceState(DeviceId(f"{n}"), "cuda.device", 0 if f"{n}" in used else 1000)
            for n in range(count)
        )
        states.append(
            AgentState(
                agent_id,
                frozenset({"process"}),
                engines=frozenset({"custom"}),
                free={},
                capacity={},
                devices=devices,
                running=running,
            )
        )

    return Snapshot("g", tuple(states), tuple(queue))


@PLANS
@given(
    st.integers(1, 12),
    st.fixed_dictionaries(dict.fromkeys(USERS, st.integers(1, 3))),
    st.lists(st.tuples(st.sampled_from(USERS), st.integers(0, 5)), min_size=6, max_size=20),
    st.dictionaries(st.sampled_from(USERS), st.integers(0, 8)),
)
def test_drf_is_envy_free(
    gpus: int, weights: dict[str, int], asked: list[tuple[str, int]], used: dict[str, int]
) -> None:
    """With equal requests, a user whose session was placed in this pass is ahead of any waiting
    user by at most one request, scaled by weight."""
    pending = [
        replace(_one(f"s{number}", created, 1), user=user)
        for number, (user, created) in enumerate(asked)
    ]
    world = replace(
        _gpus_world([gpus], {}, pending),
        usage={user: {"cuda.device": amount} for user, amount in used.items()},
    )
    policy = Policy("skip", strategy="drf", weights=weights, max_skip_age=None)
    answer = plan(world, policy, NOW)
    user_of = {item.session_id: item.user for item in pending}
    has = Counter(used) + Counter(user_of[place.session_id] for place in answer.places)
    for winner in {user_of[place.session_id] for place in answer.places}:
        for loser in {user_of[hold.session_id] for hold in answer.holds} - {winner}:
            assert (has[winner] - 1) * weights[loser] <= has[loser] * weights[winner]

    assert len(answer.places) == min(gpus, len(asked))


@PLANS
@given(st.one_of(any_snapshot(), busy_snapshots(1)), policies(preemption=Preemption(grace=20)))
def test_victims_have_lower_priority_and_are_all_needed(snapshot: Snapshot, policy: Policy) -> None:
    answer = plan(snapshot, policy, NOW)
    pending = {item.session_id: item for item in snapshot.pending}
    chosen = Counter(victim.session_id for victim in answer.victims)
    assert not [name for name, times in chosen.items() if times > 1]
    running = {r.session_id: (agent, r) for agent in snapshot.agents for r in agent.running}
    for victim in answer.victims:
        _, stopped = running[victim.session_id]
        assert stopped.preemptible
        assert not stopped.terminating
        assert stopped.priority < pending[victim.for_session].priority

    for reservation in answer.reservations:
        mine = {v.session_id for v in answer.victims if v.for_session == reservation.session_id}
        if mine and pending[reservation.session_id].mode == "single-node":
            (agent_id,) = reservation.agents
            if running[next(iter(mine))][0].max_kernels is not None:
                continue  # they may have freed a kernel slot rather than devices

            assert {running[name][0].agent_id for name in mine} == {agent_id}
            kernels = [kernel.slots for kernel in pending[reservation.session_id].kernels]
            assert reservation.starts_at is not None
            agent = running[next(iter(mine))][0]
            unhealthy = {device.device_id for device in agent.devices if not device.healthy}
            ending = {r.session_id for r in agent.running if r.terminating}
            untouched = all(kernel.agent_id != agent_id for _, kernel in kernel_places(answer))
            for gone in [mine, *(mine - {name} for name in mine if untouched)]:
                # All victims together make enough room; without any one of them, the session would
                # not fit now.
                left = world_at(
                    snapshot, answer, agent_id, reservation.starts_at if gone == mine else NOW - 1
                )
                for name in gone | ending:
                    stopped = running[name][1]
                    if (
                        gone != mine
                        or stopped.ends_at is None
                        or stopped.ends_at > reservation.starts_at
                    ):
                        left = add(
                            left,
                            tuple(t for t in stopped.allocations if t.device_id not in unhealthy),
                            1,
                        )

                assert fit(left, kernels) == (gone == mine)
