"""Verdict of a run: which failures judge it (pure).

A case that failed and then passed alone is flaky. Flaky cases do not fail a run, unless there are
more than ``MAX_FLAKY``, or one of them was flaky before in the last ``REMEMBERED_RUNS`` recorded
runs. Cases in quarantine run but do not judge.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

MAX_FLAKY = 3
REMEMBERED_RUNS = 20


@dataclass(frozen=True)
class Failure:
    """A case, or a whole step (``case`` is ""), that failed. ``output`` is the traceback or the
    log's end."""

    step: str
    case: str
    output: str

    @property
    def name(self) -> str:
        return self.case or f"step {self.step}"


@dataclass(frozen=True)
class Retried:
    """A failure with the result of its second, lone run. ``output`` is that run's output;
    ``passed`` is None if it was not run again."""

    failure: Failure
    passed: bool | None
    output: str = ""


@dataclass(frozen=True)
class Verdict:
    """``red`` lists the reasons why the run fails, one per line; empty if it passes."""

    failed: list[Retried] = field(default_factory=list)
    flaky: list[Retried] = field(default_factory=list)
    quarantined: list[Retried] = field(default_factory=list)
    red: list[str] = field(default_factory=list)


def judge(
    retried: Sequence[Retried], quarantine: Collection[str], recorded: Sequence[Collection[str]]
) -> Verdict:
    """Judge a run by its failures.

    ``quarantine`` holds the ids of cases that do not judge. ``recorded`` has the flaky cases of
    each earlier run, the latest last.
    """
    verdict = Verdict()
    for entry in retried:
        name = entry.failure.name
        if entry.failure.case and entry.failure.case in quarantine:
            verdict.quarantined.append(entry)
        elif entry.passed:
            verdict.flaky.append(entry)
            if any(name in run for run in recorded[-REMEMBERED_RUNS:]):
                verdict.red.append(
                    f"{name} was flaky before in the last {REMEMBERED_RUNS} recorded runs: find its cause"
                )
        else:
            verdict.failed.append(entry)
            verdict.red.append(f"{name} failed" + (" twice" if entry.passed is False else ""))

    if len(verdict.flaky) > MAX_FLAKY:
        verdict.red.append(f"{len(verdict.flaky)} cases were flaky; at most {MAX_FLAKY} may be")

    return verdict
