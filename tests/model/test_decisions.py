"""What is kept of passes gives back the very snapshots, and planning them again the very places."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planned_worlds import NOW, any_world, policies

from fairlead.manager.decisions import Damaged, Decision, Reader, Writer
from fairlead.manager.scheduling import Plan, Policy, Snapshot, plan

WORLD = settings(max_examples=1000 if os.environ.get("CI") else 30, deadline=None)


def bare(snapshot: Snapshot) -> Snapshot:
    """As the planner sees it: in no order."""
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
    """Snapshots one after the other. Of what is in both, some is the very same object, some is equal, and
    what differs of a session has another revision (as the store has it)."""
    found: list[tuple[Snapshot, Policy, Plan, int]] = []
    policy = draw(policies())
    last = draw(any_world())
    for step in range(draw(st.integers(1, 5))):
        if draw(st.integers(0, 3)) == 0:
            policy = draw(policies())
        world = draw(st.one_of(any_world(), st.just(last)))
        before = {item.session_id: item for item in last.pending}
        pending = []
        for item in world.pending:
            old = before.get(item.session_id)
            if old is None or draw(st.booleans()):
                pending.append(item if old in (None, item) else replace(item, revision=100 + step))
            else:
                more = draw(st.integers(0, 1))
                same = replace(old, retries=old.retries + more, bypassed=old.bypassed + more)
                pending.append(same if more else old)
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


def read(bodies: list[bytes]) -> list[Decision]:
    reader = Reader()
    return [decision for body in bodies for decision in reader.read(body)]


@WORLD
@given(histories(), st.data())
def test_what_is_read_is_what_was_planned(
    history: list[tuple[Snapshot, Policy, Plan, int]], data: st.DataObject
) -> None:
    writer = Writer("g")
    bodies: list[bytes] = []
    firsts, kept, skipped = [], [], 0
    told: Snapshot | None = None
    for snapshot, policy, made, now in history:
        if data.draw(st.integers(0, 4)) == 0:
            writer.begin_anew()
        passed = writer.note(snapshot, policy, made, now, 5, len(made.places))
        if passed is None:
            assert not made.places
            assert told is not None
            assert bare(snapshot) == bare(told)
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
        assert bare(decision.snapshot) == bare(snapshot)
        assert (decision.policy, decision.at, decision.took) == (policy, now, 5)
        assert decision.places == made.places
        assert decision.victims == made.victims
        assert set(plan(decision.snapshot, decision.policy, decision.at).places) == set(made.places)
    assert sum(decision.alike for decision in found) <= skipped


@WORLD
@given(histories())
def test_passes_written_together_are_those_written_one_by_one(
    history: list[tuple[Snapshot, Policy, Plan, int]],
) -> None:
    alone, together = Writer("g"), Writer("g")
    notes = []
    bodies = []
    for snapshot, policy, made, now in history:
        if (passed := alone.note(snapshot, policy, made, now, 5, 0)) is not None:
            bodies.append(b"".join(alone.write([passed], {})))
        if (same := together.note(snapshot, policy, made, now, 5, 0)) is not None:
            notes.append(same)
    one = b"".join(together.write(notes, {}))
    seen = [(bare(d.snapshot), d.places, d.held, d.at) for d in read([one])]
    assert seen == [(bare(d.snapshot), d.places, d.held, d.at) for d in read(bodies)]


@WORLD
@given(any_world(), policies())
def test_all_that_were_held_are_counted(world: Snapshot, policy: Policy) -> None:
    made = plan(world, policy, NOW)
    writer = Writer("g")
    passed = writer.note(world, policy, made, NOW, 0, 0)
    assert passed is not None
    (decision,) = read([b"".join(writer.write([passed], {}))])
    assert sum(decision.held.values()) == len(made.holds)
    for reason, count in decision.held.items():
        assert count == sum(hold.reason == reason for hold in made.holds)


def body(world: Snapshot) -> bytes:
    writer = Writer("g")
    passed = writer.note(world, Policy(), plan(world, Policy(), NOW), NOW, 0, 0)
    assert passed is not None
    return b"".join(writer.write([passed], {}))


@WORLD
@given(any_world(), st.data())
def test_what_is_damaged_is_said_to_be(world: Snapshot, data: st.DataObject) -> None:
    whole = body(world)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(Damaged):
        read([whole[:cut]])
    with pytest.raises(Damaged):
        read([whole[:cut] + bytes([whole[cut] ^ 0x55]) + whole[cut + 1 :]])
