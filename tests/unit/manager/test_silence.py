"""Agent silence: SUSPECT and LOST follow only from what this leader has observed by its own
clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.ids import AgentId
from moorage.common.model.status import AgentStatus
from moorage.manager.lifecycle.silence import (
    AgentContact,
    SilenceLimits,
    SilenceVerdict,
    SilenceWatch,
)

ALIVE = AgentStatus.ALIVE
SUSPECT = AgentStatus.SUSPECT
LOST = AgentStatus.LOST
LIMITS = SilenceLimits(suspect_after_s=40, lost_grace_s=120, lost_share=0.5, longest_pause_s=15)
T0 = datetime(2026, 1, 1, tzinfo=UTC)
EVERY_S = 5


class World:
    """A leader that checks the agents found by the database every five seconds. They are marked as
    it decides."""

    def __init__(self, *agents: AgentContact, limits: SilenceLimits = LIMITS) -> None:
        self.agents = {one.agent_id: one for one in agents}
        self.watch = SilenceWatch(limits)
        self.now = 0.0
        self.limits = limits
        self.verdict = SilenceVerdict((), {})

    def look(self, *heard: str, offset_s: float = 0) -> None:
        """``heard``: agents that report now, by a database clock that is ``offset_s`` ahead."""
        for name in heard:
            seen = T0 + timedelta(seconds=self.now + offset_s)
            self.agents[AgentId(name)] = replace(
                self.agents[AgentId(name)], status=ALIVE, last_seen=seen
            )

        found = [self.read(one, offset_s) for one in self.agents.values()]
        self.verdict = self.watch.look(
            [one for one in found if one is not None], self.now, self.now
        )
        for mark in self.verdict.marks:
            known = self.agents[mark.agent_id]
            assert mark.last_seen == known.last_seen
            assert known.status is (ALIVE if mark.new is SUSPECT else SUSPECT), (
                "never LOST from ALIVE"
            )
            self.agents[mark.agent_id] = replace(known, status=mark.new)
            if mark.new is LOST:
                del self.agents[mark.agent_id]

    def read(self, one: AgentContact, offset_s: float) -> AgentContact | None:
        """Like agent_contacts.sql: None for an agent that was heard from."""
        third_s = max(self.limits.suspect_after_s, 3 * one.report_interval_s) / 3
        silent_s = (T0 + timedelta(seconds=self.now + offset_s) - one.last_seen).total_seconds()
        if one.status is ALIVE and 0 <= silent_s <= third_s:
            return None
        count = sum(other.group == one.group for other in self.agents.values())
        return replace(one, silent_s=min(max(silent_s, 0.0), third_s), group_agents=count)

    def wait(self, seconds: float, *heard: str) -> None:
        for _ in range(int(seconds / EVERY_S)):
            self.now += EVERY_S
            self.look(*heard)

    def status(self, name: str) -> AgentStatus:
        return self.agents[AgentId(name)].status if AgentId(name) in self.agents else LOST


def agent(name: str, status: AgentStatus = ALIVE, **more: object) -> AgentContact:
    return AgentContact(AgentId(name), "default", status, T0, **more)  # type: ignore[arg-type]


def test_silent_agent_is_suspect_then_lost() -> None:
    world = World(agent("a"), agent("b"), agent("c"))
    world.wait(40, "b", "c")
    assert world.status("a") is ALIVE
    world.wait(5, "b", "c")
    assert world.status("a") is SUSPECT
    world.wait(120, "b", "c")
    assert world.status("a") is SUSPECT
    world.wait(5, "b", "c")
    assert (world.status("a"), world.status("b")) == (LOST, ALIVE)


def test_jump_of_the_database_clock_marks_nobody() -> None:
    world = World(agent("a"), agent("b"))
    world.wait(30, "a", "b")
    for offset_s in (7200, -7200, 86_400, 0):
        world.now += EVERY_S
        world.look("a", "b", offset_s=offset_s)
        assert not world.verdict.marks


@pytest.mark.parametrize("pause_s", [16, 100, 86_400])
def test_leader_that_has_not_looked_starts_again(pause_s: float) -> None:
    """It was paused, or its database was unreachable, so silence during that time proves
    nothing."""
    world = World(agent("a"), agent("b", SUSPECT), agent("c"), agent("d"))
    world.wait(35, "c", "d")
    world.now += pause_s
    world.look()
    assert not world.verdict.marks
    world.wait(35)
    assert world.status("a") is ALIVE


def test_jump_of_the_database_clock_counts_as_a_third_of_the_patience_at_most() -> None:
    world = World(agent("a"), agent("b"), agent("c"))
    world.wait(10, "a", "b", "c")
    world.now += EVERY_S
    world.look("c", offset_s=7200)
    for _ in range(5):
        world.now += EVERY_S
        world.look("c", offset_s=7200)

    assert world.status("a") is ALIVE
    world.now += EVERY_S
    world.look("c", offset_s=7200)
    assert (world.status("a"), world.status("c")) == (SUSPECT, ALIVE)


def test_another_leader_observes_the_whole_grace_period_itself() -> None:
    world = World(agent("a"), agent("b"), agent("c"))
    world.wait(160, "b", "c")
    assert world.status("a") is SUSPECT
    world.watch = SilenceWatch(LIMITS)
    world.wait(120, "b", "c")
    assert world.status("a") is SUSPECT
    world.wait(5, "b", "c")
    assert world.status("a") is LOST


def test_three_announced_reports_must_be_missing() -> None:
    world = World(agent("a", report_interval_s=30), agent("b"), agent("c"), agent("d"))
    world.wait(90, "c", "d")
    assert (world.status("a"), world.status("b")) == (ALIVE, SUSPECT)
    world.wait(5, "c", "d")
    assert world.status("a") is SUSPECT


def test_grace_period_is_that_of_the_runtime() -> None:
    hours = 3 * 3_600
    world = World(
        agent("a", SUSPECT, grace_s=hours), agent("b", SUSPECT, grace_s=30), *map(agent, "cdef")
    )
    world.wait(130, *"cdef")
    assert world.status("b") is LOST, "manager.lost_grace_s at least"
    assert world.status("a") is SUSPECT
    world.wait(hours, *"cdef")
    assert world.status("a") is LOST


def test_too_many_silent_agents_are_held_until_some_return() -> None:
    names = [f"n{n}" for n in range(10)]
    other = replace(agent("elsewhere", SUSPECT), group="other")
    world = World(*map(agent, names), other)
    world.wait(300, *names[6:])
    assert [world.status(name) for name in names[:6]] == [SUSPECT] * 6
    assert world.verdict.held == {"default": 6}
    assert world.status("elsewhere") is LOST, "another group; one agent may always be lost"
    world.wait(5, *names[5:])
    assert world.verdict.held == {}
    assert [world.status(name) for name in names[:6]] == [LOST] * 5 + [ALIVE]


@given(
    silent=st.integers(0, 12),
    heard=st.integers(0, 12),
    share=st.floats(0.01, 1),
    looks=st.lists(
        st.tuples(st.sampled_from([1, 5, 14, 60]), st.integers(-9999, 9999)), max_size=80
    ),
)
def test_no_sweep_loses_more_than_the_share(
    silent: int, heard: int, share: float, looks: list[tuple[int, int]]
) -> None:
    """Nor is an agent lost before the leader has observed its silence for the whole time."""
    quiet = [f"q{n}" for n in range(silent)]
    loud = [f"l{n}" for n in range(heard)]
    world = World(*map(agent, quiet + loud), limits=replace(LIMITS, lost_share=share))
    watched_s = 0
    for seconds, offset_s in looks:
        world.now += seconds
        watched_s = 0 if seconds > LIMITS.longest_pause_s else watched_s + seconds
        world.look(*loud, offset_s=offset_s)
        lost = [mark for mark in world.verdict.marks if mark.new is LOST]
        assert len(lost) <= max(1, int(share * (silent + heard)))
        assert not lost or watched_s >= LIMITS.lost_grace_s
        assert all(mark.agent_id in quiet for mark in world.verdict.marks)
