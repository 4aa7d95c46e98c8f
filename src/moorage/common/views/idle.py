"""REST models for idle criteria."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from moorage.common.model.spec import Model
from moorage.common.views.resources import View


class CriterionView(View):
    name: str = Field(description="traffic, utilization or lifetime.")
    remaining_s: float | None = Field(
        description=(
            "Seconds until the criterion is met; 0 or less if it is met. null means never, or "
            "currently not observed."
        )
    )


class IdleView(View):
    """When an interactive session will end because of inactivity, as last observed by the
    manager."""

    session_id: str
    criteria: list[CriterionView]
    end_when: str = Field(
        description="any: the first criterion that is met ends the session. all: the last one."
    )
    criterion: str = Field(default="", description="Criterion that decides; empty if none.")
    ends_in_s: float | None = Field(
        default=None,
        description=(
            "Seconds until the session ends, including extensions; null if no criterion will end "
            "it."
        ),
    )
    warned: bool = Field(
        default=False,
        description="The session has been warned, and ends unless it is used or extended.",
    )
    extensions: int = Field(default=0, description="Number of extensions so far.")
    max_extensions: int
    max_extension_s: float = Field(
        description="Longest time by which one extension prolongs the session."
    )


class Extension(Model):
    """The body of ``POST /v1/sessions/{ref}/extend``."""

    EXAMPLE: ClassVar = {"seconds": 3600}

    seconds: Annotated[float, Field(gt=0, le=315_360_000)] | None = Field(
        default=None,
        description=(
            "The session does not end within this many seconds from now. null means the longest "
            "time allowed."
        ),
    )
