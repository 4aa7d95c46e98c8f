"""Errors that cross an interface.

A class's docstring is its default message. ``next_step`` is the action recommended to the caller.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal


class MoorageError(Exception):
    """An internal error occurred."""

    code: ClassVar[str] = "error"
    http: ClassVar[int] = 500
    retry_after_s: int | None = None
    # One entry per field of the request that caused the error.
    errors: list[dict[str, Any]]

    def __init__(self, message: str | None = None, *, next_step: str = "", **fields: Any) -> None:
        self.message = message or (self.__doc__ or "").strip()
        self.next_step = next_step
        self.fields = fields
        self.errors = [fields | {"message": self.message}] if "field" in fields else []
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} ({self.next_step})" if self.next_step else self.message


class InvalidInput(MoorageError):
    """The request is not valid.

    ``field``: path of the invalid field, such as ``env.HOME``, in the part ``where`` of the
    request; "" if there is no single one."""

    code = "invalid-input"
    http = 422

    def __init__(
        self,
        message: str | None = None,
        *,
        next_step: str = "",
        field: str = "",
        where: Literal["body", "query"] = "body",
    ) -> None:
        super().__init__(message, next_step=next_step)
        self.field = field
        self.where = where


class MalformedBody(MoorageError):
    """The body is not valid JSON."""

    code = "malformed-body"
    http = 400


class BodyTooLarge(MoorageError):
    """The body is larger than allowed."""

    code = "body-too-large"
    http = 413


class Unauthenticated(MoorageError):
    """The request carries no valid API key."""

    code = "unauthenticated"
    http = 401


class Forbidden(MoorageError):
    """This API key does not permit the operation."""

    code = "forbidden"
    http = 403


class BudgetExhausted(Forbidden):
    """A budget is exhausted."""

    code = "budget-exhausted"


class RunLimitExceeded(Forbidden):
    """A limit of the resource group, the key or the template is exceeded."""

    code = "limit-exceeded"


class NotFound(MoorageError):
    """The object does not exist."""

    code = "not-found"
    http = 404


class Conflict(MoorageError):
    """The request conflicts with an existing object."""

    code = "conflict"
    http = 409


class PreconditionFailed(MoorageError):
    """The object has changed since it was read."""

    code = "precondition-failed"
    http = 412


class QuotaExceeded(Conflict):
    """A quota is exhausted."""

    code = "quota"


class NeedsNewerManager(Conflict):
    """A newer manager stored this; the manager that answered cannot read it."""

    code = "needs-newer-manager"


class Infeasible(Conflict):
    """No agent of the resource group could run this, even when empty."""

    code = "infeasible"


class StoreUnavailable(MoorageError):
    """The database is unavailable."""

    code = "store-unavailable"
    http = 503
    retry_after_s = 2


class AgentUnreachable(MoorageError):
    """The agent is not connected."""

    code = "agent-unreachable"
    http = 503
    retry_after_s = 5


class ConfigError(MoorageError):
    """The configuration is not valid."""

    code = "config"


class StartupError(MoorageError):
    """A component could not start."""

    code = "startup"
