"""The decision log restores the recorded snapshots exactly, and replanning them produces the
recorded placements."""

from __future__ import annotations

import zlib
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planner_snapshots import NOW, any_snapshot, policies
from tests.examples import examples

from moorage.common.model.ids import AgentId, DeviceId, EndpointId, KernelId, SessionId
from moorage.manager.decision_log import CorruptDecisionLog, RecordedPass, SegmentReader, Writer
from moorage.manager.scheduling import (
    AgentState,
    DeviceState,
    Pending,
    Plan,
    Policy,
    Snapshot,
    plan,
)
from moorage.manager.scheduling.core.model import (
    AgentChanges,
    Allocation,
    KernelRequest,
    Quota,
    Running,
)
from moorage.manager.scheduling.core.policy import Preemption

PLANS = examples(50)


def sorted_rows(snapshot: Snapshot) -> Snapshot:
    """Ignores the order of rows, which is irrelevant to the planner."""
    agents = (
        replace(agent, running=tuple(sorted(agent.running, key=lambda kernel: kernel.kernel_id)))
        for agent in snapshot.agents
    )
    return replace(
        snapshot,
        agents=tuple(sorted(agents, key=lambda agent: agent.agent_id)),
        pending=tuple(sorted(snapshot.pending, key=lambda item: item.session_id)),
    )


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Snapshot, Policy, Plan, int]]:
    """A sequence of snapshots. Some of the objects that two of the snapshots share are identical,
    and some are only equal. A session that differs has a different revision, as in the store."""
    found: list[tuple[Snapshot, Policy, Plan, int]] = []
    policy = draw(policies())
    last = draw(any_snapshot())
    for step in range(draw(st.integers(1, 5))):
        if draw(st.integers(0, 3)) == 0:
            policy = draw(policies())

        world = draw(st.one_of(any_snapshot(), st.just(last)))
        before = {item.session_id: item for item in last.pending}
        pending = []
        for item in world.pending:
            old = before.get(item.session_id)
            if old is None or draw(st.booleans()):
                pending.append(item if old in (None, item) else replace(item, revision=100 + step))
            else:
                refused = draw(st.integers(0, 1))
                overtaken = draw(st.integers(0, 1))
                same = replace(
                    old, retries=old.retries + refused, bypassed=old.bypassed + overtaken
                )
                pending.append(same if refused or overtaken else old)

        agents = {agent.agent_id: agent for agent in last.agents}
        kept = tuple(
            agents[agent.agent_id] if agent.agent_id in agents and draw(st.booleans()) else agent
            for agent in world.agents
        )
        usage = draw(st.sampled_from([None, None, {"ann": {"cpu": step}}]))
        last = replace(world, group="g", agents=kept, pending=tuple(pending), usage=usage)
        now = NOW + step * 7
        found.append((last, policy, plan(last, policy, now), now))

    return found


def read(bodies: list[bytes]) -> list[RecordedPass]:
    reader = SegmentReader()
    return [decision for body in bodies for decision in reader.read(body)]


@PLANS
@given(histories(), st.data())
def test_reader_restores_snapshots_and_plans(
    history: list[tuple[Snapshot, Policy, Plan, int]], data: st.DataObject
) -> None:
    writer = Writer("g")
    bodies: list[bytes] = []
    firsts = []
    kept = []
    skipped = 0
    told: Snapshot | None = None
    for snapshot, policy, made, now in history:
        if data.draw(st.integers(0, 4)) == 0:
            writer.restart()

        passed = writer.note(snapshot, policy, made, now, took=5, placed=len(made.places))
        if passed is None:
            assert not made.places
            assert told is not None
            assert sorted_rows(snapshot) == sorted_rows(told)
            skipped += 1
            continue

        told = snapshot
        if passed.whole:
            firsts.append((len(bodies), len(kept)))

        bodies.append(b"".join(writer.write([passed], {})))
        kept.append((snapshot, policy, made, now))

    start, since = data.draw(st.sampled_from(firsts))
    found = read(bodies[start:])
    assert len(found) == len(kept) - since

    for decision, (snapshot, policy, made, now) in zip(found, kept[since:], strict=True):
        assert sorted_rows(decision.snapshot) == sorted_rows(snapshot)
        assert (decision.policy, decision.at, decision.took) == (policy, now, 5)
        assert decision.places == made.places
        assert decision.victims == made.victims
        assert set(plan(decision.snapshot, decision.policy, decision.at).places) == set(made.places)

    assert sum(decision.idle_passes for decision in found) <= skipped


@PLANS
@given(histories())
def test_one_segment_reads_as_one_segment_per_pass(
    history: list[tuple[Snapshot, Policy, Plan, int]],
) -> None:
    alone = Writer("g")
    together = Writer("g")
    notes = []
    bodies = []
    for snapshot, policy, made, now in history:
        if (passed := alone.note(snapshot, policy, made, now, took=5, placed=0)) is not None:
            bodies.append(b"".join(alone.write([passed], {})))
        if (same := together.note(snapshot, policy, made, now, took=5, placed=0)) is not None:
            notes.append(same)

    one = b"".join(together.write(notes, {}))
    seen = [(sorted_rows(d.snapshot), d.places, d.held, d.at) for d in read([one])]
    assert seen == [(sorted_rows(d.snapshot), d.places, d.held, d.at) for d in read(bodies)]


@PLANS
@given(any_snapshot(), policies())
def test_holds_are_counted_by_reason(world: Snapshot, policy: Policy) -> None:
    made = plan(world, policy, NOW)
    writer = Writer("g")
    passed = writer.note(world, policy, made, NOW, took=0, placed=0)
    assert passed is not None
    (decision,) = read([b"".join(writer.write([passed], {}))])
    assert sum(decision.held.values()) == len(made.holds)
    for reason, count in decision.held.items():
        assert count == sum(hold.reason == reason for hold in made.holds)


def body(world: Snapshot) -> bytes:
    writer = Writer("g")
    passed = writer.note(world, Policy(), plan(world, Policy(), NOW), NOW, took=0, placed=0)
    assert passed is not None
    return b"".join(writer.write([passed], {}))


@PLANS
@given(any_snapshot(), st.data())
def test_corrupt_segment_raises(world: Snapshot, data: st.DataObject) -> None:
    whole = body(world)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(CorruptDecisionLog):
        read([whole[:cut]])
    with pytest.raises(CorruptDecisionLog):
        read([whole[:cut] + bytes([whole[cut] ^ 0x55]) + whole[cut + 1 :]])


GPU = DeviceState(DeviceId("g0"), "cuda.device", 500)
AGENT = AgentState(
    AgentId("a"),
    frozenset({"process"}),
    engines=frozenset({"custom"}),
    free={"cpu": 1000},
    capacity={"cpu": 4000},
    devices=(GPU,),
    arch="x86_64",
)
ITEM = Pending(
    SessionId("s"),
    KernelId("k"),
    revision=1,
    priority=10,
    created=5,
    retries=0,
    runtime="process",
    engine="custom",
    slots={"cpu": 9000},
    waiting_since=7,
)
RUNS = Running(
    SessionId("r"),
    KernelId("rk"),
    allocations=(Allocation("cpu", DeviceId(""), 5),),
    ends_at=90,
    started_at=3,
)


def recorded(*worlds: Snapshot, skip: int | None = None) -> list[RecordedPass]:
    """``skip``: the number of a pass whose segment is lost."""
    writer = Writer("g")
    bodies = []
    for number, world in enumerate(worlds):
        passed = writer.note(
            world, Policy(), plan(world, Policy(), NOW), NOW + number, took=5, placed=0
        )
        if passed is not None:
            bodies.append(b"".join(writer.write([passed], {})))
    return read([body for number, body in enumerate(bodies) if number != skip])


AGENT_CHANGES: list[dict[str, Any]] = [
    {"available": False}, {"draining": True}, {"fenced": True}, {"dials_out": True}, {"arch": "aarch64"},
    {"max_kernels": 3},
    {"labels": {"zone": "a"}}, {"runtimes": frozenset({"fake"})}, {"engines": frozenset({"vllm"})},
    {"free": {"cpu": 999}}, {"capacity": {"cpu": 5000}}, {"free": {"mem": 1}}, {"kernels": 2},
    {"devices": ()},
    {"devices": (replace(GPU, free=0),)}, {"devices": (replace(GPU, healthy=False),)},
    {"devices": (replace(GPU, capacity=900),)}, {"devices": (replace(GPU, numa=1),)},
    {"devices": (replace(GPU, peers=frozenset({DeviceId("x")})),)},
    {"devices": (GPU, replace(GPU, free=1))},
    {"devices": (replace(GPU, slot="rocm.device"),)}, {"devices": (replace(GPU, quantum=1000),)},
    {"devices": (replace(GPU, minimum=10),)}, {"devices": (replace(GPU, parent=DeviceId("p")),)},
    {"devices": (replace(GPU, device_id=DeviceId("g9")),)}, {"running": (RUNS,)},
    {"running": (replace(RUNS, ends_at=91),)}, {"running": (replace(RUNS, terminating=True),)},
]  # fmt: skip


@pytest.mark.parametrize("change", AGENT_CHANGES)
def test_every_change_of_an_agent_is_restored(change: dict[str, Any]) -> None:
    before = (
        replace(AGENT, running=(RUNS,))
        if "running" in change and change["running"] != (RUNS,)
        else AGENT
    )
    worlds = [
        Snapshot("g", (agent,), (ITEM,)) for agent in (before, replace(before, **change), before)
    ]
    assert [sorted_rows(one.snapshot) for one in recorded(*worlds)] == worlds


SESSION_CHANGES: list[dict[str, Any]] = [
    {"revision": 2, "priority": 11}, {"retries": 1}, {"bypassed": 1}, {"waiting_since": 8},
    {"dependencies": "unmet", "waits_on": (SessionId("x"),)},
    {"revision": 2, "kernel_id": KernelId("k2")},
    {"revision": 2, "avoid": frozenset({AgentId("a")})}, {"revision": 2, "user": "eve"},
    {"revision": 2, "created": 4}, {"revision": 2, "runtime": "fake"}, {"revision": 2, "engine": "vllm"},
    {"revision": 2, "slots": {"mem": 1}}, {"revision": 2, "project": "q"}, {"revision": 2, "arch": "x86_64"},
    {"revision": 2, "session_type": "batch"}, {"revision": 2, "labels": {"zone": "a"}},
    {"revision": 2, "sub_kernels": (KernelRequest(KernelId("k3"), {"cpu": 1}),), "mode": "multi-node"},
    {"revision": 2, "designated": frozenset({AgentId("a")})}, {"revision": 2, "time_limit": 5},
    {"revision": 2, "endpoint_id": EndpointId("e")}, {"revision": 2, "not_before": 6},
    {"revision": 2, "starts_at": 6}, {"revision": 2, "node_seconds": 7}, {"revision": 2, "qos": "debug"},
    {"earlier_agents": (AgentId("a"),)},
]  # fmt: skip


@pytest.mark.parametrize("change", SESSION_CHANGES)
def test_every_change_of_a_session_is_restored(change: dict[str, Any]) -> None:
    worlds = [Snapshot("g", (AGENT,), (item,)) for item in (ITEM, replace(ITEM, **change), ITEM)]
    assert [sorted_rows(one.snapshot) for one in recorded(*worlds)] == worlds


def field_names(kind: type) -> set[str]:
    return {field.name for field in fields(kind) if field.init}


def test_log_covers_every_field_of_the_planner_input() -> None:
    """Encode a new field of the input in ``decision_log/encoding.py``, and add it to the changes
    above."""
    assert set().union(*AGENT_CHANGES) == field_names(AgentState) - {"agent_id"}
    assert set().union(*SESSION_CHANGES) == field_names(Pending) - {"session_id"}
    devices = [device for change in AGENT_CHANGES for device in change.get("devices", ())]
    changed = {
        name
        for device in devices
        for name in field_names(DeviceState)
        if getattr(device, name) != getattr(GPU, name)
    }
    assert changed == field_names(DeviceState)
    every = Running(
        SessionId("r"), KernelId("rk"), (Allocation("cpu", DeviceId(""), 5),), 90, 3, 11, "ann", "p",
        EndpointId("e"), True, True, 12,
    )  # fmt: skip
    plain = Running(SessionId("x"), KernelId("xk"), ())
    assert all(getattr(every, name) != getattr(plain, name) for name in field_names(Running)), (
        "every field differs from its default"
    )
    quota = Quota(
        "user",
        "ann",
        limits={"cpu": 1},
        used={"cpu": 2},
        sessions=3,
        running=4,
        used_elsewhere={"cpu": 1},
        running_elsewhere=2,
        node_seconds=7,
        node_seconds_used=8,
        month_ends=9,
    )
    assert all(getattr(quota, name) for name in field_names(Quota))
    world = Snapshot(
        "g",
        (replace(AGENT, running=(every,)),),
        pending=(),
        quotas=(quota,),
        cursors={"": AgentId("a")},
        usage={"ann": {"cpu": 1}},
    )

    # The changes are derived from the snapshots of two passes.
    derived = {"changes", "agent_changes"}
    assert all(getattr(world, name) for name in field_names(Snapshot) - {"pending"} - derived)
    assert [one.snapshot for one in recorded(world)] == [world]
    policy = Policy(
        "skip", 3, "dispersed", "drf", 7, 8, "pack", "even", "project", {"p": 2}, frozenset({"batch"}),
        ("mem",), (frozenset({"cuda", "rocm"}),), Preemption("end", 5, "oldest", 6),
    )  # fmt: skip
    assert all(getattr(policy, name) != getattr(Policy(), name) for name in field_names(Policy))
    passed = Writer("g").note(world, policy, Plan((), ()), NOW, took=0, placed=0)
    assert passed is not None
    assert [one.policy for one in read([b"".join(Writer("g").write([passed], {}))])] == [policy]


@pytest.mark.parametrize("missed", [0, 1])
def test_announced_changes_of_agents_are_restored_as_all_changes_are(missed: int) -> None:
    """``missed``: passes that another reader of the announcements saw."""
    other = replace(AGENT, agent_id=AgentId("b"))
    changed = replace(AGENT, free={"cpu": 1})
    announced = () if missed else (changed,), () if missed else (other.agent_id,)
    worlds = [
        Snapshot("g", (AGENT, other), (ITEM,), agent_changes=AgentChanges(1, (), ())),
        Snapshot("g", (changed,), (ITEM,), agent_changes=AgentChanges(2 + missed, *announced)),
    ]
    assert [sorted_rows(one.snapshot) for one in recorded(*worlds)] == worlds


def test_no_line_is_longer_because_more_agents_have_many_kernels() -> None:
    def longest(count: int) -> int:
        agents = [
            replace(
                AGENT,
                agent_id=AgentId(f"a{n}"),
                running=tuple(replace(RUNS, kernel_id=KernelId(f"k{n}-{k}")) for k in range(150)),
            )
            for n in range(count)
        ]
        writer = Writer("g")
        passed = writer.note(
            Snapshot("g", tuple(agents), ()), Policy(), Plan((), ()), NOW, took=0, placed=0
        )
        assert passed is not None

        return max(map(len, zlib.decompress(b"".join(writer.write([passed], {}))).split(b"\n")))

    assert longest(20) < 1.5 * longest(1)


def test_missing_segment_is_detected() -> None:
    others = tuple(
        replace(ITEM, session_id=SessionId(f"s{n}"), kernel_id=KernelId(f"k{n}")) for n in range(4)
    )
    worlds = [Snapshot("g", (AGENT,), others[: n + 1]) for n in range(4)]
    assert len(recorded(*worlds)) == 4
    with pytest.raises(CorruptDecisionLog, match="is inconsistent"):
        recorded(*worlds, skip=1)


def test_hold_counts_continue_after_a_complete_snapshot() -> None:
    """The counts include sessions whose hold is not repeated, but no sessions that are gone."""
    other = replace(ITEM, session_id=SessionId("s2"), kernel_id=KernelId("k2"))
    writer = Writer("g")
    reader = SegmentReader()
    both = Snapshot("g", (AGENT,), (ITEM, other))
    one = Snapshot("g", (AGENT,), (other,))
    nothing = Plan((), ())
    held = []
    for world, made in ((both, plan(both, Policy())), (one, nothing), (one, nothing)):
        passed = writer.note(world, Policy(), made, NOW, took=0, placed=0)
        assert passed is not None
        held += [d.held for d in reader.read(b"".join(writer.write([passed], {})))]
        writer.restart()

    assert held == [{"infeasible": 2}, {"infeasible": 1}, {"infeasible": 1}]
