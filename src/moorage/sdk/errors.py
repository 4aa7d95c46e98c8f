"""Errors of the SDK, in addition to ``common.model.errors.InvalidInput``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moorage.common.model.errors import MoorageError

if TYPE_CHECKING:
    from moorage.common.views.resources import Problem


class ApiError(MoorageError):
    """The server refused the request. ``status`` is the HTTP status; ``problem`` has the
    details."""

    def __init__(self, status: int, problem: Problem) -> None:
        self.status = status
        self.problem = problem
        super().__init__(problem.detail or problem.title, next_step=problem.next_step)


class Unreachable(MoorageError):
    """Nothing answers at the address, or the answer takes too long."""

    code = "unreachable"


def connection_error(error: Exception) -> str:
    """A short description of a failed connection, from the operating system or aiohttp."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
