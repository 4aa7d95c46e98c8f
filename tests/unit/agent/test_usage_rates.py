"""From counters to what is used, and whose it is on a device."""

from __future__ import annotations

import pytest

from moorage.agent.devices.usage.rates import GpuSeen, Minutes, attribute, use
from moorage.agent.runtimes import Counters
from moorage.common.model.ids import DeviceId, KernelId
from moorage.common.model.usage import KernelMinute, Use

GIB = 1024**3
D0, D1 = DeviceId("GPU-0"), DeviceId("GPU-1")
K = KernelId("k")


def seen(memory: int, busy: int | None, by_pid: dict[int, int | None], busy_by: dict[int, int] | None = None):  # type: ignore[no-untyped-def]
    return GpuSeen(D0, memory * GIB, 80 * GIB, busy, by_pid, busy_by)


@pytest.mark.parametrize(
    ("granted", "pids", "gpu", "expected"),
    [
        (1000, [7], seen(10, 900, {7: 9 * GIB}), (900, 9 * GIB)),
        (1000, [7, 8], seen(10, 900, {7: 4 * GIB, 8: 5 * GIB}), (900, 9 * GIB)),
        (1000, [7], seen(10, 900, {7: None}), (900, 10 * GIB)),
        (1000, [7], seen(10, 900, {4711: 9 * GIB}), (900, 10 * GIB)),
        (1000, [7], seen(1, 0, {}), (0, GIB)),
        (1000, [7], seen(5, None, {7: 5 * GIB}), (None, 5 * GIB)),
        (500, [7], seen(10, 900, {7: 4 * GIB, 9: 6 * GIB}, {7: 300, 9: 600}), (300, 4 * GIB)),
        (500, [7], seen(10, 900, {7: 4 * GIB, 9: 6 * GIB}, {9: 600}), (0, 4 * GIB)),
        (500, [7], seen(10, 900, {7: 4 * GIB, 9: 6 * GIB}), (None, 4 * GIB)),
        (500, [7], seen(10, 900, {9: 6 * GIB}, {9: 600}), (None, 0)),
        (500, [7], seen(10, 900, {7: None, 9: None}), (None, None)),
        (500, [7], seen(10, 900, {}), (None, None)),
    ],
    ids=[
        *("alone", "two processes", "untold memory", "numbers of another namespace", "not begun yet"),
        *("a slice", "shared", "shared, idle", "shared, untold", "shared, not there", "shared, no memory"),
        "shared, nobody is told",
    ],
)
def test_whose_it_is(
    granted: int, pids: list[int], gpu: GpuSeen, expected: tuple[int | None, int | None]
) -> None:
    assert attribute({D0: granted}, pids, {D0: gpu}) == expected


def test_several_devices_add_up_and_one_that_is_not_seen_is_left_out() -> None:
    gpus = {D0: seen(10, 900, {7: GIB}), D1: seen(20, 500, {7: 2 * GIB})}
    assert attribute({D0: 1000, D1: 1000, DeviceId("lost"): 1000}, [7], gpus) == (1400, 3 * GIB)
    assert attribute({DeviceId("lost"): 1000}, [7], gpus) == (None, None)
    assert attribute({}, [7], gpus) == (None, None)


def test_rates() -> None:
    before, now = Counters(1_000_000, 5, rx=100, tx=None), Counters(4_000_000, 7, rx=1100, tx=9)
    assert use(before, now, 2.0, (None, None)) == Use(cpu=1500, memory=7, rx=500)
    # Counters that fell: another life.
    assert use(now, before, 2.0, (300, 4)) == Use(cpu=0, memory=5, rx=0, gpu=300, gpu_memory=4)
    pretended = Counters(0, 0, gpu=500, gpu_memory=8)
    assert use(pretended, pretended, 1.0, (None, None)) == Use(0, 0, gpu=500, gpu_memory=8)


def test_minutes() -> None:
    minutes = Minutes()
    assert minutes.add(K, 120.0, Use(1000, 10)) is None
    assert minutes.add(K, 179.9, Use(2000, 30, gpu=500)) is None
    ended = minutes.add(K, 180.0, Use(0, 0))
    assert ended == KernelMinute(K, 120, 2, Use(1500, 20, gpu=500), Use(2000, 30, gpu=500))
    assert minutes.keep([K]) == []
    assert minutes.keep([]) == [KernelMinute(K, 180, 1, Use(0, 0), Use(0, 0))]
    assert minutes.keep([]) == []
