"""Custom agent selectors: third-party functions. If one fails, the session is refused, but the pass
continues."""

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
    """Agent on which the session fits, with the agent's free amount of each slot at this point in
    the plan."""

    agent: AgentState
    free: Mapping[str, int]


# Chooses among the candidates, which are sorted by agent id. None means that the session waits.
Selector = Callable[[Sequence[Candidate], Pending], AgentId | None]

# Lines of Python that a selector may execute per choice. The limit exists because the planner waits
# for the choice.
MAX_LINES = 200_000


class SelectorFailed(Exception):
    """A custom selector failed. The message describes the failure and becomes part of the session's
    hold."""


class _LineLimitExceeded(BaseException):
    """Not an Exception, so that a selector cannot catch it with ``except Exception``."""


def select_agent(
    name: str, selector: Selector | None, candidates: Sequence[Candidate], item: Pending
) -> AgentId:
    """The selector's choice. Raises ``SelectorFailed`` if it makes none, or an invalid one."""
    if selector is None:
        raise SelectorFailed(
            f"there is no agent selector {name!r} (entry point moorage.agent_selectors)"
        )

    try:
        chosen = _bounded(selector, candidates, item)
    except _LineLimitExceeded:
        raise SelectorFailed(
            f"{name} executed more than {MAX_LINES} lines without a choice"
        ) from None
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
    """Run the selector under a trace function that counts lines, because a timer cannot interrupt
    the planner."""
    remaining = MAX_LINES

    def count(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal remaining
        if event == "line":
            remaining -= 1
            if remaining < 0:
                raise _LineLimitExceeded
        return count

    previous = sys.gettrace()
    sys.settrace(count)
    try:
        return selector(candidates, item)
    finally:
        sys.settrace(previous)
