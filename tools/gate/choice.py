"""Choice of steps: which steps judge a commit, and how much of each (pure)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from enum import StrEnum

from pathspec import PathSpec

from tools.gate.steps import ChosenStep, Extent, Kind, Step


class Tier(StrEnum):
    """How much a run judges."""

    CHECK = "check"
    """Static checks and unit tests."""
    TEST = "test"
    """Everything that needs no Docker, no root and no Debian package."""
    GATE = "gate"
    """Everything that judges each change."""
    FULL = "full"
    """Every case of every step."""


def in_turn(names: Sequence[str], number: int, count: int = 2) -> list[str]:
    """Return the ``count`` names whose turn it is at commit ``number`` (commits up to HEAD, from
    0).

    ``names`` are in the order of their cost. They are split into ``count`` groups, and each number
    gets one name from each group, so two names from the more expensive half are never chosen
    together. ``len(names) / count`` consecutive numbers have each name once, in an order drawn from
    the block's own seed. With a fixed order, submissions of ten commits would always get the same
    names. ``len(names)`` must be a multiple of ``count``.
    """
    if not names:
        return []

    block_length = len(names) // count
    if block_length * count != len(names):
        raise ValueError(f"{len(names)} steps in turn cannot be taken {count} at a time")

    block, position = divmod(number, block_length)
    generator = random.Random(block)
    chosen = []
    for first in range(0, len(names), block_length):
        group = list(names[first : first + block_length])
        generator.shuffle(group)
        chosen.append(group[position])

    return chosen


def names_in_turn(steps: Iterable[Step], kind: Kind = Kind.INTEGRATION) -> list[str]:
    """Names of the steps of this kind that take turns, the cheapest first."""
    candidates = [
        step for step in steps if step.kind is kind and (step.in_turn or kind is Kind.TURN)
    ]
    return [step.name for step in sorted(candidates, key=lambda step: cost(step, Extent.GATE))]


def touched(step: Step, changed: Iterable[str]) -> str:
    """Return the first of the ``changed`` paths that the step tests; "" if there is none."""
    patterns = PathSpec.from_lines("gitignore", step.changed)
    return next((path for path in changed if patterns.match_file(path)), "")


def choose(
    steps: Sequence[Step],
    tier: Tier,
    changed: Sequence[str],
    number: int,
    *,
    budget_core_s: float = float("inf"),
) -> list[ChosenStep]:
    """Return the steps of this tier for a change to the paths ``changed`` at commit ``number``.

    ``budget_core_s`` is the time that the gate may take, in seconds of one core. The smoke cases
    and the steps whose turn it is (two integrations, one step of kind ``turn``) always run. Steps
    whose files have changed run as long as they fit, the cheapest first, so that judging a change
    to everything does not take an hour. A step that does not fit keeps its smoke case and reports
    this in its reason; ``make full`` runs it.
    """
    turns = in_turn(names_in_turn(steps), number)
    turns += in_turn(names_in_turn(steps, Kind.TURN), number, count=1)
    chosen: dict[str, ChosenStep] = {}
    wanted: list[tuple[Step, str]] = []
    for step in steps:
        extent, reason = _always(step, tier, turns)
        if extent is not None:
            chosen[step.name] = ChosenStep(step, extent, reason)

        path = touched(step, changed)
        optional = (
            step.kind in (Kind.TURN, Kind.INTEGRATION, Kind.EXTRA) and extent is not Extent.GATE
        )
        if tier is Tier.GATE and optional and path:
            wanted.append((step, path))

    spent = sum(cost(entry.step, entry.extent) for entry in chosen.values())
    for step, path in sorted(wanted, key=lambda entry: cost(entry[0], Extent.GATE)):
        before = cost(step, Extent.SMOKE) if step.has(Extent.SMOKE) else 0.0
        addition = cost(step, Extent.GATE) - before
        if spent + addition <= budget_core_s:
            spent += addition
            chosen[step.name] = ChosenStep(step, Extent.GATE, f"changed: {path}")
        elif step.has(Extent.SMOKE):
            chosen[step.name] = ChosenStep(
                step, Extent.SMOKE, f"over the budget, though changed: {path}"
            )

    return [chosen[step.name] for step in steps if step.name in chosen]


def cost(step: Step, extent: Extent) -> float:
    """How long an extent of the step takes, in seconds of one core."""
    return step.weight * step.usual_s[extent]


def _always(step: Step, tier: Tier, turns: Sequence[str]) -> tuple[Extent | None, str]:
    """The extent that does not depend on what changed."""
    if tier is Tier.FULL:
        return (Extent.FULL if step.has(Extent.FULL) else Extent.GATE), "everything"
    if step.kind is Kind.CHECK or (step.kind is Kind.TEST and tier is not Tier.CHECK):
        return Extent.GATE, "always"
    if step.kind is Kind.TURN and tier is not Tier.CHECK:
        return (Extent.GATE, "in turn") if step.name in turns else (None, "")
    if tier is Tier.GATE and step.kind is Kind.INTEGRATION:
        return (Extent.GATE, "in turn") if step.name in turns else (Extent.SMOKE, "smoke case")

    return None, ""
