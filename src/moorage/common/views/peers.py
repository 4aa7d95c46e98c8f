"""REST models for join tokens and peers, which are the agents and proxies that have joined."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from moorage.common.model.spec import Model, Name
from moorage.common.model.timestamps import Timestamp

PeerKind = Literal["agent", "proxy"]
RotationState = Literal["steady", "distributing", "reissuing"]
# The same grammar as for agent ids. It excludes colons, which separate the names in a certificate.
PeerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]


class JoinTokenSpec(Model):
    """The body of ``POST /v1/join-tokens``."""

    EXAMPLE: ClassVar = {"kind": "agent", "resource_group": "training"}

    kind: PeerKind = Field(
        default="agent", description="Kind of peer that may join with the token."
    )
    resource_group: Name | None = Field(
        default=None,
        description=(
            "Resource group of agents that join with the token; overrides their own setting."
        ),
    )
    uses: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=1, description="Number of peers that may join with the token."
    )
    expires_at: Timestamp | None = Field(default=None, description="Defaults to one hour from now.")


class JoinTokenView(BaseModel):
    """A join token without its secret."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    kind: PeerKind
    resource_group: str | None
    uses: int
    used: int
    expires_at: datetime
    created_at: datetime
    created_by: str


class NewJoinTokenView(JoinTokenView):
    """The only response with the secret. The manager stores only the public key that verifies
    it."""

    secret: str


class JoinRequest(Model):
    """The body of ``POST /v1/join``. It requires no API key, because the join token signs it."""

    EXAMPLE: ClassVar = {
        "kind": "agent",
        "name": "node-1",
        "csr": "-----BEGIN CERTIFICATE REQUEST-----\n...",
        "verifier": "0" * 64,
        "signature": "0" * 128,
    }

    kind: PeerKind
    name: PeerName
    csr: str = Field(
        max_length=10_000,
        description="A PKCS #10 request in PEM, for a key that the peer has generated.",
    )
    verifier: str = Field(pattern=r"^[0-9a-f]{64}$", description="The token's public key, in hex.")
    signature: str = Field(
        pattern=r"^[0-9a-f]{128}$", description="Ed25519 signature made with the token, in hex."
    )


class JoinReply(BaseModel):
    """Identity of a new peer, for the peer to store."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    kind: PeerKind
    name: str
    resource_group: str | None
    certificate: str = Field(description="The peer's certificate, in PEM.")
    authority: str = Field(description="Certificate of the CA for the links, in PEM.")
    other_authorities: list[str] = Field(
        default=[], description="Further CA certificates to trust during a rotation."
    )
    link: str = Field(
        description="Address of the gRPC link. Without a host, it is the host of the REST API."
    )
    other_links: list[str] = Field(
        default=[], description="Addresses of the gRPC links of the other managers."
    )
    now: datetime = Field(description="Current time by the manager's clock.")


class PeerView(BaseModel):
    """Agent or proxy that has joined. ``certificate_until``: expiry of its newest certificate."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    kind: PeerKind
    name: str
    resource_group: str | None
    joined_at: datetime
    certificate_until: datetime
    token: str | None = Field(
        description="Id of the join token that it used; null if that was deleted."
    )
    manager: str | None = Field(
        default=None,
        description="gRPC address of the manager that it is connected to; null if none.",
    )


class RotateCa(Model):
    """The body of ``POST /v1/ca/rotate``."""

    EXAMPLE: ClassVar = {}

    force: Literal["distributing", "reissuing"] | None = Field(
        default=None,
        description="End this state without waiting for the remaining peers; they must join again.",
    )


class PeerRef(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)

    kind: PeerKind
    name: str


class CaView(BaseModel):
    """The links' CA and its rotation."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    state: RotationState = Field(
        description="steady: one CA. distributing: peers learn to trust the next one. reissuing: "
        "the next one issues certificates, and peers renew theirs."
    )
    since: datetime | None = Field(
        description="Start of this state; null if the CA was never rotated."
    )
    issuer: str = Field(description="SHA-256 of the issuing CA's certificate, in hex.")
    other: str | None = Field(
        description="SHA-256 of the other trusted CA's certificate during a rotation."
    )
    waiting_for: list[PeerRef] = Field(description="Peers that the rotation waits for.")
    join_again: list[PeerRef] = Field(
        default=[], description="Peers that must join again, because the rotation was forced."
    )
