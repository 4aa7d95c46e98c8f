"""REST models of changes of resource groups."""

from __future__ import annotations

from pydantic import Field

from moorage.common.model.spec import Model, Name


class GroupRename(Model):
    """The body of ``PATCH /v1/groups/{name}``."""

    name: Name = Field(description="The new name. The former one becomes an alias.")
