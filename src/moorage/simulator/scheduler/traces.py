"""Work to try a policy on: made up in shapes that studies of GPU clusters describe, or read from a file.

What the shapes have in common is what those studies found (Jeon and others on Microsoft's Philly, 2019; Hu
and others on SenseTime's Helios, 2021; Feitelson's workload modelling): GPU counts are powers of two, most
jobs have one and the few large ones have most of the GPU time, run times spread over orders of magnitude,
which log-uniform numbers do. The numbers themselves are ours: see ``SHAPES``.

Points in time are microseconds since the trace began, lengths of time microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import Field, ValidationError

from moorage.common.model.errors import InvalidInput
from moorage.common.model.spec import Model, Name

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
_TEN_YEARS_S = 315_360_000


class Dice(Protocol):
    """``random.Random`` is one."""

    def random(self) -> float:
        """At least 0, less than 1."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """``limit``: what its user said that it runs at most (its timeout); None: nothing was said."""

    name: str
    at: int
    gpus: int
    runs: int
    user: str
    limit: int | None = None
    priority: int = 10


@dataclass(frozen=True, slots=True)
class Shape:
    """``sizes``: GPUs and how many of 100 jobs ask for so many. ``runs``: the shortest and the longest,
    between which run times are log-uniform. ``bursts``: so many of 100 jobs come in crowds of about
    ``crowd``, each within ten minutes. ``heavy``: so many of 100 jobs are one user's, all in the first tenth
    of the time. The others come at any moment alike, from ``users`` users alike."""

    about: str
    sizes: tuple[tuple[int, int], ...]
    runs: tuple[int, int]
    bursts: int = 0
    crowd: int = 50
    heavy: int = 0
    users: int = 10


_MIXED = ((1, 55), (2, 13), (4, 12), (8, 12), (16, 5), (32, 3))

SHAPES = {
    "uniform": Shape("small jobs alike", ((1, 100),), (MINUTE, 2 * HOUR)),
    "mixed": Shape("small ones, and some that need several agents", _MIXED, (MINUTE, 12 * HOUR)),
    "bursty": Shape("the same sizes up to one agent, in crowds", _MIXED[:4], (MINUTE, 6 * HOUR), bursts=80),
    "heavy-user": Shape(
        "one user asks for half of it at once", ((1, 70), (2, 20), (4, 10)), (MINUTE, 4 * HOUR), heavy=50
    ),
}


def generate(shape: str, jobs: int, gpus: int, load: float, estimates: str, dice: Dice) -> tuple[Job, ...]:
    """``jobs`` jobs that ask for ``load`` (1: all) of ``gpus`` GPUs while they arrive.

    ``estimates``: how long users say that a job runs at most: "exact", "padded" (1 to 4 times as long) or
    "none". Raises ``InvalidInput`` for names that are not known.
    """
    kind = SHAPES.get(shape)
    if kind is None:
        raise InvalidInput(
            f"trace {shape!r} is not known", next_step=f"one of: {', '.join(SHAPES)}, or a .jsonl file"
        )
    if estimates not in ("exact", "padded", "none"):
        raise InvalidInput(f"estimates {estimates!r} is not known", next_step="exact, padded or none")
    made = [(_size(kind.sizes, dice), _log_uniform(*kind.runs, dice)) for _ in range(jobs)]
    span = max(1, round(sum(size * runs for size, runs in made) / (gpus * load)))
    arrivals = [_arrival(kind, jobs, span, dice) for _ in made]
    found = []
    for (size, runs), (at, user) in zip(made, arrivals, strict=True):
        padding = 1 + 3 * dice.random() if estimates == "padded" else 1.0
        limit = None if estimates == "none" else round(runs * padding)
        found.append((at, size, runs, user, limit))
    return tuple(
        Job(f"job-{number:05}", at, size, runs, user, limit)
        for number, (at, size, runs, user, limit) in enumerate(sorted(found, key=lambda job: job[0]))
    )


def _size(sizes: tuple[tuple[int, int], ...], dice: Dice) -> int:
    left = dice.random() * 100
    for size, share in sizes:
        left -= share
        if left < 0:
            return size
    return sizes[-1][0]


def _log_uniform(low: int, high: int, dice: Dice) -> int:
    return round(low * math.exp(dice.random() * math.log(high / low)))


def _arrival(kind: Shape, jobs: int, span: int, dice: Dice) -> tuple[int, str]:
    """Uniform moments are those of a Poisson process with that many arrivals."""
    if dice.random() * 100 < kind.heavy:
        return round(dice.random() * span / 10), "heavy"
    user = f"user-{int(dice.random() * kind.users)}"
    if dice.random() * 100 < kind.bursts:
        crowds = max(1, jobs * kind.bursts // (100 * kind.crowd))
        begins = (int(dice.random() * crowds) + 0.5) * span / crowds
        return round(begins + dice.random() * 10 * MINUTE), user
    return round(dice.random() * span), user


class _Line(Model):
    at_s: Annotated[float, Field(ge=0, le=_TEN_YEARS_S)]
    gpus: Annotated[int, Field(ge=1, le=1_000_000)]
    run_s: Annotated[float, Field(gt=0, le=_TEN_YEARS_S)]
    user: Name = "somebody"
    limit_s: Annotated[float | None, Field(gt=0, le=_TEN_YEARS_S)] = None
    priority: Annotated[int, Field(ge=0, le=100)] = 10


def read_trace(lines: Iterable[str]) -> tuple[Job, ...]:
    """One JSON object per line: ``at_s``, ``gpus``, ``run_s``; if known ``user``, ``limit_s``, ``priority``.

    A job is stopped when its limit has passed. Raises ``InvalidInput`` naming line and field.
    """
    found = []
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            line = _Line.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "the line"
            raise InvalidInput(
                f"line {number} of the trace: {field}: {first['msg']}",
                next_step='lines are like {"at_s": 0, "gpus": 2, "run_s": 60, "user": "ann", "limit_s": 90}',
            ) from None
        limit = None if line.limit_s is None else max(1, round(line.limit_s * SECOND))
        runs = max(1, round(line.run_s * SECOND))
        at, runs = round(line.at_s * SECOND), runs if limit is None else min(runs, limit)
        found.append((at, Job(f"job-{number:05}", at, line.gpus, runs, line.user, limit, line.priority)))
    if not found:
        raise InvalidInput("the trace has no line", next_step="a job per line, as JSON")
    return tuple(job for _, job in sorted(found, key=lambda pair: (pair[0], pair[1].name)))
