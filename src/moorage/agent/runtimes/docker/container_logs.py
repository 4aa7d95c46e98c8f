"""Container logs, copied from the engine into the log store while they are written.

A stream that follows the output is incomplete: it ends when the engine rotates its file or
restarts, and the engine that many installations use (20.10) skips a whole file if it rotates twice
while a reader is busy. A stream therefore only signals that there is new output. The copied data
comes from readings of the last messages, which are complete: each reading reaches back to the last
copied message, which proves that nothing is missing, duplicated or reordered. If that message is no
longer kept, bytes were lost, as the number of the next byte then shows.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

import structlog

from moorage.agent.runtimes.base import RuntimeFailed
from moorage.agent.runtimes.docker.engine import DockerEngine, OutputLine
from moorage.agent.runtimes.docker.errors import NoSuchObject, RequestRefused
from moorage.agent.state.log_files import is_renamed, log_paths
from moorage.agent.state.log_times import LogRange
from moorage.agent.state.log_writer import Log
from moorage.agent.state.logs import LogStore
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.log_request import LogPiece
from moorage.common.model.ids import KernelId

log = structlog.get_logger("moorage.agent.docker")
# How often a busy container's output is copied, and how often the output of other containers is
# checked, in case a stream is silent by mistake.
_PAUSE_S = 0.1
_LOOK_AGAIN_S = 10.0
_FIRST_RETRY_S = 0.2
_LONGEST_RETRY_S = 10.0
# How many messages a reading includes beyond those counted since the last reading.
_SPARE = 16
_LARGER = 16
_ALL = 0
_POSITION = "copied.json"
_LOCK = "copied.lock"
_LOCKED_S = 0.01


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a copy. ``end``: the number of the next byte. ``channel``: the last copied
    message's channel; 0 if none was copied. ``runs``: for each channel, the last time and the
    number of copied messages with that time, because the pieces of a long line share a time."""

    end: int = 0
    channel: int = 0
    runs: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def behind(self, message: OutputLine) -> Position:
        """The position after the next message."""
        time, count = self.runs.get(str(message.channel), ("", 0))
        run = message.time, (count + 1 if time == message.time else 1)
        runs = {**self.runs, str(message.channel): run}
        return Position(self.end + len(message.data), message.channel, runs)


class NewMessages:
    """The messages of a reading that come after ``position``. Pure.

    ``is_whole``: the reading starts at the first kept message. ``is_found``: the position was
    found. Until then, no message is new.
    """

    def __init__(self, position: Position, *, is_whole: bool) -> None:
        self._channel = position.channel
        self._is_sure = is_whole
        self._time, self._left = position.runs.get(str(position.channel), ("", 0))
        self.is_found = not position.channel
        self.read = 0

    def feed(self, messages: Iterable[OutputLine]) -> list[OutputLine]:
        return [message for message in messages if self._is_new(message)]

    def _is_new(self, message: OutputLine) -> bool:
        self.read += 1
        if self.is_found:
            return True

        if message.channel == self._channel and message.time == self._time:
            self._left -= 1
            self.is_found = self._is_sure and self._left == 0
        elif message.channel == self._channel:
            # Messages that share a time are counted from the first message that follows a different
            # time.
            self._is_sure = True

        return False


def time_ms(stamp: str) -> int:
    """Unix time in milliseconds; 0 if there is none, for example with a log driver that does not
    record times."""
    try:
        time = datetime.fromisoformat(stamp)
    except ValueError:
        return 0
    return 0 if time.tzinfo is None else int(time.timestamp() * 1000)


class LogCopy:
    """The copy of one container's output. ``is_over``: nothing more will be copied. ``is_gone``:
    the container currently does not exist."""

    def __init__(
        self, engine: DockerEngine, store: LogStore, kernel_id: KernelId, container: str
    ) -> None:
        self._engine = engine
        self._store = store
        self._container = container
        self.kernel_id = kernel_id
        self.is_over = False
        self.is_gone = False
        self._may_have_ended = True
        self._changed = asyncio.Event()
        self._counted = 0
        self._lock = asyncio.Lock()
        self._writer: Log | None = None
        self._position = Position()
        self._saved = self._position
        self._task = spawn(f"docker.log.{kernel_id}", self._run())

    async def close(self) -> None:
        await cancel_and_wait(self._task)
        async with self._lock:
            if self._writer is not None:
                self._writer.close()

    def look(self) -> None:
        """Check whether the container has ended."""
        self._may_have_ended = True
        self._changed.set()

    async def catch_up(self) -> None:
        """Copy the output that the engine currently has. Raises ``RuntimeFailed`` and
        ``OSError``."""
        async with self._lock:
            if self.is_over:
                return

            async with _only_copy(self._store.folder(self.kernel_id)):
                if not await asyncio.to_thread(self._open):
                    self.is_over = True
                    return

                tail = self._counted + _SPARE
                self._counted = 0
                while not await self._read(tail if self._position.channel else _ALL):
                    tail *= _LARGER

    async def finish(self) -> None:
        """Copy all remaining output of an ended container."""
        await self.catch_up()
        self.is_over = True

    async def _run(self) -> None:
        watching = spawn(f"docker.watch.{self.kernel_id}", self._watch())
        pause_s = _FIRST_RETRY_S
        try:
            while not self.is_over:
                self._changed.clear()
                try:
                    await self._step()
                    pause_s = _FIRST_RETRY_S
                    await asyncio.sleep(_PAUSE_S)

                    try:
                        async with asyncio.timeout(_LOOK_AGAIN_S):
                            await self._changed.wait()
                    except TimeoutError:
                        self._may_have_ended = True
                except NoSuchObject:
                    self.is_over = True
                    self.is_gone = True
                except (RuntimeFailed, OSError) as error:
                    if pause_s == _LONGEST_RETRY_S:
                        log.warning("cannot copy a log", kernel=self.kernel_id, error=str(error))

                    self._may_have_ended = True
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_RETRY_S)
        finally:
            # This happens even if the task fails, so that its readers do not wait endlessly and the
            # next task starts over.
            self.is_gone = self.is_gone or not self.is_over
            self.is_over = True
            await cancel_and_wait(watching)

    async def _step(self) -> None:
        has_ended = False
        if self._may_have_ended:
            # This is checked before the reading, because a reading of an ended container is
            # complete.
            has_ended = await self._engine.has_ended(self._container)
            self._may_have_ended = False
        await self.catch_up()
        self.is_over = self.is_over or has_ended

    async def _watch(self) -> None:
        """Wake the copy when there is output. The streams' output is only counted."""
        while not self.is_over:
            with suppress(RuntimeFailed):
                async with aclosing(self._engine.count_messages(self._container)) as counts:
                    async for count in counts:
                        self._counted += count
                        self._changed.set()
            self.look()
            await asyncio.sleep(_FIRST_RETRY_S)

    async def _read(self, tail: int) -> bool:
        """Copy those of the last ``tail`` messages that are new. Returns False if these messages do
        not reach back to the last copied message."""
        new = NewMessages(self._position, is_whole=tail == _ALL)
        async with aclosing(self._engine.messages(self._container, tail)) as pieces:
            async for messages in pieces:
                self._append(new.feed(messages))
                await asyncio.sleep(0)  # a reader must keep up

        if new.is_found:
            return True
        if tail != _ALL and new.read >= tail:
            return False
        if tail != _ALL:
            return await self._read(_ALL)

        # The engine has rotated that message away. The amount lost is unknown and is counted as one
        # byte.
        log.warning("output of a container was lost", kernel=self.kernel_id)
        assert self._writer is not None
        self._position = Position(max(self._position.end, self._writer.end) + 1)
        return await self._read(_ALL)

    def _open(self) -> bool:
        """Continue where this copy, or another agent's copy, ended. Returns False if an older
        release has made a complete copy."""
        folder = self._store.folder(self.kernel_id)
        position = _load(folder / _POSITION)
        if self._writer is not None:
            if position == self._saved:
                return True
            self._writer.close()  # another agent has copied since
        elif any(is_renamed(path) for path, _ in log_paths(folder)):
            return False

        self._writer = self._store.writer(self.kernel_id, precision_ms=1)
        self._position = position
        self._saved = position
        return True

    def _append(self, messages: list[OutputLine]) -> None:
        writer = self._writer
        position = self._position
        assert writer is not None
        writer.skip_to(position.end)  # bytes that could not be written to a full disk
        time = ""
        piece = list[bytes]()
        size = 0
        for message in messages:
            if message.time[:_TO_MS] != time[:_TO_MS] and piece:
                writer.write(b"".join(piece), time_ms(time))
                piece = []
                size = 0

            time = message.time
            # An agent that is killed here has written the data but not the position.
            data = message.data[max(writer.end + size - position.end, 0) :]
            piece.append(data)
            size += len(data)
            position = position.behind(message)

        if piece:
            writer.write(b"".join(piece), time_ms(time))
            self._position = position
            self._saved = position
            _save(self._store.folder(self.kernel_id) / _POSITION, position)


# The length of a time in RFC 3339 up to its milliseconds.
_TO_MS = len("2026-11-26T00:29:46.958")


def _open_lock(folder: Path) -> int:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@asynccontextmanager
async def _only_copy(folder: Path) -> AsyncIterator[None]:
    """Wait until no other copy of the log in ``folder`` is being made. An agent makes only one
    copy, but a second agent with the same state would otherwise write each message again."""
    lock = _open_lock(folder)
    try:
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break

            await asyncio.sleep(_LOCKED_S)

        yield
    finally:
        os.close(lock)


def _load(path: Path) -> Position:
    try:
        found = json.loads(path.read_text())
        return Position(
            found["end"],
            found["channel"],
            {channel: tuple(run) for channel, run in found["runs"].items()},
        )
    except (FileNotFoundError, ValueError):
        return Position()


def _save(path: Path, position: Position) -> None:
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(asdict(position)))
    part.replace(path)


class ContainerLogs:
    """Copies of container logs, made until ``close``."""

    def __init__(self, engine: DockerEngine, store: LogStore) -> None:
        self._engine = engine
        self._store = store
        self._copies: dict[KernelId, LogCopy] = {}

    def begin(self, kernel_id: KernelId, container: str) -> LogCopy:
        """Copy a container's log, unless it is already being copied."""
        copy = self._copies.get(kernel_id)
        if copy is None or copy.is_gone:
            copy = self._copies[kernel_id] = LogCopy(
                self._engine, self._store, kernel_id, container
            )
        return copy

    async def close(self) -> None:
        await asyncio.gather(*(copy.close() for copy in self._copies.values()))

    async def read(
        self, kernel_id: KernelId, container: str, wanted: LogRange
    ) -> AsyncGenerator[LogPiece, None]:
        """Read a log like ``LogStore.read_range``."""
        copy = await self._caught_up(kernel_id, container)
        source = self._store.read_range(kernel_id, wanted, lambda: not copy.is_over)
        async with aclosing(source) as pieces:
            async for piece in pieces:
                yield piece

    async def tail(self, kernel_id: KernelId, container: str, max_bytes: int) -> str:
        """The end of the log, like ``Runtime.log_tail``."""
        await self._caught_up(kernel_id, container)
        return await asyncio.to_thread(self._store.tail, kernel_id, max_bytes)

    async def save(self, kernel_id: KernelId, container: str) -> None:
        """Copy an ended container's output, because the engine deletes it with the container."""
        copy = self.begin(kernel_id, container)
        try:
            await copy.finish()
        except (OSError, RequestRefused) as error:
            # A full disk or an unreadable log driver must not prevent the removal of the container.
            log.warning("cannot save the log of a container", kernel=kernel_id, error=str(error))
        await self.forget(kernel_id)

    async def forget(self, kernel_id: KernelId) -> None:
        """Forget a container that no longer exists."""
        if copy := self._copies.pop(kernel_id, None):
            copy.is_over = True
            await copy.close()

    async def _caught_up(self, kernel_id: KernelId, container: str) -> LogCopy:
        copy = self.begin(kernel_id, container)
        try:
            await copy.catch_up()
        except NoSuchObject:
            copy.is_over = True
            copy.is_gone = True
        except (RuntimeFailed, OSError) as error:
            # The copied part remains.
            log.warning("cannot read the log of a container", kernel=kernel_id, error=str(error))

        return copy
