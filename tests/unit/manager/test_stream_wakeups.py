"""Paced wake-ups: everything is woken, but running work does not wait until all of it is."""

from __future__ import annotations

import asyncio

from moorage.manager.rpc.stream_wakeups import AT_ONCE, StreamWakeups


async def test_few_are_woken_at_once() -> None:
    events = [asyncio.Event() for _ in range(AT_ONCE)]
    StreamWakeups().wake(events)
    assert all(event.is_set() for event in events)


async def test_many_are_woken_in_parts() -> None:
    events = [asyncio.Event() for _ in range(5 * AT_ONCE)]
    woken = list[int]()
    waking = StreamWakeups()
    waking.wake(events)

    async with asyncio.timeout(20):
        while (count := sum(event.is_set() for event in events)) < len(events):
            woken.append(count)
            await asyncio.sleep(0)

    assert woken[0] == AT_ONCE
    assert {AT_ONCE * part for part in range(1, 5)} == set(woken), "others ran in between"


async def test_a_second_call_reaches_all_again() -> None:
    events = [asyncio.Event() for _ in range(3 * AT_ONCE)]
    waking = StreamWakeups()
    waking.wake(events)
    for event in events:
        event.clear()
    waking.wake(events)
    async with asyncio.timeout(20):
        await asyncio.gather(*(event.wait() for event in events))
