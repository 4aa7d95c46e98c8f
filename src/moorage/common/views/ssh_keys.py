"""REST models of the public keys by which users log in over SSH."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from moorage.common.model.public_keys import MAX_LENGTH
from moorage.common.model.spec import Model, Name


class SshKeySpec(Model):
    """The body of ``POST /v1/ssh-keys``."""

    public_key: str = Field(
        min_length=1, max_length=MAX_LENGTH, description="One line, as in ~/.ssh/id_ed25519.pub."
    )
    name: Name | None = Field(
        default=None,
        description="Unique among the user's. Default: the comment, else the type and a fingerprint.",
    )


class SshKeyView(BaseModel):
    """A public key of a user."""

    model_config = ConfigDict(frozen=True)

    name: str
    user: str
    fingerprint: str = Field(description="As `ssh-keygen -l` shows it.")
    public_key: str
    key: str | None = Field(
        default=None, description="The API key that registered it, as which it acts and with which it ends."
    )
    project: str | None = Field(default=None, description="Of that API key; null: all projects of the user.")
    created_at: datetime
    created_by: str = ""
    last_used_at: datetime | None = Field(default=None, description="Last login, to the minute.")
