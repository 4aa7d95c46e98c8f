"""Cron jobs: sessions and pipelines that start at the times of a cron expression."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from moorage.common.model.base import Model, Name, Seconds
from moorage.common.model.pipelines import PipelineSpec
from moorage.common.model.spec import SessionSpec
from moorage.common.model.spec_fields import NoNul
from moorage.common.model.templates import Value
from moorage.common.model.timestamps import Timestamp

MAX_EXPRESSION = 200
# Long enough for a change of the leader or a restart of the manager.
ON_TIME_S = 120.0
# Names of its runs have 15 more characters, and a session's name has 128 at most.
MAX_NAME = 100
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,40}(?:/[A-Za-z0-9_+-]{1,40}){0,2}")


class CronRunState(StrEnum):
    """State of a run of a cron job. The states from PENDING to STOPPED are those of its session or
    pipeline."""

    STARTING = "starting"
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    REMOVED = "removed"
    REFUSED = "refused"
    SKIPPED = "skipped"
    MISSED = "missed"


def expand_expression(text: str) -> str:
    """The five fields that an expression or a name like ``@daily`` stands for. Raises
    ``ValueError``."""
    words = text.split()
    if len(words) == 1 and words[0].startswith("@"):
        if (fields := MACROS.get(words[0].lower())) is None:
            raise ValueError(f"{text!r} is unknown; the names are {', '.join(MACROS)}")
        return fields

    if len(words) != 5:
        raise ValueError(
            f"{text[:80]!r} has {len(words)} fields; an expression has five: minute, hour, day of "
            "the month, month and day of the week, for example '30 7 * * MON-FRI'"
        )
    return " ".join(words)


def _check_expression(text: str) -> str:
    expand_expression(text)
    return text


def _check_zone(name: str) -> str:
    if not _ZONE.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is not the name of a time zone, such as Europe/Prague")
    return name


Expression = Annotated[
    str,
    Field(
        max_length=MAX_EXPRESSION,
        description=(
            "Minute, hour, day of the month, month and day of the week, with names, ranges, lists "
            "and steps; or @hourly, @daily, @weekly, @monthly or @yearly."
        ),
        examples=["30 7 * * MON-FRI"],
    ),
    AfterValidator(_check_expression),
]
TimeZone = Annotated[
    str,
    Field(description="Name in the IANA database, such as Europe/Prague."),
    AfterValidator(_check_zone),
]


class CronTimesSpec(Model):
    """Times: the body of ``POST /v1/cron-jobs/plan``."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"cron": "30 7 * * MON-FRI", "time_zone": "Europe/Prague"}

    cron: Expression
    time_zone: TimeZone = "UTC"
    starts_at: Timestamp | None = Field(default=None, description="No run before this time.")
    ends_at: Timestamp | None = Field(default=None, description="No run at or after this time.")

    @field_validator("ends_at")
    @classmethod
    def _check_period(cls, ends_at: datetime | None, info: ValidationInfo) -> datetime | None:
        starts_at = info.data.get("starts_at")
        if starts_at and ends_at and ends_at <= starts_at:
            raise ValueError("it must be after `starts_at`")
        return ends_at


class CronJobSpec(CronTimesSpec):
    """Cron job: the body of ``PUT /v1/cron-jobs/{ref}``."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        **CronTimesSpec.EXAMPLE,
        "session": {"command": ["python", "report.py"]},
    }

    kind: Literal["cron-job"] = "cron-job"
    session: SessionSpec | None = Field(
        default=None, description="The session of each run, unless `template` or `pipeline` is set."
    )
    template: NoNul | None = Field(
        default=None, description="NAME or NAME@VERSION, instead of `session`."
    )
    parameters: dict[str, Value] = Field(
        default={}, description="Values of the template's parameters."
    )
    overrides: dict[str, Any] = Field(
        default={}, description="Fields of the specification that override the template's."
    )
    pipeline: PipelineSpec | None = Field(
        default=None, description="The pipeline of each run, instead of `session`."
    )
    concurrency: Literal["forbid", "allow", "replace"] = Field(
        default="forbid",
        description=(
            "What to do if the previous run has not ended: forbid skips the new run, allow starts "
            "it as well, and replace stops the previous run first."
        ),
    )
    missed: Literal["skip", "run-once"] = Field(
        default="skip",
        description=(
            "What to do with runs whose deadline passed while no manager could start them: skip "
            "them, or run the latest of them once."
        ),
    )
    start_deadline_s: Seconds | None = Field(
        default=None,
        description=(
            "How late a run may start, in seconds. Default: 120 with `missed: skip`, and no limit "
            "with `missed: run-once`."
        ),
    )
    history: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=20, description="How many ended runs are kept."
    )

    @model_validator(mode="after")
    def _check_work(self) -> Self:
        given = [name for name in ("session", "template", "pipeline") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(
                "a cron job needs exactly one of `session`, `template` and `pipeline`"
                + (f", not {' and '.join(f'`{name}`' for name in given)}" if given else "")
            )

        if self.template is None and (self.parameters or self.overrides):
            raise ValueError("`parameters` and `overrides` are for a `template`")
        return self

    @field_validator("session")
    @classmethod
    def _check_session(cls, session: SessionSpec | None) -> SessionSpec | None:
        if session is not None and session.starts_at is not None:
            raise ValueError("`starts_at` cannot be set: `cron` decides when runs start")
        if session is not None and session.name:
            raise ValueError("`name` cannot be set: runs have the name of the cron job")
        return session


class NewCronJob(CronJobSpec):
    """Cron job to be created: the body of ``POST /v1/cron-jobs``."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"name": "report", **CronJobSpec.EXAMPLE}

    name: Annotated[Name, Field(max_length=MAX_NAME)]
