"""Logs of containers: read from the engine while the container exists, and afterwards from the log store, to
which they are copied with the times of their lines before the engine deletes them."""

from __future__ import annotations

import asyncio
import os
import shutil
from array import array
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime
from pathlib import Path

import structlog

from moorage.agent.runtimes.base import RuntimeFailed
from moorage.agent.runtimes.docker.engine import Engine
from moorage.agent.runtimes.docker.errors import RequestRefused
from moorage.agent.state.log_times import LogRange, TimedLines
from moorage.agent.state.logs import LogStore, tail_text
from moorage.common.model.ids import KernelId

log = structlog.get_logger("moorage.agent.docker")
_TAIL_LINES = 400


def split_time(message: bytes) -> tuple[int, bytes]:
    """The unix time in milliseconds that the engine has put in front of a message, and the message. The time
    is 0 if there is none, as of a log driver that knows no times."""
    stamp, space, rest = message.partition(b" ")
    try:
        time = datetime.fromisoformat(stamp.decode())
    except ValueError:
        return 0, message
    if not space or time.tzinfo is None:
        return 0, message
    return int(time.timestamp() * 1000), rest


def _always(time_ms: int) -> Callable[[int], int]:
    return lambda _: time_ms


class ContainerLogs:
    def __init__(self, engine: Engine, store: LogStore) -> None:
        self._engine, self._store = engine, store

    async def read(
        self, kernel_id: KernelId, container: str, wanted: LogRange
    ) -> AsyncGenerator[bytes, None]:
        """Raises ``NotFound`` if ``wanted`` needs times, and a log that was copied has none."""
        if self._store.exists(kernel_id):
            source = self._store.open(kernel_id, wanted, lambda: False)
        elif wanted.needs_times:
            source = self._read_timed(container, wanted)
        else:
            source = self._engine.logs(container, wanted.tail_lines, wanted.follow)
        async with aclosing(source) as pieces:
            async for data in pieces:
                yield data

    async def _read_timed(self, container: str, wanted: LogRange) -> AsyncGenerator[bytes, None]:
        lines = TimedLines(wanted)
        async with aclosing(self._engine.messages(container, wanted)) as pieces:
            async for messages in pieces:
                shown = [lines.feed(data, _always(time)) for time, data in map(split_time, messages)]
                if output := b"".join(shown):
                    yield output

    async def tail(self, kernel_id: KernelId, container: str, max_bytes: int) -> str:
        """The end of the log, as ``Runtime.log_tail``."""
        if self._store.exists(kernel_id):
            return await asyncio.to_thread(self._store.tail, kernel_id, max_bytes)
        end = b""
        try:
            async with aclosing(self._engine.logs(container, _TAIL_LINES)) as pieces:
                async for data in pieces:
                    end = (end + data)[-max_bytes - 1 :]
        except RuntimeFailed as error:
            log.warning("cannot read the log of a container", kernel=kernel_id, error=str(error))
        return tail_text(end, max_bytes)

    async def save(self, kernel_id: KernelId, container: str) -> None:
        """Copy the log to the log store, because the engine deletes it with the container."""
        folder = self._store.folder(kernel_id)
        if self._store.exists(kernel_id):
            return
        part = folder / f"part.{os.getpid()}"
        try:
            await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True, mode=0o700)
            await self._copy(container, part, folder / "kernel.times")
            part.replace(folder / "kernel.log")
        except (OSError, RequestRefused) as error:
            # A full disk or an unreadable log driver must not prevent the removal of the container.
            log.warning("cannot save the log of a container", kernel=kernel_id, error=str(error))
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _copy(self, container: str, target: Path, index: Path) -> None:
        offset, last = 0, 0
        with target.open("wb") as file, index.open("wb") as times:
            times.write(array("Q", (os.fstat(file.fileno()).st_ino, 1)).tobytes())
            async with aclosing(self._engine.messages(container, LogRange())) as pieces:
                async for messages in pieces:
                    pairs, output = array("Q"), list[bytes]()
                    for time, data in map(split_time, messages):
                        if time != last:
                            pairs.extend((offset, time))
                            last = time
                        output.append(data)
                        offset += len(data)
                    await asyncio.to_thread(file.write, b"".join(output))
                    times.write(pairs.tobytes())
