"""Limit subject: who or what is limited. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.link.messages import RequestLimits


@dataclass(frozen=True, slots=True)
class LimitSubject:
    """The subject of a limit: ``key/ID``, ``project/NAME`` or ``model/NAME``. ``unit``: of a
    budget, whose hard limit stands for that of tokens; "": it is none."""

    name: str
    limits: RequestLimits
    unit: str = ""

    def amount(self, prompt: int, answer: int) -> int:
        """The amount of a budget that a request with these tokens uses."""
        if self.unit == "requests":
            return 1
        return (prompt if self.unit != "tokens_out" else 0) + (
            answer if self.unit != "tokens_in" else 0
        )
