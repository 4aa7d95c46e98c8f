"""Journal of a task runner: what it says about a kernel's tasks. Pure.

The kernel's user can write anything into it, so every value is checked, and what is not valid is
left out: such a task ends as LOST.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moorage.common.model.task_states import MAX_TASKS, TaskState

# Ends that the agent keeps until the manager has them.
OUTPUT_BYTES = 4096
_DETAILS = {"timeout": "its time limit was reached", "stopped": "it was stopped with its session"}
_MAX_ATTEMPT = 1000
_MAX_LINE = 64 * 1024
# The year 2286, and ten years.
_LATEST = 1e10
_LONGEST_S = 315_360_000.0

TaskRef = tuple[int, int]
"""A task's number and its attempt."""


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """How an attempt of a task ended. ``exit_code``: negative for a signal, None if unknown.
    ``started_at``: Unix seconds."""

    number: int
    attempt: int
    state: TaskState
    exit_code: int | None = None
    started_at: float = 0.0
    seconds: float = 0.0
    output: bytes = b""
    detail: str = ""


@dataclass(slots=True)
class Journal:
    """What was read so far. ``started``: the tasks that have started and not ended, with the time.
    ``ended``: the ends that were not taken yet. ``boot``: the boot of the node in which the runner
    began."""

    boot: str = ""
    started: dict[TaskRef, float] = field(default_factory=dict)
    ended: dict[TaskRef, TaskEnd] = field(default_factory=dict)
    _over: set[TaskRef] = field(default_factory=set)
    _partial: bytes = b""

    def read(self, data: bytes) -> None:
        """Read what was appended. An incomplete last line is kept for the next call."""
        *lines, partial = (self._partial + data).split(b"\n")
        self._partial = partial[:_MAX_LINE]
        for line in lines:
            self._read_line(line)

    def over(self) -> frozenset[TaskRef]:
        """All tasks that have ended."""
        return frozenset(self._over)

    def _read_line(self, line: bytes) -> None:
        try:
            value = json.loads(line[:_MAX_LINE])
        except (ValueError, RecursionError):
            return

        if isinstance(value, dict):
            self.boot = self.boot or str(value.get("boot", ""))[:100]
        elif isinstance(value, list) and len(value) >= 4 and _is_ref(value[1], value[2]):
            ref = value[1], value[2]
            if value[0] == "S" and ref not in self._over:
                self.started.setdefault(ref, _number(value[3], _LATEST))
            elif value[0] == "E" and len(value) >= 7 and ref not in self._over:
                self._over.add(ref)
                self.ended[ref] = _end(ref, self.started.pop(ref, 0.0), value[3:7])


def lost(started: Mapping[TaskRef, float]) -> list[TaskEnd]:
    """Ends of the tasks that were running when their runner ended."""
    return [
        TaskEnd(
            number,
            attempt,
            TaskState.LOST,
            started_at=at,
            detail="its kernel ended while it was running",
        )
        for (number, attempt), at in started.items()
    ]


def _end(ref: TaskRef, started_at: float, values: Iterable[Any]) -> TaskEnd:
    code, seconds, output, detail = values
    known = isinstance(code, int) and not isinstance(code, bool) and -65 <= code <= 255
    explained = _DETAILS.get(detail, "") if isinstance(detail, str) else ""
    if not known or detail == "stopped":
        state = TaskState.LOST
    else:
        state = TaskState.SUCCEEDED if code == 0 and not explained else TaskState.FAILED

    text = output if isinstance(output, str) else ""
    return TaskEnd(
        *ref,
        state,
        exit_code=code if known else None,
        started_at=started_at,
        seconds=_number(seconds, _LONGEST_S),
        output=text.encode(errors="replace").replace(b"\0", b"")[-OUTPUT_BYTES:],
        detail=explained,
    )


def _is_ref(number: Any, attempt: Any) -> bool:
    return all(
        isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most
        for value, most in ((number, MAX_TASKS), (attempt, _MAX_ATTEMPT))
    )


def _number(value: Any, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0.0
    return min(max(float(value), 0.0), most)
