"""Log timestamps: the index that supervisors and launchers write, and lines read through it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.agent.state import log_writer
from moorage.agent.state.log_times import LogRange, TimedLines, stamp
from moorage.agent.state.log_writer import Log
from moorage.agent.state.logs import LogStore, data_of
from moorage.common.model.errors import NotFound
from moorage.common.model.ids import KernelId

K = KernelId("k")
START = 1_800_000_000.0


class Now:
    CLOCK_REALTIME = 0

    def __init__(self) -> None:
        self.now = START

    def clock_gettime(self, clock: int) -> float:
        return self.now


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    now = Now()
    monkeypatch.setattr(log_writer, "time", now)
    return now


def new_log(tmp_path: Path, max_bytes: int = 1 << 20) -> Log:
    return Log(str(tmp_path / K), max_bytes, 2)


async def read(tmp_path: Path, wanted: LogRange) -> bytes:
    pieces = LogStore(tmp_path).read_range(K, wanted, lambda: False)
    return b"".join([part async for part in data_of(pieces)])


def at(seconds: float) -> bytes:
    return stamp(round((START + seconds) * 1000))


def since(seconds: float, tail: int = 0) -> LogRange:
    return LogRange(tail_lines=tail, since_ms=round((START + seconds) * 1000))


async def test_lines_begin_with_their_times_over_rotation(tmp_path: Path, now: Now) -> None:
    log = new_log(tmp_path, 40)
    for number in range(12):
        now.now = START + number
        log.write(b"line %02d\n" % number)

    kept = range(12 - len(await read(tmp_path, LogRange())) // 8, 12)
    expected = [at(number) + b"line %02d\n" % number for number in kept]
    assert len(kept) > 5, "more than one file"
    assert await read(tmp_path, LogRange(timestamps=True)) == b"".join(expected)
    assert await read(tmp_path, LogRange(tail_lines=2, timestamps=True)) == b"".join(expected[-2:])
    assert stamp(1_800_000_000_123) == b"2027-01-15T08:00:00.123Z "


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        (since(-5), b"one\ntwo\nthree\nfour\n"),
        (since(10), b"three\nfour\n"),  # "two" had been started before
        (since(20), b"four\n"),
        (since(20.05), b"four\n"),  # times are accurate to a tenth of a second
        (since(21), b""),
        (since(-5, tail=1), b"four\n"),
        (since(20, tail=3), b"four\n"),
    ],
)
async def test_since(tmp_path: Path, now: Now, wanted: LogRange, shown: bytes) -> None:
    log = new_log(tmp_path)
    for seconds, text in ((0, b"one\ntw"), (10, b"o\nthree\n"), (20, b"four\n")):
        now.now = START + seconds
        log.write(text)
    assert await read(tmp_path, wanted) == shown


@pytest.mark.parametrize(("seconds", "number"), [(-5, 0), (10, 8), (20, 14)])
async def test_lines_since_a_time_have_their_numbers(
    tmp_path: Path, now: Now, seconds: float, number: int
) -> None:
    log = new_log(tmp_path)
    for at_s, text in ((0, b"one\ntw"), (10, b"o\nthree\n"), (20, b"four\n")):
        now.now = START + at_s
        log.write(text)
    wanted = replace(since(seconds), timestamps=True)
    pieces = [piece async for piece in LogStore(tmp_path).read_range(K, wanted, lambda: False)]
    assert pieces[0].offset == number


def test_the_index_is_bounded(tmp_path: Path, now: Now) -> None:
    log = new_log(tmp_path)
    times = tmp_path / K / "times.0000000000000000"
    for _ in range(100):
        now.now += 0.001
        log.write(b"many lines\n" * 100)

    assert times.stat().st_size <= 3 * 16, "the header and one pair in 100 ms"
    small = new_log(tmp_path / "small")
    for _ in range(1000):
        now.now += 1
        small.write(b".")

    size = (tmp_path / "small" / K / "times.0000000000000000").stat().st_size
    assert size <= 1000 + 4096 + 32


async def test_a_log_without_times_is_refused(tmp_path: Path, now: Now) -> None:
    new_log(tmp_path).write(b"one\n")
    (tmp_path / K / "times.0000000000000000").unlink()  # as from an older release
    with pytest.raises(NotFound, match="no times of this log were kept"):
        await read(tmp_path, LogRange(timestamps=True))
    assert await read(tmp_path, LogRange()) == b"one\n"


@given(pieces=st.lists(st.binary(max_size=8)))
def test_lines_are_stamped_wherever_the_pieces_end(pieces: list[bytes]) -> None:
    lines = TimedLines(LogRange(timestamps=True))
    shown = b"".join(lines.feed(piece, lambda at: 1000) for piece in pieces)
    whole = b"".join(pieces)
    assert shown == b"".join(stamp(1000) + line for line in _lines(whole))


def _lines(data: bytes) -> list[bytes]:
    *ended, rest = data.split(b"\n")
    return [line + b"\n" for line in ended] + ([rest] if rest else [])
