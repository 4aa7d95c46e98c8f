"""REST models of API keys. A secret appears only once, in the response that creates it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from moorage.common.model.roles import KeyScope, Role
from moorage.common.model.run_limits import SlotLimits
from moorage.common.model.serving import BodySize, Rate
from moorage.common.model.spec import Model, Name, Seconds
from moorage.common.model.timestamps import Timestamp

Names = Annotated[list[Name], Field(max_length=1000)]


class KeyLimits(Model):
    """Restrictions on a key within the rights of its role; null means unrestricted.

    ``PATCH /v1/keys/{name}`` replaces the fields that its body contains."""

    EXAMPLE: ClassVar = {"max_priority": 50, "requests_per_minute": 600}

    scopes: Annotated[list[KeyScope], Field(max_length=4)] | None = Field(
        default=None,
        description="What the key may be used for. null means everything that its role allows.",
    )
    models: Names | None = Field(
        default=None,
        description="Models that the key may send requests to. null means all that it sees.",
    )
    resource_groups: Names | None = Field(
        default=None, description="Resource groups that the key may name. null means all."
    )
    max_priority: Annotated[int, Field(ge=0, le=100)] | None = Field(
        default=None, description="Highest priority of sessions and endpoints that the key creates."
    )
    requests_per_minute: Rate | None = None
    tokens_per_minute: Rate | None = None
    concurrent_requests: Rate | None = None
    max_body_bytes: BodySize | None = Field(
        default=None,
        description=(
            "Largest body of a request to a model, in bytes. The smallest limit applies: this one, "
            "the endpoint's `routing.max_body_bytes`, and the setting `proxy.max_body_bytes`."
        ),
    )
    max_time_s: Seconds | None = Field(
        default=None,
        description=(
            "Longest time limit of batch and interactive sessions that the key creates, in "
            "seconds; their default if none is specified."
        ),
    )
    max_per_session: SlotLimits | None = Field(
        default=None,
        description="Most that one session that the key creates may request, by slot.",
    )
    expires_at: Timestamp | None = Field(
        default=None, description="By default, it is valid until it is revoked."
    )


class KeySpec(KeyLimits):
    """The body of ``POST /v1/keys``."""

    EXAMPLE: ClassVar = {"name": "ci", "user": "ann", "project": "vision", "role": "member"}

    name: Name = Field(
        description="Unique among keys that are not revoked. Histories show it as `key:NAME`."
    )
    user: Name | None = Field(
        default=None,
        description=(
            "Owner of everything created with the key. Default: the key's name for "
            "administrators, otherwise the caller."
        ),
    )
    project: Name | None = Field(
        default=None,
        description="Project of everything created with the key. Defaults to the caller's.",
    )
    role: Role | None = Field(
        default=None,
        description=(
            "At most the user's role. auditor and admin apply to the platform. Default: the "
            "user's role in the project, or member."
        ),
    )

    create_missing: bool = Field(
        default=False,
        description=(
            "Create the named project and user if they do not exist. For administrators. Without "
            "it, unknown names are refused; a user of the key's own name is always created."
        ),
    )


class KeyView(BaseModel):
    """A key without its secret."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    name: str
    prefix: str = Field(description="First characters of the secret, to tell keys apart.")
    role: Role
    user: str
    project: str
    scopes: list[KeyScope] | None = None
    models: list[str] | None = None
    resource_groups: list[str] | None = None
    max_priority: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None
    max_body_bytes: int | None = None
    max_time_s: float | None = None
    max_per_session: dict[str, str | int | float] | None = None
    version: int = Field(default=0, description="Differs after each change; the ETag.")
    created_at: datetime
    created_by: str = ""
    expires_at: datetime | None = None
    last_used_at: datetime | None = Field(
        default=None,
        description=(
            "Last use of the management API, with a resolution of one minute. Requests through "
            "proxies do not count."
        ),
    )
    previous_until: datetime | None = Field(
        default=None,
        description="After a rotation, the time until which the previous secret is valid.",
    )


class Rotation(Model):
    """The body of ``POST /v1/keys/{name}/rotate``."""

    EXAMPLE: ClassVar = {"grace_s": 3600}

    grace_s: Annotated[int, Field(ge=0, le=2_592_000)] = Field(
        default=0, description="How long the previous secret stays valid, in seconds."
    )


class NewKeyView(KeyView):
    """The only response with the secret: the manager stores only its hash."""

    secret: str
