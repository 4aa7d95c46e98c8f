"""Health of ready kernels, and engine metrics."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from moorage.agent.engines.metrics import EngineMetrics, parse_max_model_len, parse_metrics
from moorage.agent.kernel.health import FAILURES, METRICS_S, HealthMonitor
from moorage.common.aio.clock import ManualClock
from moorage.common.model.ids import KernelId
from moorage.common.model.resource_usage import EngineUse

VLLM = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 4.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 6.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"} 6.0
vllm:kv_cache_usage_perc{engine="0",model_name="a } b"} 0.5106382978723405
vllm:generation_tokens_total{engine="0",model_name="tiny"} 100.0
vllm:prompt_tokens_total{engine="0",model_name="tiny"} 11.0
"""
LLAMACPP = """# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 6
llamacpp:n_decode_total 21
llamacpp:requests_processing 1
llamacpp:requests_deferred 2
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (VLLM, EngineMetrics(4, 6, 0.5106382978723405, 111)),
        (
            VLLM + VLLM.replace('"0"', '"1"').replace("0.51", "0.71"),
            EngineMetrics(8, 12, 0.7106382978723405, 222),
        ),
        (LLAMACPP, EngineMetrics(1, 2, None, 27)),
        ("python_info 1\n", None),
        ("", None),
        (
            "vllm:num_requests_running NaN\nvllm:num_requests_waiting -1\n",
            EngineMetrics(0, 0, None, 0),
        ),
        ("vllm:num_requests_running x\nvllm:num_requests_waiting 1\n", None),
        ("vllm:num_requests_running\n{}\n\x00", None),
    ],
)
def test_metrics(text: str, found: EngineMetrics | None) -> None:
    assert parse_metrics(text) == found


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"object":"list","data":[{"id":"m","max_model_len":512}]}', 512),
        (b'{"data":[{"id":"m","meta":{"n_ctx":2048,"n_ctx_train":4096}}]}', 2048),
        (b'{"data":[{"id":"m","max_model_len":null,"meta":{"n_ctx":8}}]}', None),
        (b'{"data":[{"id":"m","max_model_len":true}]}', None),
        (b'{"data":[{"id":"m","max_model_len":-1}]}', None),
        (b'{"data":[{"id":"m","max_model_len":1e9}]}', None),
        (b'{"data":[{"id":"m","max_model_len":99999999999}]}', None),
        (b'{"data":[{"meta":null}]}', None),
        (b'{"data":[]}', None),
        (b"[]", None),
        (b"[" * 100_000, None),
        (b"\xff", None),
    ],
)
def test_context_of_a_model(body: bytes, found: int | None) -> None:
    assert parse_max_model_len(body) == found


class Check:
    """``answers``: the next probes' answers; once none are left, the answer is True."""

    interval_s = 0.0
    has_health_route = False

    def __init__(self) -> None:
        self.answers: list[bool | None] = []
        self.metrics: EngineMetrics | None = EngineMetrics(0, 0, None, 0)
        self.probes = 0
        self.quiet = 0
        self.reads = 0
        self.contexts: list[int | None] = [None, 512]
        self.last_result = "no answer"
        self.pause = asyncio.Event()
        self.pause.set()

    async def probe_once(self) -> bool | None:
        self.probes += 1
        await self.pause.wait()
        return self.answers.pop(0) if self.answers else True

    async def probe_quietly(self) -> bool | None:
        self.quiet += 1
        return self.answers.pop(0) if self.answers else True

    async def read_metrics(self) -> EngineMetrics | None:
        self.reads += 1
        return self.metrics

    async def read_max_model_len(self) -> int | None:
        return self.contexts.pop(0)


class World:
    def __init__(self) -> None:
        self.check = Check()
        self.clock = ManualClock()
        self.changes: list[str] = []
        self.is_unreachable = False
        self.serving = {KernelId("k"): lambda: cast(Any, self.check)}
        self.monitor = HealthMonitor(
            lambda: self.serving,
            lambda _, problem: self.changes.append(problem),
            self.clock,
            10.0,
            is_unreachable=lambda _: self.is_unreachable,
        )

    async def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / METRICS_S)):
            self.clock.advance(METRICS_S)
            await self.monitor.tick()
            for _ in range(5):
                await asyncio.sleep(0)


async def test_three_failures_make_it_unhealthy_and_one_success_heals() -> None:
    world = World()
    await world.monitor.tick()
    world.check.answers = [False] * (FAILURES - 1) + [True]
    await world.pass_time(10 * FAILURES)
    assert (world.check.probes, world.changes) == (FAILURES, [])
    world.check.answers = [False] * FAILURES
    await world.pass_time(10 * FAILURES)
    assert world.changes == ["3 health checks failed: no answer"]
    await world.pass_time(10)
    assert world.changes[1:] == [""]


async def test_engine_that_works_is_healthy_though_it_answers_late() -> None:
    world = World()
    await world.monitor.tick()
    world.check.answers = [None] * 10
    for progress in range(5):
        world.check.metrics = EngineMetrics(8, 20, 1.0, progress + 1)
        await world.pass_time(10)
    assert world.changes == []
    await world.pass_time(10 * FAILURES)  # it no longer works
    assert len(world.changes) == 1


async def test_what_no_request_gets_to_is_not_judged_and_checked_at_once_afterwards() -> None:
    world = World()
    await world.monitor.tick()
    world.check.answers = [False] * (2 * FAILURES - 1)
    await world.pass_time(10 * FAILURES)
    assert len(world.changes) == 1
    world.is_unreachable = True
    await world.pass_time(100)
    assert (world.check.probes, world.changes[1:]) == (FAILURES, [""])
    world.is_unreachable = False
    await world.pass_time(METRICS_S)
    assert world.check.probes == FAILURES + 1
    await world.pass_time(10 * (FAILURES - 1))
    assert len(world.changes) == 2, "what failed before counts no more"


async def test_slow_probe_delays_nothing_else() -> None:
    world = World()
    await world.monitor.tick()
    world.check.pause.clear()
    await world.pass_time(40)
    assert (world.check.probes, world.check.reads) == (1, 20)
    world.check.metrics = EngineMetrics(3, 1, 0.25, 0)
    await world.pass_time(2)
    assert world.monitor.loads() == [EngineUse(KernelId("k"), 3, 1, 250, 512)]
    assert not world.check.contexts, "it is asked until it says so, at most three times"
    await world.monitor.close()


async def test_ended_kernel_is_forgotten() -> None:
    world = World()
    await world.pass_time(4)
    world.serving.clear()
    await world.pass_time(20)
    assert (world.check.probes, world.monitor.loads()) == (0, [])


async def test_engine_without_metrics_is_not_asked_again() -> None:
    world = World()
    world.check.metrics = None
    await world.pass_time(20)
    assert (world.check.reads, world.monitor.loads()) == (1, [])


def quiet_world() -> World:
    world = World()
    world.check.has_health_route = True
    return world


async def test_idle_engine_generates_seldom() -> None:
    """Each generation writes some ten lines into the log of the model."""
    world = quiet_world()
    await world.monitor.tick()
    await world.pass_time(3600)
    assert (world.check.probes + world.check.quiet, world.check.probes) == (360, 12)
    assert world.changes == []


async def test_engine_with_progress_is_not_asked_to_generate() -> None:
    world = quiet_world()
    await world.monitor.tick()
    for progress in range(20):
        world.check.metrics = EngineMetrics(1, 0, None, progress + 1)
        await world.pass_time(10)
    assert (world.check.quiet, world.check.probes) == (20, 0)


@pytest.mark.parametrize("load", [(1, 0), (0, 3)])
async def test_engine_that_stands_still_with_requests_generates(load: tuple[int, int]) -> None:
    world = quiet_world()
    await world.monitor.tick()
    await world.pass_time(10)
    assert (world.check.quiet, world.check.probes) == (1, 0)
    world.check.metrics = EngineMetrics(*load, None, 0)
    world.check.answers = [None] * FAILURES
    await world.pass_time(10 * FAILURES)
    assert (world.check.quiet, world.check.probes) == (1, FAILURES)
    assert world.changes == ["3 health checks failed: no answer"]


async def test_engine_that_failed_a_check_generates() -> None:
    world = quiet_world()
    await world.monitor.tick()
    world.check.answers = [False]
    await world.pass_time(30)
    assert (world.check.quiet, world.check.probes) == (2, 1)


async def test_engine_without_metrics_always_generates() -> None:
    world = quiet_world()
    world.check.metrics = None
    await world.monitor.tick()
    await world.pass_time(30)
    assert (world.check.quiet, world.check.probes) == (0, 3)
