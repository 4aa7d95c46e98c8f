"""REST models for changes to resource groups."""

from __future__ import annotations

from pydantic import Field

from moorage.common.model.spec import Model, Name


class GroupRename(Model):
    """The body of ``PATCH /v1/groups/{name}``."""

    name: Name = Field(description="New name. The former name becomes an alias.")
