"""Base of request models, and types of fields that they share."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/:-]{0,126}[A-Za-z0-9])?")


def _check_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(
            "a name has 1 to 128 letters, digits or characters of . _ - / : and starts and ends with a "
            "letter or digit"
        )
    return value


Name = Annotated[str, AfterValidator(_check_name)]
# Ten years; larger values are mistakes and overflow timestamps.
Seconds = Annotated[float, Field(gt=0, le=315_360_000)]


class Model(BaseModel):
    """Unknown fields are errors, values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
