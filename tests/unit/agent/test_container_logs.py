"""Copies of container logs: nothing is missing, duplicated or reordered, no matter what the engine
does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.agent.runtimes.docker.container_logs import (
    ContainerLogs,
    NewMessages,
    Position,
    time_ms,
)
from moorage.agent.runtimes.docker.engine import OutputLine
from moorage.agent.runtimes.docker.errors import EngineUnavailable
from moorage.agent.state.log_times import LogRange
from moorage.agent.state.log_writer import Log
from moorage.agent.state.logs import LogStore, OutputLost, data_of
from moorage.common.model.ids import KernelId

K = KernelId("k")


class ScriptedEngine:
    """Keeps the last ``kept`` messages of one container. Its readings are complete, but its streams
    are not: each ends after ``stream`` messages. A stream breaks after the next number of pieces in
    ``breaks``."""

    def __init__(self, kept: int = 1_000_000, stream: int = 3, breaks: Iterable[int] = ()) -> None:
        self.written = list[OutputLine]()
        self.kept = kept
        self.ended = False
        self._stream = stream
        self._breaks = list(breaks)
        self.pieces = 0

    def write(self, text: bytes, channel: int = 1, time: int | None = None) -> None:
        time = len(self.written) if time is None else time
        stamp = f"2026-11-26T00:00:{time // 1000:02}.{time % 1000:03}000001Z"
        self.written.append(OutputLine(channel, stamp, text))

    async def messages(self, container: str, tail: int) -> AsyncGenerator[list[OutputLine], None]:
        found = self.written[-self.kept :][-tail:]
        left = self._breaks.pop(0) if self._breaks else None
        for start in range(0, len(found), 4):
            if left is not None and start // 4 >= left:
                raise EngineUnavailable("broken")
            self.pieces += 1
            yield found[start : start + 4]

    async def count_messages(self, container: str) -> AsyncGenerator[int, None]:
        seen = len(self.written)
        yield 0
        while len(self.written) - seen < self._stream and not self.ended:
            await asyncio.sleep(0.005)
            yield max(len(self.written) - seen - 2, 0)

    async def has_ended(self, container: str) -> bool:
        return self.ended


def logs_of(engine: Any, root: Path) -> ContainerLogs:
    return ContainerLogs(engine, LogStore(root))


async def read(logs: ContainerLogs, wanted: LogRange | None = None) -> bytes:
    async with asyncio.timeout(20):
        pieces = logs.read(K, "container", wanted or LogRange())
        return b"".join([data async for data in data_of(pieces)])


MESSAGES = st.lists(
    st.tuples(st.sampled_from([1, 2]), st.integers(0, 1), st.binary(min_size=1, max_size=9))
)


@examples(40)
@given(data=st.data())
def test_a_copy_is_what_was_written(data: st.DataObject) -> None:
    """This holds with agents that are killed at any point, engines that break, and lines whose
    pieces share a timestamp."""
    with TemporaryDirectory() as folder:
        asyncio.run(_check_copy(Path(folder), data))


async def _check_copy(root: Path, data: st.DataObject) -> None:
    engine = ScriptedEngine(breaks=data.draw(st.lists(st.integers(0, 3), max_size=5)))
    time = 0
    logs = logs_of(engine, root)
    for messages in data.draw(st.lists(MESSAGES, max_size=5)):
        for channel, later, text in messages:
            time += later
            engine.write(text, channel, time)

        match data.draw(
            st.sampled_from(["read", "killed before it noted its place", "killed", ""])
        ):
            case "read":
                await read(logs)
            case "killed before it noted its place":
                await read(logs)
                await logs.close()
                noted = root / K / "copied.json"
                before = noted.read_bytes() if noted.exists() else None
                engine.write(b"more", 1, time)
                logs = logs_of(engine, root)
                await read(logs)
                await logs.close()

                if before is not None:
                    noted.write_bytes(before)
                elif noted.exists():
                    noted.unlink()
                    for path in (root / K).iterdir():
                        path.unlink()

                logs = logs_of(engine, root)
            case "killed":
                await logs.close()
                logs = logs_of(engine, root)

    engine.ended = True
    await _until_saved(logs)
    await logs.close()
    expected = b"".join(message.data for message in engine.written)
    pieces = LogStore(root).read_range(K, LogRange(offset=0), lambda: False)
    found = [piece async for piece in pieces]
    assert b"".join(piece.data for piece in found) == expected
    assert found[0].offset == 0


async def _until_saved(logs: ContainerLogs) -> None:
    while True:
        try:
            return await logs.save(K, "container")
        except EngineUnavailable:
            pass


async def test_a_reader_follows_over_streams_that_end_and_says_less(tmp_path: Path) -> None:
    engine = ScriptedEngine()
    logs = logs_of(engine, tmp_path)
    received = b""

    async def write() -> None:
        for number in range(200):
            engine.write(b"%04d\n" % number)
            await asyncio.sleep(0.001)
        engine.ended = True

    writing = asyncio.create_task(write())
    async with asyncio.timeout(20):
        async for data in data_of(logs.read(K, "container", LogRange(follow=True))):
            received += data

    await writing
    await logs.close()
    assert received == b"".join(b"%04d\n" % number for number in range(200))


async def test_what_the_engine_has_rotated_away_is_told(tmp_path: Path) -> None:
    """The agent was away for longer than the engine keeps output."""
    engine = ScriptedEngine(kept=10)
    logs = logs_of(engine, tmp_path)
    for number in range(5):
        engine.write(b"%04d\n" % number)

    assert await read(logs) == b"0000\n0001\n0002\n0003\n0004\n"
    await logs.close()
    for number in range(5, 50):
        engine.write(b"%04d\n" % number)

    engine.ended = True
    logs = logs_of(engine, tmp_path)
    received = b""
    following = data_of(logs.read(K, "container", LogRange(follow=True, offset=0)))

    async def follow() -> None:
        nonlocal received
        async for data in following:
            received += data

    with pytest.raises(OutputLost):
        await follow()

    assert received == b"0000\n0001\n0002\n0003\n0004\n"
    kept = b"".join(b"%04d\n" % number for number in range(40, 50))
    assert await read(logs) == received + kept
    await logs.close()


async def test_output_costs_by_what_is_new(tmp_path: Path) -> None:
    """A reading starts near the last message that was copied, not at the first message that is
    kept."""
    engine = ScriptedEngine()
    logs = logs_of(engine, tmp_path)
    for number in range(4000):
        engine.write(b"%04d\n" % number)

    await read(logs)
    engine.pieces = 0
    engine.write(b"new\n")
    assert (await read(logs)).endswith(b"3999\nnew\n")
    assert engine.pieces < 20
    await logs.close()


async def test_a_log_that_an_older_release_has_saved_is_not_copied_again(tmp_path: Path) -> None:
    (tmp_path / K).mkdir()
    (tmp_path / K / "kernel.log").write_bytes(b"saved\n")
    engine = ScriptedEngine()
    engine.write(b"saved\n")
    logs = logs_of(engine, tmp_path)
    assert await read(logs) == b"saved\n"
    await logs.close()


def test_the_place_is_behind_all_pieces_of_a_line() -> None:
    """The pieces of a long line share a timestamp. A reading that begins within the line does not
    show how many there are."""
    piece = OutputLine(1, "t", b"x")
    other = OutputLine(2, "u", b"y")
    after = OutputLine(1, "v", b"z")
    position = Position()
    for message in (piece, piece, other, piece):
        position = position.behind(message)

    whole = NewMessages(position, is_whole=True)
    assert whole.feed([piece, piece, other, piece, piece, after]) == [piece, after]
    cut = NewMessages(position, is_whole=False)
    assert (cut.feed([piece, piece, piece, after]), cut.is_found) == ([], False)
    behind_another = NewMessages(position, is_whole=False)
    assert behind_another.feed([after, piece, piece, piece, piece]) == [piece]


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"2026-11-26T00:29:46.958538123Z line\n", (1_795_652_986_958, b"line\n")),
        (b"2026-11-26T00:29:46.958538123Z \n", (1_795_652_986_958, b"\n")),
        (
            b"2026-11-26T01:29:46.958+01:00 of another zone\n",
            (1_795_652_986_958, b"of another zone\n"),
        ),
        (b"2026-11-26T00:29:46.958538123Z two words\n", (1_795_652_986_958, b"two words\n")),
        (b"no time\n", (0, b"no time\n")),
        (b"2026-11-26T00:29:46 without a zone\n", (0, b"2026-11-26T00:29:46 without a zone\n")),
        (b"\xff\xfe bytes\n", (0, b"\xff\xfe bytes\n")),
        (b"", (0, b"")),
    ],
)
def test_messages_begin_with_their_times(payload: bytes, expected: tuple[int, bytes]) -> None:
    message = OutputLine.parse(1, payload)
    assert (time_ms(message.time), message.data) == expected


def test_a_copy_keeps_times_to_the_millisecond(tmp_path: Path) -> None:
    log = Log(str(tmp_path / K), 1000, 1, 1)
    log.write(b"one\n", 5_000)
    log.write(b"two\n", 5_003)
    found = asyncio.run(_stamped(tmp_path))
    assert found == b"1970-01-01T00:00:05.000Z one\n1970-01-01T00:00:05.003Z two\n"


async def _stamped(root: Path) -> bytes:
    logs = LogStore(root).read_range(K, LogRange(timestamps=True), lambda: False)
    async with aclosing(data_of(logs)) as pieces:
        return b"".join([piece async for piece in pieces])
