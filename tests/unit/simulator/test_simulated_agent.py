"""One simulated agent without a link, in virtual time."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.agent.kernel.report_timing import IMMEDIATE
from moorage.common.aio.clock import ManualClock
from moorage.common.link.messages import AgentInfo, LogRequest, Observation, Orders
from moorage.common.model.errors import NotFound
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S
from moorage.common.model.status import SessionType
from moorage.simulator.fleet import FleetStatistics, KernelProfile, ProgressLines, Range, summarize
from moorage.simulator.fleet.agent import SimulatedAgent, SimulationContext

INFO = AgentInfo(
    AgentId("sim-0"),
    "default",
    address="127.0.0.1",
    version="0",
    arch="x86_64",
    runtimes=("process",),
    engines=("custom",),
    offers=(),
)
HANGING = KernelProfile(run_s=None, hang_stop=1)
EXACT = KernelProfile(start_s=Range(0.1, 0.1), run_s=Range(3, 3), stop_s=Range(0.2, 0.2))


class VirtualTimer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualTime:
    """An event loop's timers, without the loop."""

    def __init__(self) -> None:
        self._now = 0.0
        self._order = itertools.count()
        self._waiting: list[tuple[float, int, VirtualTimer]] = []

    def time(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[[], object], /) -> VirtualTimer:
        entry = VirtualTimer(callback)
        heapq.heappush(self._waiting, (self._now + delay, next(self._order), entry))
        return entry

    def advance(self, seconds: float) -> None:
        end = self._now + seconds
        while self._waiting and self._waiting[0][0] <= end:
            self._now, _, entry = heapq.heappop(self._waiting)
            if entry.callback is not None:
                entry.callback()
        self._now = end

    @property
    def pending(self) -> int:
        return sum(entry.callback is not None for _, _, entry in self._waiting)


class Harness:
    def __init__(self, profile: KernelProfile = EXACT, seed: int = 7, **options: Any) -> None:
        self.time = VirtualTime()
        self.statistics = FleetStatistics(agents=1)
        self.changes = 0
        self.generation = 0
        context = SimulationContext(
            profile, self.time, ManualClock(), self.statistics, port=9999, **options
        )
        self.agent = SimulatedAgent(INFO, context, random.Random(seed), changed=self._changed)

    def _changed(self, within_s: float) -> None:
        """Counts the changes that are reported at once."""
        self.changes += within_s == IMMEDIATE

    def order(self, *specs: KernelSpec) -> None:
        self.generation += 1
        assert self.agent.apply_orders(Orders(self.generation, specs))

    def observation(self, kernel_id: str = "k") -> Observation | None:
        return next((k for k in self.agent.report().kernels if k.kernel_id == kernel_id), None)

    def state(self, kernel_id: str = "k") -> S | None:
        found = self.observation(kernel_id)
        return found.state if found else None


def spec(kernel_id: str = "k", type: SessionType = SessionType.BATCH, **fields: Any) -> KernelSpec:
    return KernelSpec(
        KernelId(kernel_id), SessionId(f"s-{kernel_id}"), "some-session", type, "process", "custom", "m",
        command=("x",), **fields,
    )  # fmt: skip


def test_batch_kernel_from_order_to_exit() -> None:
    sim = Harness()
    sim.order(spec())
    assert sim.state() is S.CREATING, (
        "a report with these orders' generation names all their kernels"
    )
    assert sim.agent.report().orders_generation == 1
    sim.time.advance(0.1)
    assert sim.state() is S.RUNNING
    sim.time.advance(3)
    ended = sim.observation()
    assert ended is not None
    assert (ended.state, ended.exit_code, ended.reason) == (S.EXITED, 0, Reason.EXIT_ZERO)
    assert "exit code 0" in ended.log_tail
    sim.time.advance(100)
    assert sim.state() is S.EXITED, "its exit is reported until its order is withdrawn"
    sim.order()
    assert sim.observation() is None
    sim.time.advance(1)
    assert sim.time.pending == 0
    assert (sim.statistics.created, sim.statistics.ready, dict(+sim.statistics.states)) == (
        1,
        1,
        {},
    )


@pytest.mark.parametrize(
    ("env", "profile", "reason", "code"),
    [
        ({"SIM_EXIT": "7"}, EXACT, Reason.EXIT_NONZERO, 7),
        ({"SIM_EXIT": "-9"}, EXACT, Reason.KILLED, -9),
        ({"SIM_FAIL_START": "1"}, EXACT, Reason.CREATE_FAILED, None),
        ({"SIM_START_MS": "5000"}, EXACT, Reason.START_TIMEOUT, None),
        ({}, KernelProfile(fail_start=1), Reason.CREATE_FAILED, None),
        ({}, KernelProfile(fail_run=1), Reason.EXIT_NONZERO, 1),
    ],
)
def test_end_reasons(
    env: dict[str, str], profile: KernelProfile, reason: Reason, code: int | None
) -> None:
    sim = Harness(profile)
    sim.order(spec(env=env, start_timeout_s=4))
    sim.time.advance(15)
    ended = sim.observation()
    assert ended is not None
    assert (ended.state, ended.reason, ended.exit_code) == (S.EXITED, reason, code)


def test_stop_takes_the_scripted_time_in_any_state() -> None:
    for before_s, profile, stop_s in ((0.05, EXACT, 0.2), (1, EXACT, 0.2), (1, HANGING, 10)):
        sim = Harness(profile)
        sim.order(spec(stop_grace_s=10))
        sim.time.advance(before_s)
        sim.order()
        assert sim.state() is S.STOPPING
        sim.time.advance(stop_s - 0.01)
        assert sim.state() is S.STOPPING
        sim.time.advance(0.02)
        assert sim.state() in (S.EXITED, None)
        sim.time.advance(0.02)
        assert sim.observation() is None, "it is forgotten once it has ended and is not ordered"
        assert sim.statistics.ended["stopped"] == 1


def test_changes_at_the_same_time_make_one_report() -> None:
    sim = Harness(coalesce_s=0.05)
    sim.order(*(spec(f"k{i}") for i in range(20)))
    assert sim.changes == 0
    sim.time.advance(0.05)
    assert sim.changes == 0, "CREATING may wait for a later report"
    sim.time.advance(0.2)
    assert sim.changes == 1, "twenty kernels became ready at once: one report"


def test_older_orders_are_refused() -> None:
    sim = Harness()
    sim.order(spec())
    sim.order(spec())
    assert not sim.agent.apply_orders(Orders(1, ()))
    assert sim.state() is S.CREATING


def test_lost_report_repeats_the_report_before() -> None:
    sim = Harness(lose_report=1.0)
    first = sim.agent.report()
    sim.order(spec())
    sim.time.advance(1)
    lost = sim.agent.report(whole=False)
    assert (lost.orders_generation, lost.kernels) == (first.orders_generation, ())
    assert sim.statistics.faults["lost-report"] == 1
    sim.agent.die()
    assert sim.state() is S.RUNNING, "a new process has no report to repeat"


def test_agent_restart_keeps_kernels_under_a_new_incarnation() -> None:
    sim = Harness()
    sim.order(spec("k1"), spec("k2"))
    sim.time.advance(1)
    before = sim.agent.report()
    sim.agent.die()
    after = sim.agent.report()
    assert after.incarnation != before.incarnation
    assert after.orders_generation == 0
    assert after.kernels == before.kernels
    sim.time.advance(5)
    assert sim.state("k1") is S.EXITED, "the kernels kept running"
    assert not sim.agent.apply_orders(Orders(0, ())), "the checkpoint holds the newest generation"


def test_rebooted_node_reports_its_kernels_as_gone() -> None:
    sim = Harness()
    sim.order(spec())
    sim.time.advance(1)
    sim.agent.die(reboot=True)
    found = sim.observation()
    assert found is not None
    assert (found.state, found.reason) == (S.GONE, Reason.KERNEL_GONE)
    sim.order(spec())
    sim.time.advance(10)
    assert sim.state() is S.GONE, "a kernel is never created twice"


def test_lost_checkpoint_is_recovered_from_running_kernels() -> None:
    sim = Harness()
    sim.order(spec("wanted"), spec("unwanted"))
    sim.time.advance(1)
    sim.agent.die(lose_checkpoint=True)
    found = {k.kernel_id: k.state for k in sim.agent.report().kernels}
    assert found == {"wanted": S.UNKNOWN, "unwanted": S.UNKNOWN}, (
        "left out, they would count as gone"
    )
    sim.order(spec("wanted"))
    assert sim.state("wanted") is S.RUNNING
    assert sim.statistics.created == 2, "it was adopted, not created again"
    assert sim.statistics.ended["destroyed"] == 1
    assert dict(+sim.statistics.states) == {S.RUNNING: 1}
    sim.time.advance(2.5)
    assert sim.state("wanted") is S.EXITED


def test_only_probed_kernels_have_a_port() -> None:
    sim = Harness()
    sim.order(spec("b"), spec("i", SessionType.INFERENCE, probe_path="/"))
    batch = sim.observation("b")
    inference = sim.observation("i")
    assert batch is not None
    assert inference is not None
    assert (batch.host, batch.port) == ("", 0)
    assert (inference.host, inference.port) == ("127.0.0.1", 9999)
    sim.time.advance(1000)
    assert sim.state("i") is S.RUNNING


def test_draining_agent_ends_its_kernels_and_starts_none() -> None:
    sim = Harness(lose_report=1.0)
    sim.agent.report()
    sim.order(spec("k1"))
    sim.time.advance(1)
    sim.agent.drain()
    report = sim.agent.report()
    assert report.draining
    assert [(k.state, k.reason) for k in report.kernels] == [(S.EXITED, Reason.AGENT_SHUTDOWN)]
    sim.order(spec("k1"), spec("k2"))
    found = sim.observation("k2")
    assert found is not None
    assert (found.state, found.reason) == (S.EXITED, Reason.AGENT_SHUTDOWN)
    sim.time.advance(10)
    assert sim.time.pending == 0


async def test_logs() -> None:
    sim = Harness()
    sim.order(spec())
    assert [
        b"kernel k" in piece async for piece in sim.agent.open_log(LogRequest("r", KernelId("k")))
    ] == [True]
    with pytest.raises(NotFound, match="no kernel other"):
        [piece async for piece in sim.agent.open_log(LogRequest("r", KernelId("other")))]


def test_same_seed_gives_same_outcomes() -> None:
    def outcomes() -> list[object]:
        sim = Harness(KernelProfile(fail_start=0.3, fail_run=0.3))
        sim.order(*(spec(f"k{i}") for i in range(50)))
        sim.time.advance(20)
        return [(k.kernel_id, k.reason, k.exit_code) for k in sim.agent.report().kernels]

    first = outcomes()
    assert first == outcomes()
    assert len({reason for _, reason, _ in first}) == 3  # type: ignore[misc]


STEP = st.one_of(
    st.tuples(st.just("order"), st.sets(st.integers(0, 5))),
    st.tuples(st.just("wait"), st.floats(0, 4)),
    st.tuples(st.just("die"), st.sampled_from(["restart", "reboot", "lose_checkpoint"])),
)


@examples(200)
@given(st.integers(), st.lists(STEP, max_size=15))
def test_reports_are_complete_and_counters_correct_after_any_sequence(
    seed: int, steps: list[Any]
) -> None:
    sim = Harness(KernelProfile(fail_start=0.2, fail_run=0.2, hang_stop=0.2), seed)
    for what, value in steps:
        if what == "order":
            sim.order(*(spec(str(i)) for i in sorted(value)))
            assert {str(i) for i in value} <= {k.kernel_id for k in sim.agent.report().kernels}
        elif what == "wait":
            sim.time.advance(value)
        else:
            sim.agent.die(reboot=value == "reboot", lose_checkpoint=value == "lose_checkpoint")

    sim.order()
    sim.time.advance(30)
    assert sim.agent.report().kernels == (), "only ordered kernels exist"
    assert dict(+sim.statistics.states) == {}
    assert not [n for n in sim.statistics.states.values() if n < 0]
    assert sim.time.pending == 0


def test_progress_and_summary() -> None:
    statistics = FleetStatistics(agents=10, connected=9, created=50, reports=100)
    statistics.states.update({S.RUNNING: 3, S.CREATING: 0})
    statistics.faults["disconnect"] = 2
    progress = ProgressLines(statistics, since=100.0)
    line = progress.line(105.0)
    assert "9/10 agents" in line
    assert "10 starts/s" in line
    assert "running 3" in line
    assert "creating" not in line
    assert "disconnect 2" in line
    assert "0 starts/s" in progress.line(110.0)
    assert "50 kernels created (5.0/s)" in summarize(statistics, 10)
