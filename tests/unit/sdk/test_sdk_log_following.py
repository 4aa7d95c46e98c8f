"""Followed logs that are read again, rotated in the meantime or not: nothing that is kept is lost or comes
twice, and a loss is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.aio.clock import ManualClock
from moorage.sdk import Unreachable, log_following
from moorage.sdk.log_following import follow_log
from moorage.sdk.log_positions import MarkSearch, SeenLog

LINE = b"step 00000: loss 0.5\n"
CUTS = st.lists(st.tuples(st.integers(1, 300), st.integers(0, 400)), max_size=4)


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_following, "FIRST_PAUSE_S", 0.0)
        yield


def lines(count: int) -> bytes:
    return b"".join(b"step %05d: loss 0.5\n" % number for number in range(count))


@dataclass
class KeptLog:
    """A log of which each stage keeps ``[begin:end]``. A followed reading is cut off at the end of a stage;
    what is read then is of the next."""

    whole: bytes
    stages: list[tuple[int, int]]
    piece_bytes: int = 1_000
    readings: int = field(default=0, init=False)

    async def read(self, tail: int | None, *, follow: bool) -> AsyncIterator[bytes]:
        self.readings += 1
        begin, end = self.stages[0]
        kept = self.whole[begin:end]
        if tail is not None:
            kept = b"".join(kept.splitlines(keepends=True)[-tail:])
        for at in range(0, len(kept), self.piece_bytes):
            yield kept[at : at + self.piece_bytes]
        if follow and len(self.stages) > 1:
            del self.stages[0]
            raise Unreachable("it restarts")


def follow(log: KeptLog, tail: int | None = None, seen: SeenLog | None = None) -> tuple[bytes, int]:
    """What is printed, and how often a loss is told."""
    losses: list[None] = []

    async def work() -> bytes:
        pieces = follow_log(log.read, tail, ManualClock(), seen=seen, on_loss=lambda: losses.append(None))
        return b"".join([piece async for piece in pieces])

    return asyncio.run(asyncio.wait_for(work(), 10)), len(losses)


@given(CUTS, st.integers(1, 3_000), st.none() | st.integers(1, 20))
def test_what_is_kept_comes_once_and_a_loss_is_told(
    steps: list[tuple[int, int]], piece_bytes: int, tail: int | None
) -> None:
    """``steps``: lines that are written until the next cut, and lines that are rotated away by then."""
    written, begin, stages = 30, 0, [(0, 30)]
    for more, rotated in steps:
        written += more
        begin = min(begin + rotated, written - 1)
        stages.append((begin, written))
    printed = range(0 if tail is None else 30 - tail, 30)
    expected, losses = [*printed], 0
    for first, last in stages[1:]:
        losses += first > expected[-1]
        expected += range(max(first, expected[-1] + 1), last)
    log = KeptLog(
        lines(written), [(first * len(LINE), last * len(LINE)) for first, last in stages], piece_bytes
    )
    read, told = follow(log, tail)
    assert [int(line[5:10]) for line in read.splitlines()] == expected
    assert told == losses


@given(
    st.lists(st.integers(1, 609), min_size=1, max_size=4).map(sorted),
    st.integers(1, 700),
    st.none() | st.integers(1, 5),
)
def test_log_that_is_cut_off_anywhere_comes_once(ends: list[int], piece_bytes: int, tail: int | None) -> None:
    whole, ends = lines(30), [end + 21 for end in ends]
    log = KeptLog(whole, [(0, end) for end in [*ends, len(whole)]], piece_bytes)
    first = whole[: ends[0]]
    begins = 0 if tail is None else ends[0] - len(b"".join(first.splitlines(keepends=True)[-tail:]))
    # A line is unique, its first letters are not.
    if ends[0] - begins >= len(LINE):
        assert follow(log, tail) == (whole[begins:], 0)


ROTATED = {
    # 300 kB that still exist were once lost: 900 kB, 400 kB of them rotated away, 600 kB seen.
    "still kept in part": ((0, 600_000), (400_000, 900_000), 0),
    "all that was seen is gone": ((0, 300_000), (400_000, 900_000), 1),
    "not rotated": ((0, 600_000), (0, 900_000), 0),
    "within what was seen last": ((0, 600_000), (599_000, 900_000), 0),
    "in the middle of a line": ((0, 600_010), (599_993, 900_000), 0),
}


@pytest.mark.parametrize("tail", [None, 3])
@pytest.mark.parametrize("case", ROTATED)
def test_large_logs(case: str, tail: int | None) -> None:
    first, second, losses = ROTATED[case]
    whole = lines(900_000 // len(LINE) + 1)[:900_000]
    read, told = follow(KeptLog(whole, [first, second], 65_536), tail)
    shown = whole[: first[1]]
    shown = shown if tail is None else b"".join(shown.splitlines(keepends=True)[-tail:])
    assert read == shown + whole[max(first[1], second[0]) :]
    assert told == losses


@pytest.mark.parametrize("answer_s", [1, 7])
def test_reading_that_only_ever_begins_is_an_outage(answer_s: int) -> None:
    """It was begun again for ever: its beginning counted as if something had come, or the time after it."""
    clock, readings = ManualClock(), 0

    async def read(tail: int | None, *, follow: bool) -> AsyncIterator[bytes]:
        nonlocal readings
        readings += 1
        yield b""
        clock.advance(answer_s)
        raise Unreachable("it was cut off")

    async def work() -> list[bytes]:
        return [piece async for piece in follow_log(read, None, clock)]

    with pytest.raises(Unreachable, match="it was cut off"):
        asyncio.run(asyncio.wait_for(work(), 10))
    assert readings == pytest.approx(log_following.OUTAGE_S / answer_s, abs=2)


def test_silent_log_is_followed_over_many_outages() -> None:
    """Between two of them it is connected for longer than one may last."""
    clock, readings = ManualClock(), 0

    async def read(tail: int | None, *, follow: bool) -> AsyncIterator[bytes]:
        nonlocal readings
        readings += 1
        yield b""
        if readings == 10:
            yield b"at last"
            return
        clock.advance(log_following.OUTAGE_S + 1)
        raise Unreachable("it restarts")

    async def work() -> list[bytes]:
        return [piece async for piece in follow_log(read, None, clock)]

    assert asyncio.run(asyncio.wait_for(work(), 10)) == [b"at last"]


def test_lines_that_are_all_the_same_are_counted() -> None:
    whole = b"waiting\n" * 10_000
    assert follow(KeptLog(whole, [(0, 40_000), (0, 60_000), (0, 80_000)])) == (whole, 0)


def test_log_that_is_rotated_while_it_is_read_again() -> None:
    """A reading that began as before, and jumped over what was rotated away in the meantime."""

    class Jumps(KeptLog):
        async def read(self, tail: int | None, *, follow: bool) -> AsyncIterator[bytes]:
            if self.readings != 1:
                async for piece in super().read(tail, follow=follow):
                    yield piece
                return
            self.readings += 1
            yield self.whole[:10_000]
            yield self.whole[50_000:]

    whole = lines(5_000)
    log = Jumps(whole, [(0, 42_000), (40_950, len(whole))])
    assert follow(log) == (whole, 0)


def test_shorter_log_of_a_newer_attempt_is_printed() -> None:
    class Retried(KeptLog):
        async def read(self, tail: int | None, *, follow: bool) -> AsyncIterator[bytes]:
            if len(self.stages) > 1:
                async for piece in super().read(tail, follow=follow):
                    yield piece
                return
            self.readings += 1
            yield b"attempt 2\n"

    assert follow(Retried(lines(50), [(0, 1_050), (0, 0)])) == (lines(50) + b"attempt 2\n", 1)


def test_reading_that_ended_for_good_goes_on_later() -> None:
    seen, whole = SeenLog(complete=True), lines(100)
    assert follow(KeptLog(whole, [(0, 1_050)]), seen=seen) == (whole[:1_050], 0)
    assert follow(KeptLog(whole, [(420, len(whole))]), seen=seen) == (whole[1_050:], 0)


def test_log_that_was_not_rotated_is_read_again_once() -> None:
    log = KeptLog(lines(100), [(0, 1_050), (0, 2_100)])
    follow(log)
    assert log.readings == 2


@given(st.binary(max_size=60), st.binary(min_size=1, max_size=5), st.integers(1, 7))
def test_search_finds_the_mark_wherever_the_pieces_end(log: bytes, mark: bytes, size: int) -> None:
    search = MarkSearch(mark)
    for at in range(0, len(log), size):
        search.feed(log[at : at + size])
    at = log.find(mark)
    assert search.place() == (None if at < 0 else at + len(mark))
