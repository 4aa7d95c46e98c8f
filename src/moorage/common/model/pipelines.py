"""Pipelines: graphs of sessions that are submitted as one request."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from moorage.common.model.base import Model, Name, Seconds
from moorage.common.model.outputs import MAX_OUTPUTS, Folder, Input, expand_input, overlap
from moorage.common.model.spec import SessionSpec
from moorage.common.model.spec_fields import NoNul
from moorage.common.model.templates import Value

MAX_STEPS = 10_000
MAX_EDGES = 100_000
MAX_BYTES = 16 << 20  # bytes in a submission: 1.6 KiB for each step
MAX_VALUES = 60 * MAX_STEPS  # JSON values and names in a submission
_STEP = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
MAX_INDEX = 10**9 - 1
ARRAY_FORMS = (
    "FIRST-LAST, FIRST-LAST:STEP or A,B,C, then %AT_ONCE if wanted, such as 0-9:2 or 0-99%10"
)
_NUMBER = re.compile(r"[0-9]{1,9}")
_RANGE = re.compile(r"(?P<first>[0-9]{1,9})(?:-(?P<last>[0-9]{1,9})(?::(?P<step>[0-9]{1,9}))?)?")


class StepState(StrEnum):
    """State of a pipeline or one of its steps, derived from the sessions."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    SKIPPED = "skipped"


def _check_step(value: str) -> str:
    if not _STEP.fullmatch(value):
        raise ValueError(
            f"{value[:80]!r} is not a valid step name: use 1 to 63 letters, digits and . _ - with "
            "a letter or digit at both ends"
        )
    return value


StepName = Annotated[str, AfterValidator(_check_step)]


@dataclass(frozen=True, slots=True)
class Array:
    """The elements of a step, ascending, at most ``at_once`` of them at a time (None for all)."""

    indexes: tuple[int, ...]
    at_once: int | None = None

    @classmethod
    def parse(cls, text: str) -> Array:
        """Parse Slurm's notation: ``0-99%10``, ``0-9:2`` or ``1,3,8-20:4``. Raises
        ``ValueError``."""
        listed, percent, limit = text.partition("%")
        found = [_RANGE.fullmatch(part) for part in listed.split(",")]
        if None in found or (percent and not _NUMBER.fullmatch(limit)):
            raise ValueError(
                f"array {text[:40]!r} is not a list of indexes from 0 to {MAX_INDEX}: write "
                f"{ARRAY_FORMS}"
            )

        ranges = [_range(text, part) for part in found if part is not None]
        at_once = int(limit) if percent else None
        if at_once == 0:
            raise ValueError(
                f"array {text[:40]!r} would never run: the number after % is at least 1, such as "
                "0-99%10"
            )

        if (size := sum(map(len, ranges))) > MAX_STEPS:
            raise ValueError(
                f"array {text[:40]!r} has {size} elements; 1 to {MAX_STEPS} are allowed, such as "
                f"0-{MAX_STEPS - 1}%10"
            )

        counted = Counter(index for part in ranges for index in part)
        twice = [index for index, count in counted.items() if count > 1]
        if twice:
            raise ValueError(
                f"array {text[:40]!r} has the element {min(twice)} twice: list each index once, "
                "such as 0-3,8"
            )

        return cls(tuple(sorted(counted)), at_once)

    @property
    def size(self) -> int:
        return len(self.indexes)

    @property
    def step(self) -> int:
        """The distance between neighbouring indexes, or 1 if it varies."""
        distances = {after - before for before, after in pairwise(self.indexes)}
        return distances.pop() if len(distances) == 1 else 1


def _range(text: str, part: re.Match[str]) -> range:
    first = int(part["first"])
    last = int(part["last"] or first)
    step = int(part["step"] or 1)

    if last < first:
        raise ValueError(
            f"array {text[:40]!r} has no element from {first} to {last}: the last index is at "
            "least the first, such as 0-9"
        )
    if step == 0:
        raise ValueError(f"array {text[:40]!r}: the step is at least 1, such as 0-9:2")

    return range(first, last + 1, step)


def check_array(text: str) -> str:
    """Check an array's text. Raises ``ValueError``."""
    Array.parse(text)
    return text


class After(Model):
    """Condition on an earlier step: how it must end."""

    step: StepName
    on: Literal["success", "failure", "any"] = Field(
        default="success",
        description=("Required outcome. success applies to batch sessions only."),
    )
    of: Literal["any", "all", "each"] | None = Field(
        default=None,
        description=(
            "Which elements of an array must end so: any, once all have ended, all, or each: "
            "one element waits for that of its index. By default, any for failure, all for success."
        ),
        # Clients of the previous release do not know the field.
        exclude_if=lambda of: of is None,
    )

    @property
    def of_any(self) -> bool:
        """Whether one element of an array is enough."""
        of = self.of or ("any" if self.on == "failure" else "all")
        return of == "any" and self.on != "any"


def _after(value: Any) -> Any:
    """Expand a bare name to a condition on its success. YAML 1.1 reads the key `on` as true."""
    if isinstance(value, dict):
        return {"on" if key is True else key: given for key, given in value.items()}
    return {"step": value} if isinstance(value, str) else value


def conditions(after: list[After], inputs: list[Input]) -> list[After]:
    """``after``, plus the success of each step named in ``inputs``."""
    if not inputs:
        return after
    succeeding = {
        condition.step for condition in after if condition.on == "success" and not condition.of_any
    }
    wanted = dict.fromkeys(input_.step for input_ in inputs if input_.step not in succeeding)
    return [*after, *(After(step=step, on="success") for step in wanted)]


def _unless_valid(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Keep a valid model as it is. Pydantic would accept it, but would call its validators
    again."""
    return value if isinstance(value, SessionSpec) else validate(value)


class Step(Model):
    """Step of a pipeline: one session, or one session for each element of its array."""

    name: StepName
    after: Annotated[list[Annotated[After, BeforeValidator(_after)]], Field(max_length=1000)] = (
        Field(default=[], description="Steps that must end first. A bare name requires success.")
    )
    array: Annotated[str, AfterValidator(check_array)] | None = Field(
        default=None,
        description=(
            "Indexes, such as 0-9:2,20%4: one session for each, which the program finds in "
            "JOB_COMPLETION_INDEX; after %, how many run at once."
        ),
    )
    spec: Annotated[SessionSpec, WrapValidator(_unless_valid)] | None = Field(
        default=None, description="The session that the step runs, unless `template` is set."
    )
    template: NoNul | None = Field(
        default=None, description="NAME or NAME@VERSION, instead of `spec`."
    )
    outputs: Annotated[list[Folder], Field(max_length=MAX_OUTPUTS)] = Field(
        default=[],
        description=(
            "Directories in the working directory that later steps may use. The step fails if "
            "one is missing when its program has exited with code 0."
        ),
    )
    inputs: Annotated[
        list[Annotated[Input, BeforeValidator(expand_input)]], Field(max_length=100)
    ] = Field(
        default=[],
        description="Outputs of earlier steps, which must succeed: STEP, STEP/OUTPUT, or an "
        "object with "
        "`step`, `output` and `path`.",
    )
    parameters: dict[str, Value] = Field(
        default={}, description="Values of the template's parameters."
    )
    overrides: dict[str, Any] = Field(
        default={}, description="Fields of the specification that override the template's."
    )

    @model_validator(mode="after")
    def _check_program(self) -> Self:
        if (self.spec is None) == (self.template is None):
            raise ValueError(f"step {self.name!r} needs either `spec` or `template`")
        return self

    @model_validator(mode="after")
    def _check_outputs(self) -> Self:
        if found := overlap(self.outputs):
            raise ValueError(f"outputs of step {self.name!r}: {found[1]!r} is part of {found[0]!r}")
        return self

    @property
    def conditions(self) -> list[After]:
        """``after``, plus the success of each step named in its inputs."""
        return conditions(self.after, self.inputs)


class PipelineSpec(Model):
    """Pipeline: the body of ``POST /v1/pipelines``."""

    EXAMPLE: ClassVar = {
        "name": "train",
        "steps": [
            {"name": "load", "spec": {"command": ["python", "load.py"]}},
            {
                "name": "part",
                "after": ["load"],
                "array": "0-99%10",
                "spec": {"command": ["python", "part.py"]},
            },
            {
                "name": "alarm",
                "after": [{"step": "part", "on": "failure"}],
                "spec": {"command": ["alarm"]},
            },
        ],
    }

    kind: Literal["pipeline"] = "pipeline"
    name: Name
    timeout_s: Seconds | None = Field(
        default=None,
        description=(
            "Time limit of the whole pipeline, in seconds from its creation, or from its latest "
            "retry. Steps that have not ended by then are stopped. null: none."
        ),
    )
    steps: Annotated[list[Step], Field(min_length=1, max_length=MAX_STEPS)]

    @model_validator(mode="before")
    @classmethod
    def _validate_equal_specs_once(cls, given: Any) -> Any:
        """Validate equal specifications only once, because steps of large pipelines often differ
        only in their names.

        An invalid specification is left to the step's own validation, so that the error names the
        step."""
        steps = given.get("steps") if isinstance(given, dict) else None
        if not isinstance(steps, list) or len(steps) < 2:
            return given

        known: dict[str, Any] = {}
        for step in steps:
            if isinstance(step, dict) and isinstance(raw := step.get("spec"), dict):
                known.setdefault(repr(raw), raw)

        if len(known) > len(steps) // 2:
            return given

        for key, raw in known.items():
            with suppress(ValidationError):
                known[key] = SessionSpec.model_validate(raw)

        def shared(step: Any) -> Any:
            raw = step.get("spec") if isinstance(step, dict) else None
            return step | {"spec": known[repr(raw)]} if isinstance(raw, dict) else step

        return given | {"steps": [shared(step) for step in steps]}


class _StoredStep(BaseModel):
    name: str
    array: str | None = None
    after: list[After] = Field(default=[])
    inputs: list[Input] = Field(default=[])


class _StoredSteps(BaseModel):
    steps: list[_StoredStep]


def stored_conditions(text: str) -> dict[str, list[After]]:
    """Conditions by step, from a pipeline that was validated before it was stored as ``text``.

    The steps' specifications are not read."""
    return {
        step.name: conditions(step.after, step.inputs)
        for step in _StoredSteps.model_validate_json(text).steps
    }


def stored_arrays(text: str) -> dict[str, str]:
    """Arrays by step, from a pipeline that was stored as ``text``."""
    steps = _StoredSteps.model_validate_json(text).steps
    return {step.name: step.array for step in steps if step.array is not None}
