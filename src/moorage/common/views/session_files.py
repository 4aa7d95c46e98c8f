"""REST models for the files of running sessions."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from moorage.common.views.resources import View


class FileView(View):
    """A name in a directory of a session."""

    name: str
    kind: Literal["file", "directory", "other"] = Field(
        description="What it is; for a link, what the link leads to."
    )
    link: bool
    size: int | None = Field(
        default=None, description="Size in bytes; null if the session cannot report it."
    )
    changed_at: datetime | None = Field(
        default=None, description="When its content last changed; null as for `size`."
    )


class DirectoryView(View):
    """A directory of a session: its path there, and its first names."""

    path: str
    files: list[FileView]
    complete: bool = Field(description="Whether `files` has all names of the directory.")


class StoredFile(View):
    """A file that was stored in a session."""

    path: str
    size: int = Field(description="Size in bytes.")
