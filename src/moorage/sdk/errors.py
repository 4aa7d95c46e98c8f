"""Errors of the SDK, beside ``common.model.errors.InvalidInput``."""

from __future__ import annotations

from pydantic import ValidationError

from moorage.common.model.errors import MoorageError
from moorage.common.views.resources import Problem


class ApiError(MoorageError):
    """The server refused the request. ``status`` is the HTTP status; ``problem`` has the details."""

    def __init__(self, status: int, problem: Problem) -> None:
        self.status, self.problem = status, problem
        super().__init__(problem.detail or problem.title, next_step=problem.next_step)


class Unreachable(MoorageError):
    """Nothing answers at the address, or not in time."""

    code = "unreachable"


def problem_of(url: str, status: int, body: bytes) -> Problem:
    """The problem in the body of an error, or one that says what was found instead."""
    try:
        return Problem.model_validate_json(body)
    except ValidationError:
        return not_moorage(url, status, body)


def not_moorage(url: str, status: int, body: bytes) -> Problem:
    """The problem for an answer that is not a manager's: something else listens at the address."""
    start = " ".join(body[:120].decode(errors="replace").split())
    return Problem(
        title="Not a Moorage answer",
        status=status,
        code="not-moorage",
        detail=f"the server at {url} (HTTP {status}: {start!r}) is not a Moorage manager of this version",
        next_step="check the address: --url or MOORAGE_URL",
    )


def connection_error(error: Exception) -> str:
    """Short description of a failed connection, from the operating system or aiohttp."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
