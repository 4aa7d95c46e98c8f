"""Idle criteria as administrators and users set them. Pure data."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from moorage.common.model.base import Model, Name, Seconds

METRICS = ("cpu", "memory", "gpu")
NEVER = "never"

Percent = Annotated[float, Field(gt=0, le=100)]
Duration = Annotated[float, Field(ge=0, le=315_360_000)]


class Utilization(Model):
    """Utilization of a session's allocation, averaged over a window. Resources that are not
    measured or not allocated are ignored."""

    window_s: Annotated[float, Field(ge=60, le=5400)] = Field(
        default=600, description="Length of the window, in seconds. Usage is recorded per minute."
    )
    cpu: Percent | None = Field(
        default=None, description="Threshold in percent of the allocated processors."
    )
    memory: Percent | None = Field(
        default=None, description="Threshold in percent of the allocated memory."
    )
    gpu: Percent | None = Field(
        default=None, description="Threshold in percent of the allocated devices."
    )
    busy_if: Literal["any", "all"] = Field(
        default="any",
        description=(
            "Whether the session counts as used if any, or only if all, of these reach their "
            "thresholds."
        ),
    )

    @model_validator(mode="after")
    def _check_thresholds(self) -> Self:
        if not any(getattr(self, name) is not None for name in METRICS):
            raise ValueError(f"utilization needs a threshold: set one of {', '.join(METRICS)}")
        return self


class Bounds(Model):
    """Limit that administrators set, and the bounds within which users choose their own."""

    default_s: Seconds | None = Field(
        default=None,
        description=(
            "Limit for sessions that choose none; null means `max_s`, or no limit if that is also "
            "null."
        ),
    )
    min_s: Duration = Field(
        default=0, description="The smallest limit that a session may choose, in seconds."
    )
    max_s: Seconds | None = Field(
        default=None,
        description=(
            "The largest limit that a session may choose, in seconds; null means any, including "
            "`never`."
        ),
    )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        most = self.max_s or float("inf")
        if not self.min_s <= (self.default_s or self.min_s) <= most:
            raise ValueError(
                f"min_s = {self.min_s:g}, default_s and max_s must be in ascending order"
            )
        return self


class IdleRules(Model):
    """Idle criteria of interactive sessions."""

    traffic: Bounds | None = Field(
        default=None,
        description=(
            "Time without traffic to the session's apps and without `moorage exec`. null means "
            "that the session chooses."
        ),
    )
    lifetime: Bounds | None = Field(
        default=None,
        description="Total runtime, regardless of use. null means that the session chooses.",
    )
    utilization: Utilization | None = Field(
        default=None,
        description="Utilization of the session's allocation. null means that the session chooses.",
    )
    grace_s: Duration = Field(
        default=0, description="Initial time that never counts as idle, in seconds after the start."
    )
    warning_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=300,
        description=(
            "Time between the warning and the end of a session, in seconds. A session never ends "
            "without this warning."
        ),
    )
    end_when: Literal["any", "all"] = Field(
        default="any",
        description=(
            "Whether a session ends when any of its criteria is met, or only when all are met."
        ),
    )
    extension_s: Duration = Field(
        default=3600,
        description=(
            "Longest time by which one extension prolongs a session, in seconds; 0 means that "
            "extensions are not allowed."
        ),
    )
    extensions: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=3, description="Number of times that a session may be extended."
    )


class IdlePolicy(IdleRules):
    """Idle criteria of a resource group."""

    projects: Annotated[dict[Name, IdleRules], Field(max_length=10_000)] = Field(
        default={},
        description="Rules for sessions of these projects, which replace the group's.",
    )

    def rules(self, project: str) -> IdleRules:
        return self.projects.get(project, self)


Choice = Seconds | Literal["never"]


class IdleChoice(Model):
    """Idle criteria that a session chooses, within the bounds of its resource group."""

    traffic_s: Choice | None = Field(
        default=None,
        description=(
            "End the session after this time without traffic to its apps and without `moorage "
            "exec`; never: do not end it. null means as its resource group specifies."
        ),
    )
    lifetime_s: Choice | None = Field(
        default=None,
        description=(
            "End the session after this runtime. null means as its resource group specifies."
        ),
    )
    utilization: Utilization | None = Field(
        default=None,
        description=(
            "Only if the resource group sets no thresholds. null means as the group specifies."
        ),
    )
