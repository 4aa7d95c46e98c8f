"""API keys as they are asked for and shown. A secret is shown once, in the answer that makes it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from moorage.common.model.spec import Model, Name

Role = Literal["admin", "member"]


class KeySpec(Model):
    """The body of ``POST /v1/keys``."""

    name: Name = Field(
        description="Of the key, unique among those that are not revoked; in histories `key:NAME`."
    )
    user: Name | None = Field(
        None, description="Whose everything is that is made with it; left out, the name of the key."
    )
    project: Name = Field("default", description="In which all that is; sessions depend only on their own's.")
    role: Role = Field("member", description="An admin also changes groups, quotas and keys.")
    expires_at: AwareDatetime | None = Field(None, description="Left out, it is valid until it is revoked.")


class KeyView(BaseModel):
    """A key without its secret."""

    model_config = ConfigDict(frozen=True)

    id: str
    name: str
    prefix: str = Field(description="How the secret begins, to tell keys apart.")
    role: Role
    user: str
    project: str
    created_at: datetime
    created_by: str = ""
    expires_at: datetime | None = None
    last_used_at: datetime | None = Field(
        None, description="By the management API, to the minute; what proxies let in is not counted."
    )


class NewKeyView(KeyView):
    """The one answer that has the secret: only its hash is kept."""

    secret: str
