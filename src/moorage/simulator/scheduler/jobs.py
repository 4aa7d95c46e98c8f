"""Jobs for the scheduler simulator: synthetic ones, shaped as studies of GPU clusters describe, or
jobs from a file.

All shapes reflect what those studies found (Jeon et al. on Microsoft's Philly, 2019; Hu et al. on
SenseTime's Helios, 2021; Feitelson's workload modelling): GPU counts are powers of two, most jobs
need one GPU, the few large jobs use most of the GPU time, and run times spread over orders of
magnitude, as log-uniform numbers do. The numbers in ``SHAPES`` are our own.

Times are in microseconds since the trace began, durations in microseconds.
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


class UnitRng(Protocol):
    """The method of ``random.Random`` that is used here."""

    def random(self) -> float: ...


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job. ``limit``: the run time limit that its user set, or None."""

    name: str
    at: int
    gpus: int
    runs: int
    user: str
    limit: int | None = None
    priority: int = 10


@dataclass(frozen=True, slots=True)
class TraceShape:
    """The shape of a trace. ``sizes``: numbers of GPUs, with the percentage of jobs that request
    each. ``runs``: shortest and longest run time, between which run times are log-uniform.
    ``bursts``: percentage of jobs that arrive in bursts of about ``burst_size`` jobs within ten
    minutes. ``heavy``: percentage of jobs that one heavy user submits, all in the first tenth of
    the time. All others arrive uniformly over time and over ``users`` users."""

    description: str
    sizes: tuple[tuple[int, int], ...]
    runs: tuple[int, int]
    bursts: int = 0
    burst_size: int = 50
    heavy: int = 0
    users: int = 10


_MIXED = ((1, 55), (2, 13), (4, 12), (8, 12), (16, 5), (32, 3))

SHAPES = {
    "uniform": TraceShape("small jobs of one size", ((1, 100),), (MINUTE, 2 * HOUR)),
    "mixed": TraceShape(
        "many small jobs, and some that need several agents", _MIXED, (MINUTE, 12 * HOUR)
    ),
    "bursty": TraceShape(
        "sizes up to one agent, in bursts", _MIXED[:4], (MINUTE, 6 * HOUR), bursts=80
    ),
    "heavy-user": TraceShape(
        "one user submits half of the jobs at the same time",
        ((1, 70), (2, 20), (4, 10)),
        (MINUTE, 4 * HOUR),
        heavy=50,
    ),
    "stream": TraceShape(
        "a stream of small jobs, and a few that need a whole agent",
        ((1, 98), (8, 2)),
        (MINUTE, HOUR),
    ),
}


def generate_jobs(
    shape: str, jobs: int, gpus: int, load: float, *, estimates: str, rng: UnitRng
) -> tuple[TraceJob, ...]:
    """Generate ``jobs`` jobs that request the share ``load`` (1 is all) of ``gpus`` GPUs over the
    time in which they arrive.

    ``estimates``: run time limits, as users set them: "exact", "padded" (1 to 4 times the run time)
    or "none". Raises ``InvalidInput`` for an unknown name.
    """
    kind = SHAPES.get(shape)
    if kind is None:
        raise InvalidInput(
            f"unknown trace {shape!r}",
            next_step=f"use one of {', '.join(SHAPES)}, or a .jsonl file",
        )

    if estimates not in ("exact", "padded", "none"):
        raise InvalidInput(
            f"unknown estimates {estimates!r}", next_step="use exact, padded or none"
        )

    drawn = [(_size(kind.sizes, rng), _log_uniform(*kind.runs, rng)) for _ in range(jobs)]
    span = max(1, round(sum(size * runs for size, runs in drawn) / (gpus * load)))
    arrivals = [_arrival(kind, jobs, span, rng) for _ in drawn]
    rows = []
    for (size, runs), (at, user) in zip(drawn, arrivals, strict=True):
        padding = 1 + 3 * rng.random() if estimates == "padded" else 1.0
        limit = None if estimates == "none" else round(runs * padding)
        rows.append((at, size, runs, user, limit))

    return tuple(
        TraceJob(f"job-{number:05}", at, gpus=size, runs=runs, user=user, limit=limit)
        for number, (at, size, runs, user, limit) in enumerate(sorted(rows, key=lambda row: row[0]))
    )


def _size(sizes: tuple[tuple[int, int], ...], rng: UnitRng) -> int:
    percentile = rng.random() * 100
    for size, percentage in sizes:
        percentile -= percentage
        if percentile < 0:
            return size
    return sizes[-1][0]


def _log_uniform(low: int, high: int, rng: UnitRng) -> int:
    return round(low * math.exp(rng.random() * math.log(high / low)))


def _arrival(kind: TraceShape, jobs: int, span: int, rng: UnitRng) -> tuple[int, str]:
    """A job's arrival time and user. Uniform times are those of a Poisson process with a given
    number of arrivals."""
    if rng.random() * 100 < kind.heavy:
        return round(rng.random() * span / 10), "heavy"

    user = f"user-{int(rng.random() * kind.users)}"
    if rng.random() * 100 < kind.bursts:
        bursts = max(1, jobs * kind.bursts // (100 * kind.burst_size))
        begin = (int(rng.random() * bursts) + 0.5) * span / bursts
        return round(begin + rng.random() * 10 * MINUTE), user

    return round(rng.random() * span), user


class _JobLine(Model):
    at_s: Annotated[float, Field(ge=0, le=_TEN_YEARS_S)]
    gpus: Annotated[int, Field(ge=1, le=1_000_000)]
    run_s: Annotated[float, Field(gt=0, le=_TEN_YEARS_S)]
    user: Name = "somebody"
    limit_s: Annotated[float | None, Field(gt=0, le=_TEN_YEARS_S)] = None
    priority: Annotated[int, Field(ge=0, le=100)] = 10


def read_jobs(lines: Iterable[str]) -> tuple[TraceJob, ...]:
    """Read jobs from one JSON object per line: ``at_s``, ``gpus``, ``run_s``, and optionally
    ``user``, ``limit_s``, ``priority``.

    A job is stopped at its limit. Raises ``InvalidInput`` that names the line and field.
    """
    jobs = []
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue

        try:
            line = _JobLine.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "the line"
            raise InvalidInput(
                f"line {number} of the trace: {field}: {first['msg']}",
                next_step=(
                    'example: {"at_s": 0, "gpus": 2, "run_s": 60, "user": "ann", "limit_s": 90}'
                ),
            ) from None

        limit = None if line.limit_s is None else max(1, round(line.limit_s * SECOND))
        runs = max(1, round(line.run_s * SECOND))
        at = round(line.at_s * SECOND)
        runs = runs if limit is None else min(runs, limit)
        jobs.append(
            (
                at,
                TraceJob(
                    f"job-{number:05}",
                    at,
                    gpus=line.gpus,
                    runs=runs,
                    user=line.user,
                    limit=limit,
                    priority=line.priority,
                ),
            )
        )

    if not jobs:
        raise InvalidInput("the trace is empty", next_step="write one job per line, as JSON")

    return tuple(job for _, job in sorted(jobs, key=lambda pair: (pair[0], pair[1].name)))
