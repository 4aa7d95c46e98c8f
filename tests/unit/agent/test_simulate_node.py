"""One played agent, without a link, in time that only the test moves."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.agent.link.report_timing import AT_ONCE
from moorage.common.aio.clock import ManualClock
from moorage.common.link.messages import AgentInfo, LogRequest, Observation, Orders
from moorage.common.model.errors import NotFound
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S
from moorage.common.model.status import SessionType
from moorage.simulator.fleet.node import Node, Stage
from moorage.simulator.fleet.script import Range, Script
from moorage.simulator.fleet.statistics import Progress, Tally, summary

INFO = AgentInfo(AgentId("sim-0"), "default", "127.0.0.1", "0", "x86_64", ("process",), ("custom",), ())
EXACT = Script(start_s=Range(0.1, 0.1), run_s=Range(3, 3), stop_s=Range(0.2, 0.2))


class Entry:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Time:
    """An event loop's timers, without the loop."""

    def __init__(self) -> None:
        self.now, self._order, self._waiting = 0.0, itertools.count(), list[tuple[float, int, Entry]]()

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Entry:
        entry = Entry(callback)
        heapq.heappush(self._waiting, (self.now + delay, next(self._order), entry))
        return entry

    def go(self, seconds: float) -> None:
        end = self.now + seconds
        while self._waiting and self._waiting[0][0] <= end:
            self.now, _, entry = heapq.heappop(self._waiting)
            if entry.callback is not None:
                entry.callback()
        self.now = end

    @property
    def pending(self) -> int:
        return sum(entry.callback is not None for _, _, entry in self._waiting)


class World:
    def __init__(self, script: Script = EXACT, **stage: Any) -> None:
        self.time, self.tally, self.changes, self.generation = Time(), Tally(agents=1), 0, 0
        self.stage = Stage(script, self.time, ManualClock(), self.tally, port=9999, **stage)
        self.node = Node(INFO, self.stage, random.Random(7), changed=self._changed)

    def _changed(self, within_s: float) -> None:
        """Counts the news that are told at once."""
        self.changes += within_s == AT_ONCE

    def order(self, *specs: KernelSpec) -> None:
        self.generation += 1
        assert self.node.take(Orders(self.generation, specs))

    def seen(self, kernel_id: str = "k") -> Observation | None:
        return next((k for k in self.node.report().kernels if k.kernel_id == kernel_id), None)

    def state(self, kernel_id: str = "k") -> S | None:
        found = self.seen(kernel_id)
        return found.state if found else None


def spec(kernel_id: str = "k", type: SessionType = SessionType.BATCH, **fields: Any) -> KernelSpec:
    return KernelSpec(
        KernelId(kernel_id), SessionId(f"s-{kernel_id}"), "some-session", type, "process", "custom", "m",
        command=("x",), **fields,
    )  # fmt: skip


def test_a_batch_kernel_from_order_to_end() -> None:
    world = World()
    world.order(spec())
    assert world.state() is S.CREATING, "a report with these orders' generation names all their kernels"
    assert world.node.report().orders_generation == 1
    world.time.go(0.1)
    assert world.state() is S.RUNNING
    world.time.go(3)
    ended = world.seen()
    assert ended is not None
    assert (ended.state, ended.exit_code, ended.reason) == (S.EXITED, 0, Reason.EXIT_ZERO)
    assert "exit code 0" in ended.log_tail
    world.time.go(100)
    assert world.state() is S.EXITED, "its end is told until its order is withdrawn"
    world.order()
    assert world.seen() is None
    world.time.go(1)
    assert world.time.pending == 0
    assert (world.tally.created, world.tally.ready, dict(+world.tally.states)) == (1, 1, {})


@pytest.mark.parametrize(
    ("env", "script", "reason", "code"),
    [
        ({"SIM_EXIT": "7"}, EXACT, Reason.EXIT_NONZERO, 7),
        ({"SIM_EXIT": "-9"}, EXACT, Reason.KILLED, -9),
        ({"SIM_FAIL_START": "1"}, EXACT, Reason.CREATE_FAILED, None),
        ({"SIM_START_MS": "5000"}, EXACT, Reason.START_TIMEOUT, None),
        ({}, Script(fail_start=1), Reason.CREATE_FAILED, None),
        ({}, Script(fail_run=1), Reason.EXIT_NONZERO, 1),
    ],
)
def test_ends(env: dict[str, str], script: Script, reason: Reason, code: int | None) -> None:
    world = World(script)
    world.order(spec(env=env, start_timeout_s=4))
    world.time.go(15)
    ended = world.seen()
    assert ended is not None
    assert (ended.state, ended.reason, ended.exit_code) == (S.EXITED, reason, code)


def test_a_stop_takes_its_time_whenever_it_comes() -> None:
    for before, script, takes in ((0.05, EXACT, 0.2), (1, EXACT, 0.2), (1, Script(hang_stop=1), 10)):
        world = World(script)
        world.order(spec(stop_grace_s=10))
        world.time.go(before)
        world.order()
        assert world.state() is S.STOPPING
        world.time.go(takes - 0.01)
        assert world.state() is S.STOPPING
        world.time.go(0.02)
        assert world.state() in (S.EXITED, None)
        world.time.go(0.02)
        assert world.seen() is None, "once it has ended and nobody asks, it is forgotten"
        assert world.tally.ended["stopped"] == 1


def test_news_wait_for_company() -> None:
    world = World(settle_s=0.05)
    world.order(*(spec(f"k{i}") for i in range(20)))
    assert world.changes == 0
    world.time.go(0.05)
    assert world.changes == 0, "that they are on their way may wait"
    world.time.go(0.2)
    assert world.changes == 1, "twenty became ready at the same moment: that is one piece of news"


def test_older_orders_are_refused() -> None:
    world = World()
    world.order(spec())
    world.order(spec())
    assert not world.node.take(Orders(1, ()))
    assert world.state() is S.CREATING


def test_a_lost_report_repeats_the_one_before() -> None:
    world = World(lose_report=1.0)
    first = world.node.report()
    world.order(spec())
    world.time.go(1)
    assert world.node.report() is first
    assert world.tally.faults["lost-report"] == 1
    world.node.die()
    assert world.state() is S.RUNNING, "a new process has said nothing that it could repeat"


def test_an_agent_that_dies_comes_back_as_another_with_the_same_kernels() -> None:
    world = World()
    world.order(spec("k1"), spec("k2"))
    world.time.go(1)
    before = world.node.report()
    world.node.die()
    after = world.node.report()
    assert after.incarnation != before.incarnation
    assert after.orders_generation == 0
    assert after.kernels == before.kernels
    world.time.go(5)
    assert world.state("k1") is S.EXITED, "its kernels went on meanwhile"
    assert not world.node.take(Orders(0, ())), "the ledger remembers the newest orders"


def test_a_node_that_restarts_has_lost_its_kernels_and_says_so() -> None:
    world = World()
    world.order(spec())
    world.time.go(1)
    world.node.die(reboot=True)
    found = world.seen()
    assert found is not None
    assert (found.state, found.reason) == (S.GONE, Reason.KERNEL_GONE)
    world.order(spec())
    world.time.go(10)
    assert world.state() is S.GONE, "what was begun once is never begun again"


def test_a_lost_ledger_is_recovered_from_what_is_found() -> None:
    world = World()
    world.order(spec("wanted"), spec("unwanted"))
    world.time.go(1)
    world.node.die(lose_ledger=True)
    found = {k.kernel_id: k.state for k in world.node.report().kernels}
    assert found == {"wanted": S.UNKNOWN, "unwanted": S.UNKNOWN}, "left out, they would pass for gone"
    world.order(spec("wanted"))
    assert world.state("wanted") is S.RUNNING
    assert world.tally.created == 2, "it was adopted, not begun again"
    assert world.tally.ended["destroyed"] == 1
    assert dict(+world.tally.states) == {S.RUNNING: 1}
    world.time.go(2.5)
    assert world.state("wanted") is S.EXITED


def test_kernels_that_are_asked_have_a_port() -> None:
    world = World()
    world.order(spec("b"), spec("i", SessionType.INFERENCE, probe_path="/"))
    batch, inference = world.seen("b"), world.seen("i")
    assert batch is not None
    assert inference is not None
    assert (batch.host, batch.port) == ("", 0)
    assert (inference.host, inference.port) == ("127.0.0.1", 9999)
    world.time.go(1000)
    assert world.state("i") is S.RUNNING


def test_an_agent_that_leaves_ends_its_kernels_and_starts_none() -> None:
    world = World(lose_report=1.0)
    world.node.report()
    world.order(spec("k1"))
    world.time.go(1)
    world.node.drain()
    report = world.node.report()
    assert report.draining
    assert [(k.state, k.reason) for k in report.kernels] == [(S.EXITED, Reason.AGENT_SHUTDOWN)]
    world.order(spec("k1"), spec("k2"))
    found = world.seen("k2")
    assert found is not None
    assert (found.state, found.reason) == (S.EXITED, Reason.AGENT_SHUTDOWN)
    world.time.go(10)
    assert world.time.pending == 0


async def test_logs() -> None:
    world = World()
    world.order(spec())
    assert [b"kernel k" in piece async for piece in world.node.logs(LogRequest("r", KernelId("k")))] == [True]
    with pytest.raises(NotFound, match="no kernel other"):
        [piece async for piece in world.node.logs(LogRequest("r", KernelId("other")))]


def test_the_same_seed_gives_the_same_fates() -> None:
    def ends() -> list[object]:
        world = World(Script(fail_start=0.3, fail_run=0.3))
        world.order(*(spec(f"k{i}") for i in range(50)))
        world.time.go(20)
        return [(k.kernel_id, k.reason, k.exit_code) for k in world.node.report().kernels]

    first = ends()
    assert first == ends()
    assert len({reason for _, reason, _ in first}) == 3  # type: ignore[misc]


STEP = st.one_of(
    st.tuples(st.just("order"), st.sets(st.integers(0, 5))),
    st.tuples(st.just("go"), st.floats(0, 4)),
    st.tuples(st.just("die"), st.sampled_from(["kept", "reboot", "lose_ledger"])),
)


@settings(max_examples=200)
@given(st.integers(), st.lists(STEP, max_size=15))
def test_whatever_happens_the_truth_is_whole_and_the_counts_are_right(seed: int, steps: list[Any]) -> None:
    world = World(Script(fail_start=0.2, fail_run=0.2, hang_stop=0.2))
    world.node._dice = random.Random(seed)
    for what, value in steps:
        if what == "order":
            world.order(*(spec(str(i)) for i in sorted(value)))
            assert {str(i) for i in value} <= {k.kernel_id for k in world.node.report().kernels}
        elif what == "go":
            world.time.go(value)
        else:
            world.node.die(reboot=value == "reboot", lose_ledger=value == "lose_ledger")
    world.order()
    world.time.go(30)
    assert world.node.report().kernels == (), "nothing runs that nobody ordered"
    assert dict(+world.tally.states) == {}
    assert not [n for n in world.tally.states.values() if n < 0]
    assert world.time.pending == 0


def test_progress_and_summary_tell_the_numbers() -> None:
    tally = Tally(agents=10, attached=9, created=50, reports=100)
    tally.states.update({S.RUNNING: 3, S.CREATING: 0})
    tally.faults["disconnect"] = 2
    progress = Progress(tally, since=100.0)
    line = progress.line(105.0)
    assert "9/10 agents" in line
    assert "10 starts/s" in line
    assert "running 3" in line
    assert "creating" not in line
    assert "disconnect 2" in line
    assert "0 starts/s" in progress.line(110.0)
    assert "50 kernels begun (5.0/s)" in summary(tally, 10)
