"""Step outputs: directories that a step leaves for later steps, and where the later steps find
them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from moorage.common.model.base import Model

MAX_OUTPUTS = 32  # outputs of a step
MAX_INPUTS = 1000  # inputs of a session, counting each array element
FOLDER = "inputs"  # default directory for inputs


def check_folder(value: str) -> str:
    """Check a directory below the working directory. Raises ``ValueError``."""
    parts = value.split("/")
    if (
        len(value.encode()) > 1024
        or any(p in ("", ".", "..") for p in parts)
        or not value.isprintable()
    ):
        raise ValueError(
            f"{value[:80]!r} is not a valid directory: use a path relative to the working "
            "directory, such as models/best, of at most 1024 bytes, without empty parts, . and .."
        )

    return value


Folder = Annotated[str, AfterValidator(check_folder)]


class Input(Model):
    """Output of an earlier step, which must succeed."""

    step: Annotated[str, Field(max_length=63)]
    output: Folder | None = Field(
        default=None, description="May be omitted if the step has one output."
    )
    path: Folder | None = Field(
        default=None,
        description=(
            "Where the output is mounted read-only, relative to the working directory; default: "
            "inputs/STEP/OUTPUT. Elements of an array are at PATH/INDEX."
        ),
    )


def expand_input(value: Any) -> Any:
    """Expand a bare ``STEP`` or ``STEP/OUTPUT``."""
    if not isinstance(value, str):
        return value
    step, slash, output = value.partition("/")
    return {"step": step} | ({"output": output} if slash else {})


def overlap(paths: Iterable[str]) -> tuple[str, str] | None:
    """Find two paths where one equals or contains the other; None if there are none."""
    before: list[str] = []
    for path in sorted(paths, key=lambda path: path.split("/")):
        if before and (path == before[-1] or path.startswith(before[-1] + "/")):
            return before[-1], path
        before.append(path)
    return None
