"""Truth about pipelines: what may start, be skipped and run again, derived by replaying a log of
what was stored.

The simulation's triggers write the log, in the order of the changes. The replay uses the rules in
``docs/pipelines.md``, and none of the dependencies between sessions that managers write.

A restored database no longer knows which steps had started, and learns it only when agents report
that these have ended: by then, their predecessors may be pending again. Placed kernels are
therefore recorded in a separate table that no restore reverts. If the end of an array element was
lost and the element starts again, it is not counted if a later element has run, because the later
element's turn was free at that time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from moorage.common.model.pipelines import Array, PipelineSpec, Step

from .node import Violation

_ENDED = ("TERMINATED", "CANCELLED", "ERROR")
RECORD_STEPS = """
CREATE TABLE sim.steps (n bigserial PRIMARY KEY, transaction bigint, kind text, pipeline_id text, step text,
    index int, run int, session_id text, status text, result text, reason text, has_run boolean);
CREATE TABLE sim.placed (kernel_id uuid PRIMARY KEY);
CREATE FUNCTION sim.record_step() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO sim.steps (transaction, kind, pipeline_id, step, index, run, session_id)
    VALUES (txid_current(), 'run', NEW.pipeline_id, NEW.step, NEW.index, NEW.run, NEW.session_id);
    RETURN NEW; END $$;
CREATE TRIGGER record_step AFTER INSERT ON pipeline_steps FOR EACH ROW EXECUTE FUNCTION sim.record_step();
CREATE FUNCTION sim.record_step_status() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO sim.steps
        (transaction, kind, pipeline_id, step, index, run, session_id, status, result, reason, has_run)
    SELECT 0, 'status', p.pipeline_id, p.step, p.index, p.run, NEW.id, NEW.status, NEW.result, NEW.reason,
           EXISTS (SELECT FROM kernels k JOIN sim.placed l ON l.kernel_id = k.id
                   WHERE k.session_id = NEW.id AND k.attempt = NEW.attempt
                     AND k.status IN ('TERMINATED', 'CANCELLED', 'ERROR'))
    FROM pipeline_steps p WHERE p.session_id = NEW.id;
    INSERT INTO sim.placed SELECT id FROM kernels
    WHERE session_id = NEW.id AND attempt = NEW.attempt AND NEW.status = 'SCHEDULED' ON CONFLICT DO NOTHING;
    RETURN NEW; END $$;
CREATE TRIGGER record_step_status AFTER UPDATE OF status ON sessions FOR EACH ROW
    WHEN (NEW.status <> OLD.status) EXECUTE FUNCTION sim.record_step_status();
"""
Item = tuple[str, int]


@dataclass
class _Run:
    session_id: str
    status: str = "PENDING"
    result: str = ""
    reason: str = ""
    has_run: bool = False  # its placement had been lost, and its program has ended

    @property
    def ended(self) -> bool:
        return self.status in _ENDED

    @property
    def runs(self) -> bool:
        return not self.ended and self.status != "PENDING"

    @property
    def skipped(self) -> bool:
        return self.ended and self.reason == "dependency-failed"

    @property
    def failed(self) -> bool:
        """Whether it runs again in a retry."""
        return self.ended and not self.skipped and self.result != "SUCCESS"

    def meets(self, condition: str) -> bool | None:
        """None means that it is too early to tell."""
        if not self.ended:
            return None
        met = {
            "any": True,
            "success": self.result == "SUCCESS",
            "failure": self.result == "FAILED" or self.status == "ERROR",
        }
        return met[condition]


@dataclass
class PipelineTruth:
    """``runs``: the runs of each step or array element, the latest last."""

    name: str
    steps: Mapping[str, Step]
    runs: dict[Item, list[_Run]] = field(default_factory=lambda: defaultdict(list))

    def items(self, step: str) -> list[Item]:
        array = self.steps[step].array
        if array is None:
            return [(step, -1)]
        return [(step, index) for index in Array.parse(array).indexes]

    def see(self, changes: list[Any]) -> None:
        """The changes in one transaction that created runs, or one status change."""
        if changes[0]["kind"] == "run":
            self._see_runs({(row["step"], row["index"]): row for row in changes})
            return
        for row in changes:
            self._see_status(row)

    def _see_runs(self, rows: dict[Item, Any]) -> None:
        expected = (
            self._to_rerun()
            if self.runs
            else {item for step in self.steps for item in self.items(step)}
        )
        if running := [item for item, runs in self.runs.items() if runs[-1].runs]:
            raise Violation(f"pipeline {self.name} is retried while {running} run")

        if rows.keys() != expected:
            raise Violation(
                f"pipeline {self.name} gets runs of {sorted(rows)}, and not {sorted(expected)}"
            )

        for item, row in rows.items():
            self.runs[item].append(_Run(row["session_id"]))
            if row["run"] != len(self.runs[item]):
                raise Violation(
                    f"{self.name}: run {row['run']} of {item} follows {len(self.runs[item]) - 1}"
                )

    def _to_rerun(self) -> set[Item]:
        """The steps that failed or were stopped, and all steps that follow them and have ended."""
        again = {item for item, runs in self.runs.items() if runs[-1].failed}
        reached = {step for step, _ in again}
        while (
            more := {s.name for s in self.steps.values() if {a.step for a in s.after} & reached}
            - reached
        ):
            reached |= more

        followers = {name for name in reached if {a.step for a in self.steps[name].after} & reached}
        return again | {i for name in followers for i in self.items(name) if self.runs[i][-1].ended}

    def _see_status(self, row: Any) -> None:
        item = row["step"], row["index"]
        run = next(run for run in self.runs[item] if run.session_id == row["session_id"])
        before = run.status
        run.status = row["status"]
        run.result = row["result"]
        run.reason = row["reason"]
        if before == "PENDING":
            run.has_run = row["has_run"]

        if before == "PENDING" and run.runs and not run.has_run:
            if unmet := [text for text, met in self.conditions(item) if not met]:
                raise Violation(f"{self.name}: {item} begins, and {unmet[0]} is not met")
            self._check_array(row["step"])

        if run.skipped and all(met is not False for _, met in self.conditions(item)):
            raise Violation(
                f"{self.name}: {item} is skipped, and none of its conditions has failed"
            )

    def conditions(self, item: Item) -> Iterator[tuple[str, bool | None]]:
        for after in self.steps[item[0]].after:
            met = {
                earlier: self.runs[earlier][-1].meets(after.on)
                for earlier in self.items(after.step)
            }
            if after.of_any:
                ended = None not in met.values()
                yield f"any of {after.step} {after.on}", any(met.values()) if ended else None
                continue

            for earlier, is_met in met.items():
                yield f"{earlier} {after.on}", is_met

    def _check_array(self, step: str) -> None:
        array = self.steps[step].array
        at_once = Array.parse(array).at_once if array is not None else None
        latest = {item: self.runs[item][-1] for item in self.items(step)}
        overtaken = max((index for (_, index), run in latest.items() if run.has_run), default=-1)
        running = [
            item
            for item, run in latest.items()
            if run.runs and not run.has_run and item[1] > overtaken
        ]
        if at_once is not None and len(running) > at_once:
            raise Violation(f"{self.name}: {running} run at once, and {at_once} of them may")

    def waiting_in_vain(self) -> list[tuple[Item, str]]:
        """Pending steps whose condition can no longer be met, with their sessions."""
        return [
            (item, runs[-1].session_id)
            for item, runs in self.runs.items()
            if runs[-1].status == "PENDING"
            and any(met is False for _, met in self.conditions(item))
        ]


def replay(pipelines: Mapping[str, PipelineSpec], changes: list[Any]) -> dict[str, PipelineTruth]:
    """Returns the pipelines by id. Raises ``Violation`` for events that must not have happened."""
    truths = {
        key: PipelineTruth(spec.name, {step.name: step for step in spec.steps})
        for key, spec in pipelines.items()
    }
    for key, truth in truths.items():
        own = [row for row in changes if row["pipeline_id"] == key]
        for _, rows in groupby(own, lambda row: row["transaction"] or -row["n"]):
            truth.see(list(rows))

    for truth in truths.values():
        if not truth.runs:
            raise Violation(f"pipeline {truth.name} has no steps")

    return truths
