"""Periodic loop and tasks."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from moorage.common.aio.clock import ManualClock
from moorage.common.aio.loop import Loop
from moorage.common.aio.tasks import cancel_and_wait, spawn

FAR = 3600.0


async def test_loop_ticks_at_start_and_after_each_nudge() -> None:
    seen: asyncio.Queue[int] = asyncio.Queue()

    async def tick() -> None:
        seen.put_nowait(1)

    loop = Loop("test", tick, interval_s=FAR, clock=ManualClock())
    async with loop, asyncio.timeout(5):
        await seen.get()
        loop.nudge()
        await seen.get()
        assert seen.empty()


async def test_nudges_during_a_tick_coalesce() -> None:
    started = asyncio.Event()
    release = asyncio.Event()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        ticks += 1
        started.set()
        await release.wait()

    loop = Loop("test", tick, interval_s=FAR, clock=ManualClock())
    async with loop:
        await started.wait()
        for _ in range(10):
            loop.nudge()

        release.set()
        await loop.ticked()

    assert ticks == 2


async def test_loop_ticks_after_the_interval() -> None:
    enough = asyncio.Event()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        ticks += 1
        if ticks == 3:
            enough.set()

    async with Loop("test", tick, interval_s=0.01, clock=ManualClock()), asyncio.timeout(5):
        await enough.wait()


async def test_failed_tick_is_logged_and_retried_by_the_next() -> None:
    results = [ValueError("bad weather"), None]

    async def tick() -> None:
        if results and (error := results.pop(0)):
            raise error

    loop = Loop("test", tick, interval_s=0.01, clock=ManualClock())
    with structlog.testing.capture_logs() as logs:
        async with loop, asyncio.timeout(5):
            while results:
                await loop.ticked()

    assert loop.failures == 1
    assert [(line["event"], line["task"]) for line in logs] == [
        ("task failed and is restarted", "loop.test")
    ]
    assert "bad weather" in logs[0]["error"]


async def test_exit_cancels_a_hanging_tick() -> None:
    started = asyncio.Event()
    ended = asyncio.Event()

    async def tick() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with Loop("test", tick, interval_s=FAR, clock=ManualClock()):
        await started.wait()

    assert ended.is_set()


async def test_task_is_named_and_its_failure_logged() -> None:
    async def fails() -> None:
        raise ValueError("bad weather")

    with structlog.testing.capture_logs() as logs:
        task = spawn("failing", fails())
        with pytest.raises(ValueError, match="bad weather"):
            await task

        await asyncio.sleep(0)

    assert task.get_name() == "failing"
    assert [(line["event"], line["task"]) for line in logs] == [("task failed", "failing")]


async def test_cancel_and_wait_waits_for_the_end() -> None:
    ended = []

    async def slow(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    one = spawn("one", slow("one"))
    two = spawn("two", slow("two"))
    await asyncio.sleep(0)
    await cancel_and_wait(one, None, two)
    assert sorted(ended) == ["one", "two"]
