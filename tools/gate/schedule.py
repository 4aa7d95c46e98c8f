"""Schedule of steps: which waiting step starts next on this machine (pure)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tools.gate.steps import ChosenStep


def next_step(
    waiting: Sequence[ChosenStep], running: Collection[ChosenStep], capacity: float
) -> ChosenStep | None:
    """Return the longest waiting step that fits next to the running ones; None if none does.

    The weights of the running steps may add up to ``capacity`` cores, and two steps that name the
    same thing in ``shares`` never run together. A step that runs alone waits until nothing else is
    left. A step heavier than the capacity starts when nothing is running.
    """
    free = capacity - sum(chosen.step.weight for chosen in running)
    taken = {name for chosen in running for name in chosen.step.shares}
    longest_first = sorted(waiting, key=_order)
    for chosen in longest_first:
        step = chosen.step
        if not running and not (step.alone and any(not other.step.alone for other in waiting)):
            return chosen
        if step.alone or any(other.step.alone for other in running):
            continue
        if step.weight <= free + 1e-9 and not step.shares & taken:
            return chosen

    return None


def _order(chosen: ChosenStep) -> tuple[bool, float, str]:
    return chosen.step.alone, -chosen.step.usual_s[chosen.extent], chosen.name
