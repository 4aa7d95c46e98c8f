"""Outputs of steps: directories that a step leaves to later ones, and where these find them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from moorage.common.model.base import Model

MAX_OUTPUTS = 32  # of a step
MAX_INPUTS = 1000  # of a session, with each element of an array
FOLDER = "inputs"  # in which inputs are found by default


def check_folder(value: str) -> str:
    """A directory below the working directory. Raises ``ValueError``."""
    parts = value.split("/")
    if (
        len(value.encode()) > 1024
        or any(p in ("", ".", "..") for p in parts)
        or not value.isprintable()
    ):
        raise ValueError(
            f"{value[:80]!r} is no directory of the working directory: use a relative path such as "
            "models/best, of at most 1024 bytes, without empty parts, . and .."
        )

    return value


Folder = Annotated[str, AfterValidator(check_folder)]


class Input(Model):
    """Output of an earlier step, which must succeed."""

    step: Annotated[str, Field(max_length=63)]
    output: Folder | None = Field(
        default=None, description="May be left out if the step has one output."
    )
    path: Folder | None = Field(
        default=None,
        description="Where it is found, read-only, in the working directory; default: "
        "inputs/STEP/OUTPUT. Of "
        "an array, each element at PATH/INDEX.",
    )


def expand_input(value: Any) -> Any:
    """A bare ``STEP`` or ``STEP/OUTPUT``."""
    if not isinstance(value, str):
        return value
    step, slash, output = value.partition("/")
    return {"step": step} | ({"output": output} if slash else {})


def overlap(paths: Iterable[str]) -> tuple[str, str] | None:
    """Two paths of which one is, or contains, the other; None: there are none."""
    before: list[str] = []
    for path in sorted(paths, key=lambda one: one.split("/")):
        if before and (path == before[-1] or path.startswith(before[-1] + "/")):
            return before[-1], path
        before.append(path)
    return None
