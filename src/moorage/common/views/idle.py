"""REST models of idle criteria."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from moorage.common.model.spec import Model
from moorage.common.views.resources import View


class CriterionView(View):
    name: str = Field(description="traffic, utilization or lifetime.")
    remaining_s: float | None = Field(
        description="Seconds until it is met; 0 or less: it is. null: never, or not observed now."
    )


class IdleView(View):
    """When an interactive session ends because nobody uses it, as the manager saw last."""

    session_id: str
    criteria: list[CriterionView]
    end_when: str = Field(
        description="any: the first criterion that is met ends it. all: the last one."
    )
    criterion: str = Field(default="", description="The criterion that decides; empty: none does.")
    ends_in_s: float | None = Field(
        default=None,
        description="Seconds until it ends, extensions included; null: nothing ends it.",
    )
    warned: bool = Field(
        default=False, description="It was warned: it ends unless it is used or extended."
    )
    extensions: int = Field(default=0, description="How often it was extended.")
    max_extensions: int
    max_extension_s: float = Field(description="The longest that an extension keeps it.")


class Extension(Model):
    """The body of ``POST /v1/sessions/{ref}/extend``."""

    seconds: Annotated[float, Field(gt=0, le=315_360_000)] | None = Field(
        default=None,
        description="It does not end before so long from now. null: as long as is allowed.",
    )
