"""Runs of code in sessions: their statuses, bounds and pages, shared by agents and managers. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Item = dict[str, Any]

MAX_CODE_BYTES = 256 * 1024
MAX_OUTPUT_BYTES = 4 * 1024 * 1024  # of a run; more is dropped, and noted
PAGE_BYTES = 512 * 1024
MAX_WAITING = 64  # runs that wait for one code kernel
MAX_RECORDS = 100  # ended runs that are kept for a kernel of a session
MAX_WAIT_S = 30.0
DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S = 3600.0, 7 * 86_400.0
RUN_ID = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
STAGES = ("clean", "build", "exec")
# What an old agent takes for the program of a command, which no session has.
PROGRAM = "moorage-run-code"


class RunStatus(StrEnum):
    """State of a run as told by one answer. ``continued``: it goes on, or more of it is there to be read."""

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
    """Part of a run's record. ``next``: the number of items up to its end, which asks for what follows."""

    status: RunStatus
    items: Sequence[Item]
    next: int
    exit_code: int | None = None
    reason: str = ""


def page(items: Sequence[Item], after: int, limit: int = PAGE_BYTES) -> RunPage:
    """The items that follow the first ``after`` ones: up to the end of a stage, or ``limit`` bytes.

    The status is that of the run at the end of the page, so that a client which reads page by page is told
    each of them. A page has one item at least, if there is one.
    """
    size, at = 0, after
    while at < len(items):
        item = items[at]
        size += len(json.dumps(item))
        if at > after and size > limit:
            return RunPage(RunStatus.CONTINUED, items[after:at], at)
        at += 1
        if item["type"] == "stage" and item["stage"] in _STAGE_ENDS:
            return RunPage(_STAGE_ENDS[item["stage"]], items[after:at], at, item["exit_code"])
        if item["type"] == "end":
            status = RunStatus(item["status"])
            return RunPage(status, items[after:at], at, item["exit_code"], item["reason"])
    status = RunStatus.WAITING_INPUT if wants_input(items) else RunStatus.CONTINUED
    return RunPage(status, items[after:at], at)


def wants_input(items: Sequence[Item]) -> bool:
    """Whether the newest request for input is open."""
    for item in reversed(items):
        if item["type"] in ("input", "answered", "stage", "end"):
            return bool(item["type"] == "input")
    return False


def settled(found: RunPage) -> bool:
    """Whether a reader learns nothing more by waiting for this page to grow."""
    return found.status is not RunStatus.CONTINUED


def end(exit_code: int | None, reason: str = "", status: RunStatus = RunStatus.FINISHED) -> Mapping[str, Any]:
    """The last item of a run. ``reason``: why it ended, if not by itself."""
    return {"type": "end", "status": status, "exit_code": exit_code, "reason": reason}
