"""Limit subject: who or what is limited. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.link.messages import RequestLimits


@dataclass(frozen=True, slots=True)
class LimitSubject:
    """The subject of a limit: ``key/ID``, ``project/NAME`` or ``model/NAME``. ``unit``: the unit of
    a budget, whose hard limit takes the place of the token limit; empty if it is not a budget."""

    name: str
    limits: RequestLimits
    unit: str = ""

    def amount(self, prompt: int, answer: int) -> int:
        """The amount of a budget used by a request with these tokens."""
        if self.unit == "requests":
            return 1
        return (prompt if self.unit != "tokens_out" else 0) + (
            answer if self.unit != "tokens_in" else 0
        )
