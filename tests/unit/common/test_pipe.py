"""Bounded pipe and exec frames."""

import asyncio

import pytest

from moorage.common.aio.pipe import Pipe
from moorage.common.model.commands import Channel, frame, unframe


async def test_writer_waits_for_reader() -> None:
    pipe: Pipe[int] = Pipe(2)
    assert await pipe.put(1)
    assert await pipe.put(2)
    third = asyncio.ensure_future(pipe.put(3))
    done, _ = await asyncio.wait([third], timeout=0.05)
    assert not done
    assert [await pipe.get(), await third, await pipe.get(), await pipe.get()] == [1, True, 2, 3]


async def test_reader_drains_a_closed_pipe() -> None:
    pipe: Pipe[int] = Pipe(2)
    reading = asyncio.ensure_future(pipe.get())
    await asyncio.sleep(0)
    await pipe.put(1)
    await pipe.put(2)
    pipe.close()
    assert [await reading, await pipe.get(), await pipe.get(), await pipe.get()] == [
        1,
        2,
        None,
        None,
    ]
    assert await pipe.put(3) is False


@pytest.mark.parametrize("full", [True, False])
async def test_close_wakes_both_ends(full: bool) -> None:
    pipe: Pipe[int] = Pipe(1)
    if full:
        await pipe.put(1)
    waiting = asyncio.ensure_future(pipe.put(2) if full else pipe.get())
    await asyncio.wait([waiting], timeout=0.02)
    pipe.close()
    async with asyncio.timeout(5):
        assert await waiting in (False, None)


def test_frames() -> None:
    for channel in Channel:
        assert unframe(frame(channel, b"\0a")) == (channel, b"\0a")
    for wrong in (b"", b"\x05x"):
        with pytest.raises(ValueError, match=r"channel|Channel"):
            unframe(wrong)
