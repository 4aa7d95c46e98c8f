"""Content codings that a client accepts."""

from __future__ import annotations


def accepts(given: list[str], coding: str) -> bool:
    """Whether these values of ``Accept-Encoding`` name ``coding``, and not with the weight 0."""
    for choice in ",".join(given).lower().split(","):
        name, _, weight = choice.partition(";")
        if name.strip() == coding:
            digits = weight.partition("=")[2].strip()
            return digits.strip("0.") != "" if digits else True
    return False
