"""How a Docker Engine fails us."""

from __future__ import annotations

from moorage.agent.runtimes.base import RuntimeFailed


class EngineUnavailable(RuntimeFailed):
    """The Docker Engine did not answer; what became of the request is not known.

    ``unsent``: it did not get there."""

    def __init__(self, why: str, *, unsent: bool = False) -> None:
        super().__init__(
            f"the Docker Engine does not answer: {why}", next_step="see `systemctl status docker` there"
        )
        self.unsent = unsent


class RequestRefused(RuntimeFailed):
    """The Docker Engine answered that it will not. ``status``: of HTTP."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class NoSuchObject(RequestRefused):
    """The Docker Engine knows no such thing."""
