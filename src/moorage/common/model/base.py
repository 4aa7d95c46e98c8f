"""Base of request models, and common field types."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/:-]{0,126}[A-Za-z0-9])?")


def suggested_name(text: str) -> str:
    """Derive a valid name from ``text``: accents are removed, and other characters become -."""
    letters = (
        character
        for character in unicodedata.normalize("NFKD", text[:512])
        if not unicodedata.combining(character)
    )
    name = re.sub(r"[^A-Za-z0-9._/:-]+", "-", "".join(letters))[:128].strip("._/:-")
    return name if re.search("[A-Za-z]", name) else f"job-{name or 1}"


def _check_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(
            "a name consists of 1 to 128 characters: a to z, digits and . _ - / : with a letter "
            f"or digit at both ends, for example {suggested_name(value)!r}"
        )
    return value


Name = Annotated[str, AfterValidator(_check_name)]
# Ten years. Larger values are mistakes and would overflow timestamps.
Seconds = Annotated[float, Field(gt=0, le=315_360_000)]


class Model(BaseModel):
    """Base of request models. Unknown fields are errors; values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    # Example for the OpenAPI document, set by models that are the body of a request.
    EXAMPLE: ClassVar[Mapping[str, Any]]
