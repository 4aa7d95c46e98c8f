"""Run records: the output of each run, in memory while it runs and in a file for as long as it is
kept.

STATE/code/<kernel id>/<run id> holds one line of JSON for the request and one for each item. A
client or a manager can disconnect and continue later with the run's id. A restarted agent finds the
runs that were cut off when it stopped, and records this in them.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from moorage.common.model import code_runs
from moorage.common.model.code_runs import RUN_ID, Item, RunItems, RunPage, RunStatus
from moorage.common.model.errors import Conflict, InvalidInput, NotFound

CUT_OFF = "the agent was restarted, and the code kernel ended with it: its variables are lost"
BEFORE = "it was interrupted before it started"
TIME_OVER = "its time limit was reached"
FLOODED = "it printed many times the amount of output that is kept for a run"
_DISK_FULL = "the record of the run cannot be written on that node: {}"


class Run:
    """A run. ``request``: the original request; a repeated request must be equal to it. ``lane``:
    its code kernel."""

    def __init__(self, run_id: str, request: Mapping[str, Any], file: IO[str] | None) -> None:
        self.run_id = run_id
        self.request = request
        self._file = file
        self._record = RunItems()
        self._changed = asyncio.Event()

        # Flags for the lane: the run must be interrupted, or has printed too much.
        self.wake = asyncio.Event()
        self.flooded = False
        self.timed_out = False
        self._write({"request": request})

    @property
    def items(self) -> Sequence[Item]:
        return self._record.items

    @property
    def wants_input(self) -> bool:
        """Whether the newest request for input is still unanswered."""
        return self._record.wants_input

    @property
    def lane(self) -> str:
        return str(self.request["lane"])

    @property
    def ended(self) -> bool:
        return bool(self.items) and self.items[-1]["type"] == "end"

    def append(self, item: Mapping[str, Any]) -> None:
        """Record an item and then wake the readers. After the end, nothing more is recorded."""
        if self.ended:
            return

        try:
            self._write(item)
        except OSError as error:
            self._file = None
            self._tell(item)
            item = code_runs.end(None, _DISK_FULL.format(error.strerror))

        self._tell(item)
        if item["type"] == "end" and self._file is not None:
            self._file.close()
            self._file = None

    def flood(self) -> None:
        """Mark the run as having printed too much, so that it is interrupted."""
        self.flooded = True
        self.wake.set()

    def time_out(self) -> None:
        """Mark the run as interrupted by its time limit, unless it has printed too much."""
        self.timed_out = not self.flooded

    def end(self, exit_code: int | None, reason: str = "") -> None:
        """Record the end. ``exit_code``: None if unknown. ``reason``: why the run was ended, if it
        did not end by itself."""
        if self.timed_out:
            reason = f"{TIME_OVER}; {reason}" if reason else TIME_OVER
        elif self.flooded:
            reason = f"{FLOODED}; {reason}" if reason else FLOODED
        status = RunStatus.EXEC_TIMEOUT if self.timed_out else RunStatus.FINISHED
        self.append(code_runs.end(exit_code, reason, status))

    async def page(self, after: int, wait_s: float) -> RunPage:
        """The result of ``RunItems.page``, returned once it is complete or after ``wait_s``
        seconds."""
        try:
            async with asyncio.timeout(wait_s):
                while not self._record.is_settled(after):
                    await self.changed()
        except TimeoutError:
            pass
        return self._record.page(after)

    async def changed(self) -> None:
        """Wait until an item is added."""
        await self._changed.wait()

    def load(self, items: Iterator[Item]) -> None:
        """Load the items from a record that an earlier run of the agent wrote, and add the end if
        it is missing."""
        self._record = RunItems(items)
        if not self.ended:
            self._record.add(dict(code_runs.end(None, CUT_OFF)))

    def _tell(self, item: Mapping[str, Any]) -> None:
        self._record.add(dict(item))
        changed = self._changed
        self._changed = asyncio.Event()
        changed.set()

    def _write(self, item: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(item) + "\n")
            self._file.flush()


class RunRecords:
    """The runs of one agent. ``folder``: STATE/code."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runs: dict[tuple[str, str], Run] = {}

    async def start(
        self, kernel_id: str, run_id: str, request: Mapping[str, Any]
    ) -> tuple[Run, bool]:
        """Return a new run, or the existing run with that id if its request was the same. Also
        return whether the run is new. Raises ``Conflict`` and ``InvalidInput``."""
        if not re.fullmatch(RUN_ID, run_id):
            raise InvalidInput(f"run_id {run_id!r} is not valid", next_step=f"use {RUN_ID}")

        try:
            known: Run | None = await self.get(kernel_id, run_id)
        except NotFound:
            known = self._runs.get((kernel_id, run_id))  # another request has started it since

        if known is not None:
            if known.request != request:
                raise Conflict(
                    f"run {run_id!r} exists, but its request was different",
                    next_step="use a new run_id, or leave it out",
                )

            return known, False

        self._prune(kernel_id)
        folder = self._folder / kernel_id
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        run = Run(run_id, request, (folder / run_id).open("w", encoding="utf-8"))
        self._runs[kernel_id, run_id] = run

        return run, True

    async def get(self, kernel_id: str, run_id: str) -> Run:
        """The run with this id. A long record that is not in memory is read in a separate thread.
        Raises ``NotFound``."""
        if (run := self._runs.get((kernel_id, run_id))) is not None:
            return run

        path = self._folder / kernel_id / run_id
        if re.fullmatch(RUN_ID, run_id):
            try:
                return await asyncio.to_thread(_read, path)
            except (OSError, ValueError, KeyError, TypeError):
                pass

        raise NotFound(
            f"the session has no run {run_id!r}",
            next_step=f"only the newest {code_runs.MAX_RECORDS} ended runs are kept",
        )

    async def keep_only(self, kernel_ids: Collection[str]) -> None:
        """Remove the records of all other kernels."""
        self._runs = {key: run for key, run in self._runs.items() if key[0] in kernel_ids}
        # The folders are listed first, so that a kernel that starts during the removal is not
        # affected.
        found = self._folder.iterdir() if self._folder.is_dir() else ()
        for folder in [path for path in found if path.name not in kernel_ids]:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _prune(self, kernel_id: str) -> None:
        """Drop ended runs from memory, and the oldest ones from disk."""
        for key in [key for key, run in self._runs.items() if key[0] == kernel_id and run.ended]:
            del self._runs[key]

        folder = self._folder / kernel_id
        files = (
            [path for path in folder.iterdir() if (kernel_id, path.name) not in self._runs]
            if folder.is_dir()
            else []
        )
        files.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for path in files[code_runs.MAX_RECORDS - 1 :]:
            path.unlink(missing_ok=True)


def _read(path: Path) -> Run:
    first, *rest = _lines(path)
    run = Run(path.name, first["request"], None)
    run.load(iter(rest))
    return run


def _lines(path: Path) -> list[Item]:
    """The complete lines of a record; a line cut off by a crash is left out."""
    found = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                found.append(json.loads(line))
    return found
