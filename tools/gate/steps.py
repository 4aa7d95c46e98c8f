"""Table of steps: the contents of ``tests/steps.toml`` as values.

A step either runs a shell command or a selection of pytest cases. How much of it runs depends on
its ``Extent``: the smoke case of an integration, the part that the gate runs, or everything.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

LEAST_LIMIT_S = 120.0


class Kind(StrEnum):
    """When a step runs."""

    CHECK = "check"
    """Always: static checks and unit tests."""
    TEST = "test"
    """Always, and in ``make test``: cases with real parts that any machine has."""
    TURN = "turn"
    """One of them in each gate run and each ``make test``; in the gate, also those whose files
    changed."""
    INTEGRATION = "integration"
    """Its smoke case always; the rest when its files changed, when it is its turn, or in ``make
    full``."""
    EXTRA = "extra"
    """When its files changed, or in ``make full``; it has no smoke case."""
    FULL = "full"
    """In ``make full`` only."""


class Extent(StrEnum):
    """How much of a step runs."""

    SMOKE = "smoke"
    GATE = "gate"
    FULL = "full"


class Step(BaseModel):
    """A row of ``tests/steps.toml``.

    ``weight`` is how many cores the step keeps busy (1.0 is one core), ``usual_s`` how long each
    extent takes in seconds on two cores next to other steps. ``ignore`` are files among ``tests``
    that other steps run. ``shares`` names resources that the step cannot share with another one
    that runs at the same time. ``changed`` are gitignore patterns of the files that it tests.
    ``alone`` steps measure against deadlines, so nothing runs alongside them. Steps without
    ``retry`` give the same result each time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: Kind
    about: str
    usual_s: dict[Extent, float]
    weight: float
    command: str = ""
    tests: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    marks: str = ""
    workers: int = 0
    distribution: str = "load"
    prepare: str = ""
    shares: frozenset[str] = frozenset()
    changed: tuple[str, ...] = ()
    in_turn: bool = False
    alone: bool = False
    retry: bool = True

    @model_validator(mode="after")
    def _check(self) -> Step:
        if bool(self.command) == bool(self.tests):
            raise ValueError("a step has either `command` or `tests`")
        needed = {Kind.INTEGRATION: {Extent.SMOKE, Extent.GATE}, Kind.FULL: {Extent.FULL}}
        for extent in needed.get(self.kind, {Extent.GATE}):
            if extent not in self.usual_s:
                raise ValueError(f"a step of kind {self.kind} needs usual_s.{extent}")
        return self

    def has(self, extent: Extent) -> bool:
        return extent in self.usual_s

    def limit_s(self, extent: Extent) -> float:
        """Seconds after which the step is stopped: three times its usual time, but at least two
        minutes."""
        return max(LEAST_LIMIT_S, 3 * self.usual_s[extent])

    def expression(self, extent: Extent) -> str:
        """The marker expression of pytest that selects the cases of ``extent``."""
        addition = {Extent.SMOKE: "smoke", Extent.GATE: "not slow", Extent.FULL: ""}[extent]
        if self.marks and addition:
            return f"({self.marks}) and {addition}"
        return self.marks or addition


@dataclass(frozen=True)
class ChosenStep:
    """A step, the extent to which it runs, and the reason."""

    step: Step
    extent: Extent
    reason: str

    @property
    def name(self) -> str:
        """The name used in tables and for the log: ``docker``, or ``docker-smoke``."""
        return f"{self.step.name}-smoke" if self.extent is Extent.SMOKE else self.step.name


def read_steps(path: Path) -> tuple[Step, ...]:
    """Return the steps of the file, in its order. Raises ValueError that names the step and the
    key."""
    steps = []
    for name, row in tomllib.loads(path.read_text()).items():
        try:
            steps.append(Step(name=name, **row))
        except ValidationError as error:
            raise ValueError(f"{path.name}, [{name}]: {error}") from error
    return tuple(steps)
