"""Usage rates, per-minute aggregates, and the attribution of device usage to kernels."""

from __future__ import annotations

import pytest

from moorage.agent.devices import DeviceMeasurement
from moorage.agent.devices.usage.rates import MinuteAggregator, kernel_device_usage, usage_between
from moorage.agent.runtimes import Counters
from moorage.common.model.ids import DeviceId, KernelId
from moorage.common.model.resource_usage import KernelMinute, Use

GIB = 1024**3
D0 = DeviceId("GPU-0")
D1 = DeviceId("GPU-1")
K = KernelId("k")


def measured(
    memory: int,
    busy: int | None,
    by_pid: dict[int, int | None],
    busy_by: dict[int, int] | None = None,
):  # type: ignore[no-untyped-def]
    return DeviceMeasurement(
        D0,
        memory * GIB,
        memory_total=80 * GIB,
        utilization=busy,
        memory_by_pid=by_pid,
        utilization_by_pid=busy_by,
    )


@pytest.mark.parametrize(
    ("granted", "pids", "gpu", "expected"),
    [
        (1000, [7], measured(10, 900, {7: 9 * GIB}), (900, 9 * GIB)),
        (1000, [7, 8], measured(10, 900, {7: 4 * GIB, 8: 5 * GIB}), (900, 9 * GIB)),
        (1000, [7], measured(10, 900, {7: None}), (900, 10 * GIB)),
        (1000, [7], measured(10, 900, {4711: 9 * GIB}), (900, 10 * GIB)),
        (1000, [7], measured(1, 0, {}), (0, GIB)),
        (1000, [7], measured(5, None, {7: 5 * GIB}), (None, 5 * GIB)),
        (500, [7], measured(10, 900, {7: 4 * GIB, 9: 6 * GIB}, {7: 300, 9: 600}), (300, 4 * GIB)),
        (500, [7], measured(10, 900, {7: 4 * GIB, 9: 6 * GIB}, {9: 600}), (0, 4 * GIB)),
        (500, [7], measured(10, 900, {7: 4 * GIB, 9: 6 * GIB}), (None, 4 * GIB)),
        (500, [7], measured(10, 900, {9: 6 * GIB}, {9: 600}), (None, 0)),
        (500, [7], measured(10, 900, {7: None, 9: None}), (None, None)),
        (500, [7], measured(10, 900, {}), (None, None)),
    ],
    ids=[
        *(
            "exclusive",
            "two processes",
            "unknown memory",
            "pids of another namespace",
            "not started yet",
        ),
        *("slice", "shared", "shared, idle", "shared, no utilization", "shared, not on it"),
        *("shared, unknown memory", "shared, no process listed"),
    ],
)
def test_device_usage_is_attributed_to_the_kernel(
    granted: int, pids: list[int], gpu: DeviceMeasurement, expected: tuple[int | None, int | None]
) -> None:
    assert kernel_device_usage({D0: granted}, pids, {D0: gpu}) == expected


def test_usage_of_several_devices_is_summed_without_unmeasured_ones() -> None:
    gpus = {D0: measured(10, 900, {7: GIB}), D1: measured(20, 500, {7: 2 * GIB})}
    assert kernel_device_usage({D0: 1000, D1: 1000, DeviceId("lost"): 1000}, [7], gpus) == (
        1400,
        3 * GIB,
    )
    assert kernel_device_usage({DeviceId("lost"): 1000}, [7], gpus) == (None, None)
    assert kernel_device_usage({}, [7], gpus) == (None, None)


def test_rates_between_two_counter_readings() -> None:
    before = Counters(1_000_000, 5, rx=100, tx=None)
    now = Counters(4_000_000, 7, rx=1100, tx=9)
    assert usage_between(before, now, 2.0, (None, None)) == Use(cpu=1500, memory=7, rx=500)
    # The counters were reset.
    assert usage_between(now, before, 2.0, (300, 4)) == Use(
        cpu=0, memory=5, rx=0, gpu=300, gpu_memory=4
    )
    fake = Counters(0, 0, gpu=500, gpu_memory=8)
    assert usage_between(fake, fake, 1.0, (None, None)) == Use(0, 0, gpu=500, gpu_memory=8)


def test_samples_are_aggregated_by_minute() -> None:
    aggregator = MinuteAggregator()
    assert aggregator.add(K, 120.0, Use(1000, 10)) is None
    assert aggregator.add(K, 179.9, Use(2000, 30, gpu=500)) is None
    completed = aggregator.add(K, 180.0, Use(0, 0))
    assert completed == KernelMinute(
        K, 120, samples=2, mean=Use(1500, 20, gpu=500), peak=Use(2000, 30, gpu=500)
    )
    assert aggregator.drop(K) == KernelMinute(K, 180, samples=1, mean=Use(0, 0), peak=Use(0, 0))
    assert aggregator.drop(K) is None
