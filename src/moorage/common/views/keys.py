"""REST models of API keys. A secret appears once, in the answer that creates it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from moorage.common.model.spec import Model, Name

Role = Literal["admin", "member"]


class KeySpec(Model):
    """The body of ``POST /v1/keys``."""

    name: Name = Field(description="Unique among keys that are not revoked. Histories show it as `key:NAME`.")
    user: Name | None = Field(
        None, description="Owner of everything created with the key. Default: the key's name."
    )
    project: Name = Field(
        "default",
        description="Project of everything created with the key.",
    )
    role: Role = Field("member", description="An admin also administers groups, quotas, keys and agents.")
    expires_at: AwareDatetime | None = Field(None, description="Default: valid until it is revoked.")


class KeyView(BaseModel):
    """A key without its secret."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    name: str
    prefix: str = Field(description="First characters of the secret, to tell keys apart.")
    role: Role
    user: str
    project: str
    created_at: datetime
    created_by: str = ""
    expires_at: datetime | None = None
    last_used_at: datetime | None = Field(
        None,
        description="Last use of the management API, to the minute. Requests through proxies do not count.",
    )


class NewKeyView(KeyView):
    """The only answer with the secret: the manager keeps only its hash."""

    secret: str
