"""Mutation: a known fault, and the tests that must find it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """``before`` occurs exactly once in ``file`` (below src/moorage) and is replaced by ``after``.
    ``tests`` are the pytest arguments of the tests that must fail."""

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]
