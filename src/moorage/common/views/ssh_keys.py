"""REST models for the public keys that users log in with over SSH."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from moorage.common.model.public_keys import MAX_LENGTH
from moorage.common.model.spec import Model, Name

# Namespace of signatures made with ``ssh-keygen -Y sign``. A text signed for another purpose proves
# nothing here.
SSH_KEY_NAMESPACE = "moorage"
_MAX_SIGNATURE = 16_384


class SshKeySpec(Model):
    """The body of ``POST /v1/ssh-keys``."""

    EXAMPLE: ClassVar = {
        "public_key": (
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHl5GJ2Rr4zTdsxvFN0Fh3tkRk5g1zF6vWj3WmMbjJxT pc"
        ),
        "challenge": "moorage ssh-key user=ann installation=… time=2026-01-01T00:00:00+00:00",
        "signature": "-----BEGIN SSH SIGNATURE-----\n...",
    }

    public_key: str = Field(
        min_length=1, max_length=MAX_LENGTH, description="One line, as in ~/.ssh/id_ed25519.pub."
    )
    name: Name | None = Field(
        default=None,
        description=(
            "Unique among the user's keys. Default: the comment, or else the type and a "
            "fingerprint."
        ),
    )
    challenge: Annotated[str, Field(max_length=1024)] | None = Field(
        default=None, description="Challenge from `GET /v1/ssh-keys/challenge`, as it was signed."
    )
    signature: Annotated[str, Field(max_length=_MAX_SIGNATURE)] | None = Field(
        default=None,
        description=(
            "Signature of the challenge with the private key, as written by `ssh-keygen -Y sign -n "
            "moorage`."
        ),
    )


class SshKeyChallenge(BaseModel):
    """Text that the holder of a private key signs to register its public key."""

    model_config = ConfigDict(frozen=True)

    challenge: str = Field(description="Text to sign: one line, without a line feed at its end.")
    namespace: str = Field(description="Namespace of the signature.")
    expires_at: datetime


class SshKeyView(BaseModel):
    """Public key of a user."""

    model_config = ConfigDict(frozen=True)

    name: str
    user: str
    fingerprint: str = Field(description="As `ssh-keygen -l` shows it.")
    public_key: str
    key: str | None = Field(
        default=None,
        description=(
            "API key that registered it. The public key has the rights of that key and ends with "
            "it."
        ),
    )
    project: str | None = Field(
        default=None, description="Project of that API key; null means all the user's projects."
    )
    created_at: datetime
    created_by: str = ""
    last_used_at: datetime | None = Field(
        default=None, description="Last login, with a resolution of one minute."
    )
    proved: bool = Field(
        default=False,
        description=(
            "Whether its user has proved possession of the private key. If false, it was "
            "registered by an earlier release, and anybody who proves possession may register it "
            "instead."
        ),
    )
