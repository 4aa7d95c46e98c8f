"""Who may speak on the links: join tokens, and the peers that joined by them, as asked for and shown."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from moorage.common.model.spec import Model, Name

PeerKind = Literal["agent", "proxy"]
# As agent ids are; without a colon, which parts the names in a certificate.
PeerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]


class JoinTokenSpec(Model):
    """The body of ``POST /v1/join-tokens``."""

    kind: PeerKind = Field("agent", description="What may join by it.")
    resource_group: Name | None = Field(
        None, description="Agents that join by it belong to this group, whatever their settings say."
    )
    uses: Annotated[int, Field(ge=1, le=100_000)] = Field(1, description="So many may join by it.")
    expires_at: AwareDatetime | None = Field(None, description="Left out, an hour from now.")


class JoinTokenView(BaseModel):
    """A join token without its secret."""

    model_config = ConfigDict(frozen=True)

    id: str
    kind: PeerKind
    resource_group: str | None
    uses: int
    used: int
    expires_at: datetime
    created_at: datetime
    created_by: str


class NewJoinTokenView(JoinTokenView):
    """The one answer that has the secret: only what checks it is kept."""

    secret: str


class JoinRequest(Model):
    """The body of ``POST /v1/join``. It needs no API key: it is signed with what the token is."""

    kind: PeerKind
    name: PeerName
    csr: str = Field(max_length=10_000, description="A PKCS #10 request in PEM, for a key made there.")
    verifier: str = Field(pattern=r"^[0-9a-f]{64}$", description="The token's public key, in hex.")
    signature: str = Field(pattern=r"^[0-9a-f]{128}$", description="Ed25519, by the token, in hex.")


class JoinReply(BaseModel):
    """What a new peer keeps."""

    model_config = ConfigDict(frozen=True)

    id: str
    kind: PeerKind
    name: str
    resource_group: str | None
    certificate: str = Field(description="Its certificate, in PEM.")
    authority: str = Field(description="The certificate of the CA of the links, in PEM.")
    link: str = Field(
        description="Address of the gRPC link; without a host where that is the one that was asked."
    )
    now: datetime = Field(description="The manager's clock.")


class PeerView(BaseModel):
    """Something that joined. ``certificate_until``: its newest certificate is good until then."""

    model_config = ConfigDict(frozen=True)

    id: str
    kind: PeerKind
    name: str
    resource_group: str | None
    joined_at: datetime
    certificate_until: datetime
    token: str | None = Field(description="The id of the join token; null where that is gone.")
