"""The order in which the steps of a run start."""

from __future__ import annotations

from tools.gate.schedule import next_step
from tools.gate.steps import ChosenStep, Extent, Kind, Step


def entry(name: str, weight: float, seconds: float = 10, **values: object) -> ChosenStep:
    row = {"name": name, "kind": Kind.TEST, "about": name, "weight": weight, "tests": (name,)}
    step = Step.model_validate({**row, "usual_s": {Extent.GATE: seconds}, **values})
    return ChosenStep(step, Extent.GATE, "")


def test_longest_step_that_fits_starts_first() -> None:
    short = entry("short", 0.5, 5)
    long = entry("long", 0.5, 50)
    heavy = entry("heavy", 1.5, 500)
    running = [entry("running", 1.0)]
    assert next_step([short, long, heavy], [], 2.0) is heavy
    assert next_step([short, long, heavy], running, 2.0) is long
    assert next_step([short, long, heavy], [*running, entry("other", 1.0)], 2.0) is None


def test_step_heavier_than_the_machine_starts_when_nothing_runs() -> None:
    heavy = entry("heavy", 9.0)
    assert next_step([heavy], [], 2.0) is heavy
    assert next_step([heavy], [entry("running", 0.1)], 2.0) is None


def test_steps_that_share_something_do_not_run_side_by_side() -> None:
    first = entry("first", 0.1, shares=["cgroups"])
    second = entry("second", 0.1, shares=["cgroups", "x"])
    assert next_step([second], [first], 2.0) is None
    assert next_step([second], [entry("other", 0.1, shares=["y"])], 2.0) is second


def test_step_that_runs_alone_comes_last_and_alone() -> None:
    alone = entry("alone", 0.1, 900, alone=True)
    other = entry("other", 0.1)
    assert next_step([alone, other], [], 2.0) is other
    assert next_step([alone], [other], 2.0) is None
    assert next_step([alone], [], 2.0) is alone
    assert next_step([other], [alone], 2.0) is None
    assert next_step([entry("second", 0.1, alone=True)], [alone], 2.0) is None
