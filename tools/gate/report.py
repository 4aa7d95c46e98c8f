"""Report of a run: the table, the flaky cases and the failures that are printed last, and their
records."""

from __future__ import annotations

import datetime
import json
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.gate.runner import StepResult
from tools.gate.verdict import REMEMBERED_RUNS, Retried, Verdict

PRINTED_LINES = 60
"""Number of lines printed of a failure's output; the logs have all of it."""
RECORDED_CHARACTERS = 4_000


@dataclass(frozen=True)
class Run:
    """The record of a run: its commit, when it started (UTC), how long it took in seconds."""

    commit: str
    began: datetime.datetime
    seconds: float
    tier: str


def table(results: Sequence[StepResult]) -> str:
    """The table of steps: seconds next to the usual ones, CPU seconds, cases."""
    rows = [("step", "result", "seconds", "usual", "CPU s", "cases", "skipped", "why")]
    for result in results:
        chosen = result.chosen
        rows.append(
            (
                chosen.name,
                str(result.state),
                f"{result.seconds:.0f}",
                f"{chosen.step.usual_s[chosen.extent]:.0f}",
                f"{result.cpu_s:.0f}",
                str(result.cases or ""),
                str(result.skipped or ""),
                result.reason or chosen.reason,
            )
        )

    widths = [max(len(row[column]) for row in rows) for column in range(7)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), row[1].ljust(widths[1])]
        cells += [cell.rjust(width) for cell, width in zip(row[2:7], widths[2:], strict=True)]
        lines.append("  ".join([*cells, row[7]]))

    return "\n".join(lines)


def summary(run: Run, results: Sequence[StepResult], verdict: Verdict) -> str:
    """The last words of a run: table, cases in quarantine, flaky cases and failures, and the
    result."""
    parts = [table(results)]
    for entry in verdict.quarantined:
        state = "passed alone" if entry.passed else "failed"
        parts.append(f"IN QUARANTINE ({state}, does not judge): {entry.failure.name}")

    for entry in verdict.flaky:
        parts.append(f"==== FLAKY {entry.failure.name} (step {entry.failure.step}): failed")
        parts.append(_end(entry.failure.output))
        parts.append("---- and then passed alone")
        parts.append(_end(entry.output, 15))

    for entry in verdict.failed:
        again = {None: "not run again", False: "failed again alone", True: ""}[entry.passed]
        parts.append(f"==== FAILED {entry.failure.name} (step {entry.failure.step}; {again})")
        parts.append(_end(entry.failure.output))

    cpu_s = sum(result.cpu_s for result in results)
    cases = sum(result.cases for result in results)
    parts.append("")
    parts.append(f"{cases} cases in {len(results)} steps, {run.seconds:.0f} s, {cpu_s:.0f} CPU s")
    parts += [f"FLAKY  {entry.failure.name}" for entry in verdict.flaky]
    parts += [f"FAILED {entry.failure.name}" for entry in verdict.failed]

    if verdict.red:
        parts.append("RED: " + "\n     ".join(verdict.red))
    else:
        parts.append("GREEN")

    return "\n".join(parts)


def read_recorded(path: Path) -> list[set[str]]:
    """The flaky cases of each of the most recent recorded runs, the latest last."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines()[-REMEMBERED_RUNS:]
    return [{entry["case"] for entry in json.loads(line)["flaky"]} for line in lines]


def record_flaky(path: Path, run: Run, flaky: Iterable[Retried]) -> None:
    """Append the run, with its flaky cases and both their outputs."""
    entries: list[dict[str, Any]] = []
    for entry in flaky:
        entries.append(
            {
                "case": entry.failure.name,
                "step": entry.failure.step,
                "failed": entry.failure.output[-RECORDED_CHARACTERS:],
                "passed": entry.output[-RECORDED_CHARACTERS:],
            }
        )

    line = {
        "began": run.began.isoformat(),
        "commit": run.commit,
        "tier": run.tier,
        "flaky": entries,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def write_json(path: Path, run: Run, results: Sequence[StepResult], verdict: Verdict) -> None:
    """Write the table as JSON, for scripts and for the limits in the next change to steps.toml."""
    steps = []
    for result in results:
        steps.append(
            {
                "step": result.chosen.step.name,
                "extent": str(result.chosen.extent),
                "why": result.chosen.reason,
                "state": str(result.state),
                "seconds": round(result.seconds, 1),
                "cpu_s": round(result.cpu_s, 1),
                "cases": result.cases,
                "skipped": result.skipped,
            }
        )

    document = {
        "commit": run.commit,
        "began": run.began.isoformat(),
        "tier": run.tier,
        "seconds": round(run.seconds, 1),
        "steps": steps,
        "red": verdict.red,
        "flaky": [entry.failure.name for entry in verdict.flaky],
        "failed": [entry.failure.name for entry in verdict.failed],
    }
    path.write_text(json.dumps(document, indent=2) + "\n")


def read_quarantine(path: Path) -> set[str]:
    """The ids of the cases in ``tests/quarantine.toml``."""
    if not path.exists():
        return set()
    return {entry["case"] for entry in tomllib.loads(path.read_text()).get("quarantine", [])}


def _end(text: str, lines: int = PRINTED_LINES) -> str:
    return "\n".join(text.rstrip().splitlines()[-lines:])
