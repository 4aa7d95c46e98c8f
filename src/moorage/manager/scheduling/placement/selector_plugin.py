"""A selector that somebody else wrote: a pure function, whose failure refuses and never crashes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from moorage.common.model.ids import AgentId
from moorage.manager.scheduling.core.model import AgentState, Pending


@dataclass(frozen=True, slots=True)
class Candidate:
    """An agent that the session fits on, with what is free of each slot at this moment of the plan."""

    agent: AgentState
    free: Mapping[str, int]


# Of the candidates, in the order of their ids, the agent that takes the session. None: it had better wait.
Selector = Callable[[Sequence[Candidate], Pending], AgentId | None]

# Lines of Python that it may run for one choice: it decides inside the planner, which waits for it.
MOST_LINES = 200_000


class SelectorFailed(Exception):
    """The message says what it did, for the session's hold."""


class _TooLong(BaseException):
    """Not an Exception, so that a selector that catches those does not go on."""


def ask(name: str, selector: Selector | None, candidates: Sequence[Candidate], item: Pending) -> AgentId:
    """Its choice. Raises ``SelectorFailed`` where there is none, or none of the candidates."""
    if selector is None:
        raise SelectorFailed(f"there is no agent selector {name!r} (entry point moorage.agent_selectors)")
    try:
        chosen = _bounded(selector, candidates, item)
    except _TooLong:
        raise SelectorFailed(f"{name} ran more than {MOST_LINES} lines without an answer") from None
    except Exception as error:
        raise SelectorFailed(f"{name} raised {type(error).__name__}: {str(error)[:200]}") from error
    if chosen is None:
        raise SelectorFailed(f"{name} chose none of {len(candidates)} agents")
    if not any(chosen == candidate.agent.agent_id for candidate in candidates):
        raise SelectorFailed(
            f"{name} chose {chosen!r:.100}, which is not one of {len(candidates)} candidates"
        )
    return chosen


def _bounded(selector: Selector, candidates: Sequence[Candidate], item: Pending) -> AgentId | None:
    left = MOST_LINES

    def count(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left < 0:
                raise _TooLong
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        return selector(candidates, item)
    finally:
        sys.settrace(before)
