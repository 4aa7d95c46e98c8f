"""REST models for changes to resource groups."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from moorage.common.model.spec import Model, Name


class GroupRename(Model):
    """The body of ``PATCH /v1/groups/{name}``."""

    EXAMPLE: ClassVar = {"name": "research"}

    name: Name = Field(description="New name. The former name becomes an alias.")
