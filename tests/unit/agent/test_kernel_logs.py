"""Kernel logs on disk: rotation, tail, following and pruning."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.agent.state.log_times import LogRange
from moorage.agent.state.log_writer import Log
from moorage.agent.state.logs import LogStore, OutputLost, data_of
from moorage.common.link.log_request import LogPiece
from moorage.common.model.ids import KernelId

K = KernelId("k")


async def read_all(logs: LogStore, lines: int = 0) -> bytes:
    pieces = logs.read_range(K, LogRange(lines), lambda: False)
    return b"".join([part async for part in data_of(pieces)])


def rotating_log(tmp_path: Path, max_bytes: int = 50, keep: int = 2) -> tuple[LogStore, Log]:
    return LogStore(tmp_path), Log(str(tmp_path / K), max_bytes, keep)


async def test_rotation_keeps_the_newest_files(tmp_path: Path) -> None:
    logs, log = rotating_log(tmp_path)
    for number in range(40):
        log.write(b"line %02d\n" % number)

    files = sorted((tmp_path / K).glob("output.*"))
    assert [int(path.suffix[1:]) for path in files] == [192, 240, 288], (
        "the numbers of their first bytes"
    )
    assert all(path.stat().st_size <= 50 for path in files)
    kept = await read_all(logs)
    assert kept.endswith(b"line 38\nline 39\n")
    assert kept == b"".join(b"line %02d\n" % number for number in range(40 - len(kept) // 8, 40))


@pytest.mark.parametrize("lines", [1, 5, 6, 7, 13, 1000])
async def test_last_lines_span_rotated_files(tmp_path: Path, lines: int) -> None:
    logs, log = rotating_log(tmp_path)
    for number in range(15):
        log.write(b"line %02d\n" % number)
    assert await read_all(logs, lines) == b"".join(
        b"line %02d\n" % n for n in range(max(0, 15 - lines), 15)
    )


async def test_incomplete_last_line_counts(tmp_path: Path) -> None:
    logs, log = rotating_log(tmp_path, 1000)
    log.write(b"one\ntwo\nthr")
    assert (await read_all(logs, 1), await read_all(logs, 2)) == (b"thr", b"two\nthr")


async def test_follow_loses_nothing_over_rotation(tmp_path: Path) -> None:
    logs, log = rotating_log(tmp_path, 200, 5)
    is_running = True
    received = bytearray()

    async def follow() -> None:
        async for part in data_of(logs.read_range(K, LogRange(follow=True), lambda: is_running)):
            received.extend(part)

    following = asyncio.create_task(follow())
    expected = b""
    for number in range(60):
        line = b"line %03d\n" % number
        log.write(line)
        expected += line

        if number % 20 == 19:
            async with asyncio.timeout(5):
                while bytes(received) != expected:
                    await asyncio.sleep(0.01)

    is_running = False
    async with asyncio.timeout(5):
        await following

    assert bytes(received) == expected


@pytest.mark.parametrize(
    ("written", "max_bytes", "tail"),
    [
        (b"", 100, ""),
        (b"short\n", 100, "short\n"),
        (b"first\nsecond\nthird\n", 10, "third\n"),
        (b"x" * 50, 10, "x" * 10),
        (b"a\x00b\n", 100, "a\N{REPLACEMENT CHARACTER}b\n"),
        (b"cut: " + "ü".encode() * 20, 11, "ü" * 5),
        (b"\xff\xfe\xfd\xfc", 4, "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_tail_is_text_of_bounded_size(
    tmp_path: Path, written: bytes, max_bytes: int, tail: str
) -> None:
    logs, log = rotating_log(tmp_path, 1000)
    log.write(written)
    found = logs.tail(K, max_bytes)
    assert len(found.encode()) <= max_bytes
    assert found.lstrip("\N{REPLACEMENT CHARACTER}") == tail.lstrip("\N{REPLACEMENT CHARACTER}")


def test_prune_keeps_the_newest_logs(tmp_path: Path) -> None:
    logs = LogStore(tmp_path)
    for number in range(6):
        folder = tmp_path / f"k{number}"
        folder.mkdir()
        os.utime(folder, (number, number))
    logs.prune({KernelId("k0")}, keep=2)
    assert {path.name for path in tmp_path.iterdir()} == {"k0", "k4", "k5"}


async def test_missing_log_is_empty(tmp_path: Path) -> None:
    logs = LogStore(tmp_path)
    assert not logs.exists(K)
    assert (await read_all(logs), logs.tail(K, 100)) == (b"", "")


class RenamingLog:
    """The log of a supervisor started by an older release."""

    def __init__(self, folder: Path, max_bytes: int, keep: int) -> None:
        self.path = folder / "kernel.log"
        self.max_bytes = max_bytes
        self.keep = keep
        folder.mkdir()
        self.path.touch()

    def write(self, data: bytes) -> None:
        if self.path.stat().st_size + len(data) > self.max_bytes:
            for number in range(self.keep - 1, -1, -1):
                older = self.path.with_name(f"kernel.log.{number}") if number else self.path
                if older.exists():
                    older.replace(self.path.with_name(f"kernel.log.{number + 1}"))
        with self.path.open("ab") as file:
            file.write(data)


def writer_at(folder: Path, max_bytes: int, keep: int, *, renames: bool) -> RenamingLog | Log:
    return RenamingLog(folder, max_bytes, keep) if renames else Log(str(folder), max_bytes, keep)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("renames", [False, True], ids=["numbered", "of an older release"])
async def test_a_reader_that_keeps_up_misses_nothing_of_fast_rotations(
    tmp_path: Path, renames: bool, seed: int
) -> None:
    """The writer gets a turn whenever the reader accesses the disk, so that a rotation happens
    between listing the files and opening a listed one."""
    logs = LogStore(tmp_path)
    log = writer_at(tmp_path / K, 30, 20, renames=renames)
    random = Random(seed)
    taken = 0
    number = 0
    total = 300

    def write() -> None:
        nonlocal number
        while number < total and number - taken < 30 and random.random() < 0.7:
            log.write(b"%08d\n" % number)
            number += 1

    received = bytearray()
    with between_accesses(write):
        async with asyncio.timeout(30):
            async for part in data_of(
                logs.read_range(K, LogRange(follow=True), lambda: number < total)
            ):
                received += part
                taken = int(received[-9:])

    assert bytes(received) == b"".join(b"%08d\n" % one for one in range(total))


_turn: Callable[[], None] | None = None


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    global _turn
    if _turn is not None and event in ("open", "os.listdir", "os.scandir"):
        turn = _turn
        _turn = None
        turn()
        _turn = turn


@contextmanager
def between_accesses(turn: Callable[[], None]) -> Iterator[None]:
    """``turn`` is called before each time a file is opened and each time files are listed."""
    global _turn
    if not _hooked:
        sys.addaudithook(_audit)  # there is no way to remove one
        _hooked.append(True)

    _turn = turn
    try:
        yield
    finally:
        _turn = None


_hooked: list[bool] = []


@examples(25)
@given(data=st.data())
def test_bytes_are_in_their_order_once_or_told_as_lost(data: st.DataObject) -> None:
    """With rotations, restarted writers, full disks and readers of any speed."""
    with TemporaryDirectory() as folder:
        asyncio.run(_check_order(Path(folder), data))


async def _check_order(root: Path, data: st.DataObject) -> None:
    max_bytes = data.draw(st.integers(1, 40))
    keep = data.draw(st.integers(0, 3))
    logs = LogStore(root)
    log = Log(str(root / K), max_bytes, keep)
    is_running = True
    written = bytearray()
    lost = set[int]()
    number = 0

    def write(size: int) -> None:
        nonlocal number
        for _ in range(size):
            log.write(bytes([number % 251]))
            number += 1

    async def read() -> None:
        """A reader that restarts, and continues after the part that it has already read."""
        nonlocal written
        position = 0
        while True:
            pieces = logs.read_range(K, LogRange(follow=True, offset=position), lambda: is_running)
            begins = True
            async with aclosing(pieces):
                with suppress(OutputLost):  # and it looks for the place
                    async for piece in pieces:
                        assert piece.offset is not None
                        assert piece.offset == position or (begins and piece.offset > position)
                        lost.update(range(position, piece.offset))
                        begins = False
                        written += piece.data
                        position = piece.offset + len(piece.data)
                        assert piece.data == bytes(n % 251 for n in range(piece.offset, position))
                        if not piece.data:
                            continue
                        if data.draw(st.booleans()):
                            write(data.draw(st.integers(0, 60)))
                        if data.draw(st.integers(0, 9)) == 0:
                            break
                    else:
                        lost.update(range(position, number))
                        return

    refused = set[int]()
    for _ in range(data.draw(st.integers(0, 4))):
        write(data.draw(st.integers(0, 60)))
        match data.draw(st.sampled_from(["", "again", "full"])):
            case "again":
                log.close()
                log = Log(str(root / K), max_bytes, keep)
                number = log.end  # it does not know which lines were refused at the very end
                refused = {one for one in refused if one < number}
            case "full":
                refused.update(range(number, number + 5))
                number += 5
                log.skip_to(number)

    is_running = False
    await read()
    assert len(written) + len(lost) == number
    assert refused <= lost
    kept = sum(path.stat().st_size for path in (root / K).glob("output.*"))
    assert kept <= (keep + 1) * max_bytes, "the disk is bounded"


async def test_what_a_full_disk_refuses_is_missing_and_told(tmp_path: Path) -> None:
    logs = LogStore(tmp_path)
    log = Log(str(tmp_path / K), 1000, 2)
    log.write(b"before ")

    with pytest.MonkeyPatch.context() as full:
        full.setattr(os, "write", _refuse)
        log.write(b"refused")
        log.write(b"refused")

    log.write(b"after")
    assert await read_all(logs) == b"before after", "to a reader that knows no gaps"
    following = data_of(logs.read_range(K, LogRange(follow=True), lambda: False))
    assert b"".join([data async for data in following]) == b"before after", (
        "which it would meet for ever"
    )

    for wanted in (LogRange(offset=0), LogRange(offset=0, timestamps=True)):
        reading = data_of(logs.read_range(K, wanted, lambda: False))
        assert (await anext(reading)).endswith(b"before ")
        with pytest.raises(OutputLost):
            await anext(reading)

    rest = [piece async for piece in logs.read_range(K, LogRange(offset=7), lambda: False)]
    assert rest == [LogPiece(b"", 21), LogPiece(b"after", 21)]


async def test_what_is_rotated_away_before_a_log_is_first_found_is_told(tmp_path: Path) -> None:
    """The log is followed before it has a file."""
    logs = LogStore(tmp_path)
    reading = data_of(logs.read_range(K, LogRange(follow=True), lambda: True))
    first = asyncio.ensure_future(anext(reading))
    await asyncio.sleep(0)
    log = Log(str(tmp_path / K), 10, 1)
    for _ in range(5):
        log.write(b"x" * 10)

    with pytest.raises(OutputLost):
        await first


def _refuse(fd: int, data: bytes) -> int:
    raise OSError(errno.ENOSPC, "full")
