"""Every error that crosses a seam. The docstring is the default message; ``next_step`` says what to do."""

from __future__ import annotations

from typing import Any, ClassVar


class MoorageError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "error"
    http: ClassVar[int] = 500
    retry_after_s: ClassVar[int | None] = None

    def __init__(self, message: str | None = None, *, next_step: str = "", **fields: Any) -> None:
        self.message = message or (self.__doc__ or "").strip()
        self.next_step = next_step
        self.fields = fields
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} ({self.next_step})" if self.next_step else self.message


class InvalidInput(MoorageError):
    """The request is not valid."""

    code, http = "invalid-input", 422


class MalformedBody(MoorageError):
    """The body is not valid JSON."""

    code, http = "malformed-body", 400


class BodyTooLarge(MoorageError):
    """The body is larger than allowed."""

    code, http = "body-too-large", 413


class Unauthenticated(MoorageError):
    """No valid API key was given."""

    code, http = "unauthenticated", 401


class Forbidden(MoorageError):
    """This key may not do that."""

    code, http = "forbidden", 403


class NotFound(MoorageError):
    """There is no such thing."""

    code, http = "not-found", 404


class Conflict(MoorageError):
    """It conflicts with what exists."""

    code, http = "conflict", 409


class QuotaExceeded(Conflict):
    """A quota is used up."""

    code = "quota"


class NeverFits(Conflict):
    """No agent of the resource group could ever hold this."""

    code = "infeasible"


class StoreUnavailable(MoorageError):
    """The database does not answer at the moment."""

    code, http, retry_after_s = "store-unavailable", 503, 2


class AgentUnreachable(MoorageError):
    """The agent that holds it is not connected."""

    code, http, retry_after_s = "agent-unreachable", 503, 5


class ConfigError(MoorageError):
    """The configuration is not valid."""

    code = "config"


class StartupError(MoorageError):
    """A part could not start."""

    code = "startup"
