"""Code runs in sessions: statuses, limits and pages, shared by agents and managers. Pure."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Item = dict[str, Any]

# The answer to a request for input that ends the input, as in the clients of Jupyter.
END_OF_INPUT = "\x04"
MAX_CODE_BYTES = 256 * 1024
MAX_OUTPUT_BYTES = 4 * 1024 * 1024  # of a run; more is dropped, which is noted
PAGE_BYTES = 512 * 1024
MAX_WAITING = 64  # runs that wait for one code kernel
MAX_RECORDS = 100  # finished runs kept per kernel of a session
MAX_WAIT_S = 30.0
DEFAULT_TIMEOUT_S = 3600.0
MAX_TIMEOUT_S = 7 * 86_400.0
RUN_ID = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
STAGES = ("clean", "build", "exec")
# Old agents treat this as the program of a command; no session contains such a program.
PROGRAM = "moorage-run-code"


class RunStatus(StrEnum):
    """State of a run in one answer. ``continued``: the run is not over, or more of it can be
    read."""

    CONTINUED = "continued"
    WAITING_INPUT = "waiting-input"
    CLEAN_FINISHED = "clean-finished"
    BUILD_FINISHED = "build-finished"
    FINISHED = "finished"
    EXEC_TIMEOUT = "exec-timeout"


ENDED = (RunStatus.FINISHED, RunStatus.EXEC_TIMEOUT)
_STAGE_ENDS = {"clean": RunStatus.CLEAN_FINISHED, "build": RunStatus.BUILD_FINISHED}


@dataclass(frozen=True, slots=True)
class RunPage:
    """Part of a run's record. ``next``: the number of items up to its end, to be sent to request
    the items that follow."""

    status: RunStatus
    items: Sequence[Item]
    next: int
    exit_code: int | None = None
    reason: str = ""


class RunItems:
    """Items of a run, with an index of their sizes and of the places where pages end. Reading a
    page takes time in proportion to its size; waiting for a page costs nothing."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self.items: list[Item] = []
        self._sizes = [0]  # bytes up to each item
        self._marks: list[int] = []  # items that end a page: the last of each stage, and of the run
        self.wants_input = False
        for item in items:
            self.add(item)

    def add(self, item: Item) -> None:
        self._sizes.append(self._sizes[-1] + len(json.dumps(item)))
        kind = item["type"]
        if kind == "end" or (kind == "stage" and item["stage"] in _STAGE_ENDS):
            self._marks.append(len(self.items))
        if kind in ("input", "answered", "stage", "end"):
            self.wants_input = kind == "input"
        self.items.append(item)

    def is_settled(self, after: int, limit: int = PAGE_BYTES) -> bool:
        """Whether the page after the first ``after`` items will not grow any more."""
        end, is_marked = self._page_end(after, limit)
        return is_marked or end < len(self.items) or self.wants_input

    def page(self, after: int, limit: int = PAGE_BYTES) -> RunPage:
        """The items that follow the first ``after`` ones: up to the end of a stage, or ``limit``
        bytes.

        The status is the run's status at the end of the page, so that a client that reads page by
        page sees every status. A page has at least one item if any exists.
        """
        end, is_marked = self._page_end(after, limit)
        items = self.items[after:end]
        if not is_marked:
            waits = self.wants_input and end >= len(self.items)
            return RunPage(RunStatus.WAITING_INPUT if waits else RunStatus.CONTINUED, items, end)

        last = self.items[end - 1]
        if last["type"] == "end":
            return RunPage(
                RunStatus(last["status"]),
                items,
                next=end,
                exit_code=last["exit_code"],
                reason=last["reason"],
            )

        return RunPage(_STAGE_ENDS[last["stage"]], items, end, last["exit_code"])

    def _page_end(self, after: int, limit: int) -> tuple[int, bool]:
        """Number of items up to the end of the page, and whether its last item ends a stage or the
        run."""
        total = len(self.items)
        if after >= total:
            return after, False

        end = max(after + 1, bisect_right(self._sizes, self._sizes[after] + limit) - 1)
        mark = bisect_left(self._marks, after)
        if mark < len(self._marks) and self._marks[mark] < end:
            return self._marks[mark] + 1, True

        return end, False


def end(
    exit_code: int | None, reason: str = "", status: RunStatus = RunStatus.FINISHED
) -> Mapping[str, Any]:
    """A run's last item. ``reason``: why the run ended, if it did not end by itself."""
    return {"type": "end", "status": status, "exit_code": exit_code, "reason": reason}
