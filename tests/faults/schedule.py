"""Which fault comes when, and for how long: the same seed gives the same schedule. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from .cluster import AGENTS

# At most one fault of each lane at a time, so that two parts may be down together, but never all of them.
_UPPER = [("kill", "manager"), ("halt", "manager"), ("kill", "postgres"), ("halt", "postgres")]
_LOWER = [
    *((kind, part) for part in (*AGENTS, "proxy") for kind in ("kill", "halt")),
    ("pull", "wire"),
    ("choke", "wire"),
]


@dataclass(frozen=True)
class Fault:
    """``kill`` (down for ``for_s``), ``halt`` (SIGSTOP), ``pull`` and ``choke`` (the wire). Seconds."""

    kind: str
    part: str
    after_s: float
    for_s: float

    def __str__(self) -> str:
        return f"{self.kind} {self.part} for {self.for_s:.1f} s"


def lanes(seed: int, cuttable: frozenset[str]) -> tuple[Iterator[Fault], Iterator[Fault]]:
    """Two endless rows of faults. ``cuttable``: what can be done to the wire."""
    lower = [(kind, part) for kind, part in _LOWER if part != "wire" or kind in cuttable]
    # A manager judges silence only after it has listened for as long: between its faults it needs some time.
    upper = _row(random.Random(f"{seed}-upper"), _UPPER, (3, 16))
    return upper, _row(random.Random(f"{seed}-lower"), lower, (1, 4))


def _row(dice: random.Random, deck: list[tuple[str, str]], calm_s: tuple[float, float]) -> Iterator[Fault]:
    while True:
        for kind, part in dice.sample(deck, len(deck)):
            # Connections are given up after some nine seconds of silence, agents after twelve.
            for_s = dice.uniform(0, 3) if kind == "kill" else dice.uniform(3, 16)
            if kind == "kill" and part in AGENTS and dice.random() < 0.3:
                for_s = dice.uniform(12, 18)
            yield Fault(kind, part, dice.uniform(*calm_s), for_s)
