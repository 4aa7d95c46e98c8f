"""Followed logs that are reread, whether or not they were rotated in between: no kept part is lost
or repeated, and a loss is reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.aio.clock import ManualClock
from moorage.sdk import Unreachable, log_following
from moorage.sdk.log_following import Begin, LogReader, LogSelection
from moorage.sdk.log_positions import MarkSearch, Numbered, SeenLog

LINE = b"step 00000: loss 0.5\n"
TIME = b"2026-05-04T12:00:00.250Z "
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
    """A log of which each stage keeps ``[begin:end]``. A read that follows the log is cut off at
    the end of a stage, and the next one reads the next stage. ``numbered``: for each stage, whether
    the manager and the agent have byte numbers; the last value applies to all later stages."""

    whole: bytes
    stages: list[tuple[int, int]]
    piece_bytes: int = 1_000
    numbered: list[bool] = field(default_factory=lambda: [False])
    readings: int = field(default=0, init=False)

    async def read(self, query: LogSelection, offset: int | None) -> AsyncIterator[Begin | bytes]:
        self.readings += 1
        begin, end = self.stages[0]
        if self.numbered[0]:
            begin = max(begin, offset or 0)

        kept = self.whole[begin:end]
        if query.tail is not None:
            kept = b"".join(kept.splitlines(keepends=True)[-query.tail :])

        yield Begin(end - len(kept) if self.numbered[0] else None)
        for at in range(0, len(kept), self.piece_bytes):
            yield kept[at : at + self.piece_bytes]

        if query.follow and len(self.stages) > 1:
            del self.stages[0]
            if len(self.numbered) > 1:
                del self.numbered[0]

            raise Unreachable("it restarts")


def follow(log: KeptLog, tail: int | None = None, seen: SeenLog | None = None) -> tuple[bytes, int]:
    """The printed output, and how many times a loss is reported."""
    losses: list[None] = []

    async def work() -> bytes:
        query = LogSelection(tail, follow=True)
        reader = LogReader(
            log.read, query, ManualClock(), seen=seen, on_loss=lambda: losses.append(None)
        )
        return b"".join([piece async for piece in reader.pieces()])

    return asyncio.run(asyncio.wait_for(work(), 10)), len(losses)


NUMBERED = st.lists(st.booleans(), min_size=1, max_size=4)


@given(CUTS, st.integers(1, 3_000), st.none() | st.integers(1, 20), NUMBERED)
def test_what_is_kept_comes_once_and_a_loss_is_told(
    steps: list[tuple[int, int]], piece_bytes: int, tail: int | None, numbered: list[bool]
) -> None:
    """``steps``: for each step, the number of lines written before the next cut, and the number of
    lines rotated away by then. Managers and agents of the previous release have no numbers, and may
    take turns with newer ones."""
    written = 30
    begin = 0
    stages = [(0, 30)]
    for more, rotated in steps:
        written += more
        begin = min(begin + rotated, written - 1)
        stages.append((begin, written))

    printed = range(0 if tail is None else 30 - tail, 30)
    expected = [*printed]
    losses = 0
    for number, (first, last) in enumerate(stages[1:], start=2):
        # Without numbers, it is not known whether the kept part starts right after the part already
        # seen.
        is_exact = all((numbered + numbered[-1:] * number)[:number])
        losses += first > expected[-1] + is_exact
        expected += range(max(first, expected[-1] + 1), last)

    log = KeptLog(
        lines(written),
        [(first * len(LINE), last * len(LINE)) for first, last in stages],
        piece_bytes,
        numbered,
    )
    read, told = follow(log, tail)
    assert [int(line[5:10]) for line in read.splitlines()] == expected
    assert told == losses


@given(
    st.lists(st.integers(1, 609), min_size=1, max_size=4).map(sorted),
    st.integers(1, 700),
    st.none() | st.integers(1, 5),
    NUMBERED,
)
def test_log_that_is_cut_off_anywhere_comes_once(
    ends: list[int], piece_bytes: int, tail: int | None, numbered: list[bool]
) -> None:
    whole = lines(30)
    ends = [end + 21 for end in ends]
    log = KeptLog(whole, [(0, end) for end in [*ends, len(whole)]], piece_bytes, numbered)
    first = whole[: ends[0]]
    begins = 0 if tail is None else ends[0] - len(b"".join(first.splitlines(keepends=True)[-tail:]))

    # A line is unique, but its first letters are not.
    if ends[0] - begins >= len(LINE):
        assert follow(log, tail) == (whole[begins:], 0)


ROTATED = {
    # 300 kB that still existed were once lost: of 900 kB, 400 kB had been rotated away and 600 kB
    # had been read.
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
    """The reading was restarted endlessly: its start, or the time after it, was treated as
    progress."""
    clock = ManualClock()
    readings = 0

    async def read(query: LogSelection, offset: int | None) -> AsyncIterator[Begin | bytes]:
        nonlocal readings
        readings += 1
        yield Begin(None)
        clock.advance(answer_s)
        raise Unreachable("it was cut off")

    async def work() -> list[bytes]:
        return [piece async for piece in LogReader(read, LogSelection(follow=True), clock).pieces()]

    with pytest.raises(Unreachable, match="it was cut off"):
        asyncio.run(asyncio.wait_for(work(), 10))

    assert readings == pytest.approx(log_following.OUTAGE_S / answer_s, abs=2)


def test_reading_that_does_not_follow_goes_on_only_where_it_makes_progress() -> None:
    """Bytes may be missing where the reading was cut off: the next reading shows this, for the
    attempt that was newest at first. Without progress it is an error."""
    asked = list[tuple[int | None, int | None]]()
    answers = [(0, b"one\n"), (9, b"three\n"), (15, b"")]

    async def read(query: LogSelection, offset: int | None) -> AsyncIterator[Begin | bytes]:
        asked.append((offset, query.attempt))
        begin, data = answers[len(asked) - 1]
        yield Begin(begin, 2)
        if data:
            yield data
        raise Unreachable("it was cut off")

    losses = list[int]()
    seen = list[bytes]()

    async def work() -> None:
        on_loss = partial(losses.append, 1)
        async for piece in LogReader(read, LogSelection(), ManualClock(), on_loss=on_loss).pieces():
            seen.append(piece)

    with pytest.raises(Unreachable, match="it was cut off"):
        asyncio.run(asyncio.wait_for(work(), 10))

    assert (asked, seen, len(losses)) == ([(0, None), (4, 2), (15, 2)], [b"one\n", b"three\n"], 1)


@given(st.lists(st.binary(max_size=6)), st.lists(st.integers(1, 40)), st.data())
def test_bytes_are_counted_behind_the_times_of_their_lines(
    texts: list[bytes], sizes: list[int], data: st.DataObject
) -> None:
    """A reading starts with any line, and continues after any byte of that line or a later one."""
    log_lines = [text.replace(b"\n", b" ") + b"\n" for text in texts]
    whole = b"".join(log_lines)
    at = data.draw(st.integers(0, len(log_lines)))
    begin = len(b"".join(log_lines[:at]))
    first = data.draw(st.integers(begin, len(whole)))
    reading = Numbered(begin, first, timed=True)
    timed = b"".join(TIME + line for line in log_lines[at:])
    shown = b""
    for size in sizes:
        shown += reading.feed(timed[:size])
        timed = timed[size:]

    shown += reading.feed(timed)
    assert shown.replace(TIME, b"") == whole[first:]
    assert (reading.number, reading.line) == (len(whole), len(whole))
    assert shown.count(TIME) == whole[first - 1 : first].count(b"\n") * (first < len(whole)) + (
        first == 0 < len(whole)
    ) + max(whole[first:].count(b"\n") - 1, 0)


def test_silent_log_is_followed_over_many_outages() -> None:
    """Between two of them it is connected longer than one may last."""
    clock = ManualClock()
    readings = 0

    async def read(query: LogSelection, offset: int | None) -> AsyncIterator[Begin | bytes]:
        nonlocal readings
        readings += 1
        yield Begin(None)
        if readings == 10:
            yield b"at last"
            return
        clock.advance(log_following.OUTAGE_S + 1)
        raise Unreachable("it restarts")

    async def work() -> list[bytes]:
        return [piece async for piece in LogReader(read, LogSelection(follow=True), clock).pieces()]

    assert asyncio.run(asyncio.wait_for(work(), 10)) == [b"at last"]


def test_lines_that_are_all_the_same_are_counted() -> None:
    whole = b"waiting\n" * 10_000
    assert follow(KeptLog(whole, [(0, 40_000), (0, 60_000), (0, 80_000)])) == (whole, 0)


def test_log_that_is_rotated_while_it_is_read_again() -> None:
    """A reading that started as before, and skipped the part that was rotated away in between."""

    class Jumps(KeptLog):
        async def read(
            self, query: LogSelection, offset: int | None
        ) -> AsyncIterator[Begin | bytes]:
            if self.readings != 1:
                async for piece in super().read(query, offset):
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
        async def read(
            self, query: LogSelection, offset: int | None
        ) -> AsyncIterator[Begin | bytes]:
            if len(self.stages) > 1:
                async for piece in super().read(query, offset):
                    yield piece
                return
            self.readings += 1
            yield b"attempt 2\n"

    assert follow(Retried(lines(50), [(0, 1_050), (0, 0)])) == (lines(50) + b"attempt 2\n", 1)


def test_reading_that_ended_for_good_goes_on_later() -> None:
    seen = SeenLog(complete=True)
    whole = lines(100)
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
