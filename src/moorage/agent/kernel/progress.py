"""Progress that programs report: JSON lines in the file named by ``MOORAGE_PROGRESS``, or log
lines.

The newest valid line is the progress. Programs are not trusted: only the end of a file is read, and
only if it is a regular file with a single name that is not a link.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import structlog

from moorage.agent.devices.usage.sampler import RunningKernel
from moorage.agent.kernel.context import AgentContext
from moorage.agent.kernel.launch import progress_file
from moorage.agent.runtimes.base import RuntimeFailed
from moorage.common.model.ids import KernelId
from moorage.common.model.progress import PROGRESS_FROM
from moorage.common.model.resource_usage import KernelProgress

log = structlog.get_logger("moorage.agent.progress")
_TAIL_BYTES = 64 * 1024
_LINE_BYTES = 4096
_MESSAGE = 200
_LARGEST = (1 << 53) - 1
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
# The maximum number of candidate lines, because a hostile program could print as many as fit.
_CANDIDATES = 200
# ``title: 40%|#### | 120/300 [00:12<00:18, 9.80it/s]``, as tqdm prints it. The title is searched
# for from here, because a pattern that starts with arbitrary text takes quadratic time.
_BAR = re.compile(r"\d{1,3}%\|[^|]*\| (?P<step>\d{1,15})/(?P<of>\d{1,15}) \[")


def parse_lines(kernel_id: KernelId, tail: bytes, *, log: bool = False) -> KernelProgress | None:
    """The newest progress at the end of a file, or None. ``problem`` is the reason why a newer line
    was ignored. ``log``: the file is a log, in which other lines are not a problem and tqdm bars
    are progress."""
    problem = ""
    end = tail if log else tail[: tail.rfind(b"\n") + 1]
    lines = (line for line in reversed(re.split(rb"[\r\n]+", end)) if line.strip())
    candidates = (line for line in lines if not log or b"%|" in line or b'"fraction"' in line)
    for line in islice(candidates, _CANDIDATES):
        found = _parse(kernel_id, line, log)
        if isinstance(found, KernelProgress):
            return KernelProgress(**_fields(found) | {"problem": problem})

        problem = problem or found

    return KernelProgress(kernel_id, problem=problem) if problem else None


def _fields(found: KernelProgress) -> dict[str, Any]:
    return {name: getattr(found, name) for name in KernelProgress.__dataclass_fields__}


def _parse(kernel_id: KernelId, line: bytes, log: bool) -> KernelProgress | str:
    """The progress in a line, or the reason why the line has none; "" for an ordinary log line."""
    if log and (bar := _BAR.search(text := line[-_LINE_BYTES:].decode(errors="replace"))):
        step = int(bar["step"])
        of = int(bar["of"])
        fraction = min(step / of, 1.0) if of else None
        return KernelProgress(
            kernel_id, fraction, step=step, of=of, message=_title(text[: bar.start()])
        )

    if log and b'"fraction"' not in line:
        return ""
    if len(line) > _LINE_BYTES:
        return f"a line of {len(line)} bytes was ignored: at most {_LINE_BYTES} are allowed"

    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return f"{_text(line.decode(errors='replace'), 60)!r} was ignored: it is not a JSON object"

    return _check(kernel_id, value)


def _title(before: str) -> str:
    """The title of a tqdm bar, from the text before it."""
    before = before.rstrip(" ")
    return _text(before[:-1].rpartition("|")[2][-_MESSAGE:]) if before.endswith(":") else ""


def _check(kernel_id: KernelId, value: Any) -> KernelProgress | str:
    if not isinstance(value, dict):
        return f"{_text(str(value), 60)!r} was ignored: it is not a JSON object"

    fraction = value.get("fraction")
    step = value.get("step")
    of = value.get("of")
    if fraction is None and _is_count(step) and _is_count(of) and of:
        fraction = step / of
    if fraction is not None and not _is_fraction(fraction):
        return f"fraction {_text(str(fraction), 40)} was ignored: it is not a number from 0 to 1"

    for name, count in (("step", step), ("of", of)):
        if count is not None and not _is_count(count):
            return (
                f"{name} {_text(str(count), 40)} was ignored: it is not an integer from 0 to "
                f"{_LARGEST}"
            )

    message = value.get("message", "")
    if not isinstance(message, str):
        return f"message {_text(str(message), 40)} was ignored: it is not text"

    if fraction is step is None and not message:
        if isinstance(value.get("reloaded"), bool):
            return ""  # the line acknowledges a reload
        return "a line without fraction, step and message was ignored"

    return KernelProgress(
        kernel_id,
        None if fraction is None else float(fraction),
        step=step,
        of=of,
        message=_text(message),
    )


def _is_fraction(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= 1 and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST


def _text(text: str, length: int = _MESSAGE) -> str:
    return _CONTROL.sub(" ", text[:length]).strip()


def read_tail(path: Path) -> bytes | None:
    """The end of a program's file; None if it is missing, or not a regular file with one name."""
    fd = _open(path)
    if fd is None:
        return None

    try:
        start = max(0, os.fstat(fd).st_size - _TAIL_BYTES)
        tail = os.pread(fd, _TAIL_BYTES, start)

        # Drop the rest of a line whose start was not read.
        return tail if start == 0 else tail[tail.find(b"\n") + 1 :]
    except OSError:
        return None
    finally:
        os.close(fd)


def size_of(path: Path) -> int:
    """The size of a program's file; 0 if ``read_tail`` would find none."""
    fd = _open(path)
    if fd is None:
        return 0
    try:
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def read_from(path: Path, begin: int) -> bytes:
    """The complete lines at the end of a program's file that were written since it had ``begin``
    bytes. If the file is now shorter, it was rewritten, and all lines are returned."""
    fd = _open(path)
    if fd is None:
        return b""

    try:
        size = os.fstat(fd).st_size
        start = max(begin if begin <= size else 0, size - _TAIL_BYTES)
        data = os.pread(fd, _TAIL_BYTES, start)
        return data[: data.rfind(b"\n") + 1]
    finally:
        os.close(fd)


def _open(path: Path) -> int | None:
    """Open the file. None if it is missing, or not a regular file with one name."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None

    try:
        found = os.fstat(fd)
    except OSError:
        os.close(fd)
        return None

    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(fd)
        return None

    return fd


class ProgressReader:
    """A reader of progress. ``latest``: the progress of each running kernel that reports it."""

    def __init__(
        self, context: AgentContext, running: Callable[[], Mapping[KernelId, RunningKernel]]
    ) -> None:
        self._context = context
        self._running = running
        self._log_read_at: dict[KernelId, float] = {}
        self.latest: dict[KernelId, KernelProgress] = {}

    async def tick(self) -> None:
        files: dict[KernelId, Path] = {}
        running = dict(self._running())
        for kernel_id, kernel in running.items():
            if kernel.spec is None:
                continue

            if kernel.spec.env.get(PROGRESS_FROM) == "log":
                await self._read_log(kernel_id, kernel)
            elif (folder := self._context.progress_folder(kernel.spec)) is not None:
                files[kernel_id] = folder / progress_file(kernel_id)

        found = await asyncio.to_thread(_read_files, files.items()) if files else {}
        self.latest = {k: progress for k, progress in (self.latest | found).items() if k in running}
        self._log_read_at = {k: at for k, at in self._log_read_at.items() if k in running}

    def values(self) -> Iterable[KernelProgress]:
        return self.latest.values()

    async def _read_log(self, kernel_id: KernelId, kernel: RunningKernel) -> None:
        runtime = self._context.runtimes.get(kernel.runtime)
        now = self._context.clock.monotonic()
        before = self._log_read_at.get(kernel_id)
        if runtime is None or (
            before is not None and now - before < runtime.capabilities.check_interval_s
        ):
            return

        self._log_read_at[kernel_id] = now
        try:
            tail = await runtime.log_tail(kernel.handle, _TAIL_BYTES)
        except (OSError, RuntimeFailed) as error:
            log.debug(
                "cannot read the progress of a kernel in its log",
                kernel=kernel_id,
                reason=str(error),
            )
            return

        if (found := parse_lines(kernel_id, tail.encode(), log=True)) is not None:
            self.latest[kernel_id] = found


def _read_files(files: Iterable[tuple[KernelId, Path]]) -> dict[KernelId, KernelProgress]:
    found = {}
    for kernel_id, path in files:
        tail = read_tail(path)
        if tail and (progress := parse_lines(kernel_id, tail)) is not None:
            found[kernel_id] = progress
    return found
