"""What calls of the SDK raise beside ``common.errors.InvalidInput``."""

from __future__ import annotations

from pydantic import ValidationError

from fairlead.common.api import Problem
from fairlead.common.errors import FairleadError


class ApiError(FairleadError):
    """The server refused. ``status`` is the HTTP status; ``problem`` says what was wrong."""

    def __init__(self, status: int, problem: Problem) -> None:
        self.status, self.problem = status, problem
        super().__init__(problem.detail or problem.title, next_step=problem.next_step)


class Unreachable(FairleadError):
    """Nothing answers at the address, or not in time."""

    code = "unreachable"


def problem_of(url: str, status: int, body: bytes) -> Problem:
    """The problem in an error's body; where there is none, one that says what was found instead."""
    try:
        return Problem.model_validate_json(body)
    except ValidationError:
        return not_fairlead(url, status, body)


def not_fairlead(url: str, status: int, body: bytes) -> Problem:
    """For an answer that no Fairlead manager would give: something else listens at the address."""
    start = " ".join(body[:120].decode(errors="replace").split())
    return Problem(
        title="Not a Fairlead answer",
        status=status,
        code="not-fairlead",
        detail=f"what answers at {url} (HTTP {status}: {start!r}) is not a Fairlead manager of this version",
        next_step="check the address: --url or FAIRLEAD_URL",
    )


def why(error: Exception) -> str:
    """What the operating system or aiohttp says of a failed connection, in a few words."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
