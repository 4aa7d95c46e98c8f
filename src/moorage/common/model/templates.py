"""Session templates: versioned parameter sets, and requests that start a session from a
template."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from moorage.common.model.base import Model, Seconds
from moorage.common.model.run_limits import SlotLimits
from moorage.common.model.spec_fields import Argument, NoNul

Value = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")] | bool | int | float
_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class Parameter(Model):
    """A template's parameter. Without a default, the caller must provide a value."""

    type: Literal["string", "integer", "number", "boolean"] = "string"
    default: Value | None = None
    min: float | None = Field(
        default=None, description="integer and number: the smallest allowed value."
    )
    max: float | None = Field(
        default=None, description="integer and number: the largest allowed value."
    )
    choices: Annotated[list[Value], Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="The only allowed values; null means any."
    )
    description: NoNul = ""

    @model_validator(mode="after")
    def _check_default(self) -> Self:
        if (self.min is not None or self.max is not None) and self.type not in (
            "integer",
            "number",
        ):
            raise ValueError(
                f"`min` and `max` apply to integer and number parameters, not to {self.type}"
            )

        if self.default is not None and (wrong := self.find_problem(self.default)):
            raise ValueError(f"`default` {wrong}")

        return self

    def find_problem(self, value: object) -> str | None:
        """Explain why ``value`` is not allowed; None if it is."""
        is_kind = isinstance(value, _KINDS[self.type]) and isinstance(value, bool) == (
            self.type == "boolean"
        )
        if not is_kind or (isinstance(value, float) and not math.isfinite(value)):
            return f"is {value!r}; it must be a {self.type}"
        if self.choices is not None and value not in self.choices:
            return f"is {value!r}; allowed values are {', '.join(map(repr, self.choices))}"
        if isinstance(value, int | float) and self.min is not None and value < self.min:
            return f"is {value!r}; the smallest allowed value is {self.min:g}"
        if isinstance(value, int | float) and self.max is not None and value > self.max:
            return f"is {value!r}; the largest allowed value is {self.max:g}"

        return None


def _check_parameter_names(value: dict[str, Parameter]) -> dict[str, Parameter]:
    for name in value:
        if not _PARAMETER.fullmatch(name):
            raise ValueError(
                f"{name!r} is not a parameter name: use letters, digits and _, and no digit first"
            )
    return value


class KernelRole(Model):
    """Kernels with one role: the fields that differ from `spec`. Values may be strings with `{{
    parameter }}`."""

    count: int | str = Field(
        default=1, description="Number of kernels with this role; always 1 for main."
    )
    command: list[Argument] | None = None
    image: NoNul | None = None
    env: dict[str, NoNul] = Field(default={})
    resources: dict[str, str | int | float] | None = None


class Roles(Model):
    """Roles of a cluster: one main kernel and any number of sub kernels."""

    main: KernelRole
    sub: KernelRole | None = None

    @model_validator(mode="after")
    def _check_one_main(self) -> Self:
        if self.main.count != 1:
            raise ValueError(
                f"`main.count` is {self.main.count!r}: a session has exactly one main kernel"
            )
        return self


class TemplateSpec(Model):
    """Template: the body of ``PUT /v1/templates/{name}``. Strings may contain `{{ parameter }}`;
    `{{{{` means two braces."""

    EXAMPLE: ClassVar = {
        "parameters": {"epochs": {"type": "integer", "default": 5}},
        "spec": {"command": ["python", "train.py", "--epochs", "{{ epochs }}"]},
    }

    kind: Literal["template"] = "template"
    description: NoNul = ""
    base: NoNul | None = Field(
        default=None,
        description=(
            "NAME or NAME@VERSION of a template on which this one is based, as that is now."
        ),
    )
    parameters: Annotated[
        dict[str, Parameter], Field(max_length=100), AfterValidator(_check_parameter_names)
    ] = Field(default={})
    spec: dict[str, Any] = Field(default={}, description="Fields of the session specification.")
    roles: Roles | None = Field(
        default=None,
        description=(
            "Roles with their own commands, images, variables and resources; null means one kernel."
        ),
    )
    max_time_s: Seconds | None = Field(
        default=None,
        description=(
            "Longest time limit of sessions from the template, in seconds, whatever overrides "
            "request; their default if none is specified."
        ),
    )
    max_per_session: SlotLimits | None = Field(
        default=None,
        description=(
            "Most that a session from the template may request, by slot, whatever overrides "
            "request."
        ),
    )


class TemplateRun(Model):
    """The body of ``POST /v1/templates/{name}/sessions``."""

    EXAMPLE: ClassVar = {"parameters": {"epochs": 3}}

    version: Annotated[int, Field(ge=1, le=2_147_483_647)] | None = Field(
        default=None, description="Version of the template. null means the latest."
    )
    parameters: dict[str, Value] = Field(
        default={}, description="Values of the template's parameters."
    )
    overrides: dict[str, Any] = Field(
        default={},
        description=(
            "Fields of the session specification that are merged over the template: objects "
            "deeply, lists replaced; null removes a field."
        ),
    )


def split_version(ref: str) -> tuple[str, int | None]:
    """Split ``NAME@VERSION`` or ``NAME``. Raises ``ValueError`` if the version is not a number."""
    name, at, version = ref.partition("@")
    if at and not (version.isascii() and version.isdigit() and 0 < int(version) < 2**31):
        raise ValueError(
            f"{ref!r} has the version {version!r}; it must be a number, as in {name}@1"
        )
    return name, int(version) if at else None
