"""REST models of users, projects and their members."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from moorage.common.model.reuse import ReusePolicy
from moorage.common.model.roles import MemberRole, PlatformRole
from moorage.common.model.serving import Rate
from moorage.common.model.spec import Model, Name
from moorage.common.views.resources import View

Email = Annotated[
    str, Field(pattern=r"^([^\s@\x00-\x1f\x7f]+@[^\s@\x00-\x1f\x7f]+)?$", max_length=254)
]
Status = Literal["active", "disabled"]


class UserPatch(Model):
    """The body of ``PATCH /v1/users/{name}``; its fields replace the stored ones."""

    EXAMPLE: ClassVar = {"email": "ann@example.com"}

    email: Email = ""
    status: Status = Field(default="active", description="Keys of a disabled user are refused.")
    platform_role: PlatformRole | None = Field(
        default=None,
        description=(
            "admin: all rights. auditor: reads everything except logs and secrets. null means "
            "neither."
        ),
    )


class UserSpec(UserPatch):
    """The body of ``POST /v1/users``."""

    EXAMPLE: ClassVar = {"name": "ann", "email": "ann@example.com"}

    name: Name


class UserView(View):
    id: str
    name: str
    email: str
    status: Status
    platform_role: PlatformRole | None
    projects: dict[str, MemberRole] = Field(
        default={}, description="The user's role in each of its projects."
    )
    subject: str | None = Field(
        default=None, description="The user's subject at the OpenID provider; null if not linked."
    )
    version: int = Field(default=0, description="Differs after each change; the ETag.")
    created_at: datetime
    created_by: str = ""
    archived_at: datetime | None = Field(
        default=None,
        description="When the user was archived; null if it is not. Its status is disabled.",
    )
    archived_by: str = ""


class UserSubject(Model):
    """The body of ``PUT /v1/users/{name}/subject``."""

    EXAMPLE: ClassVar = {"subject": "00u1a2b3c4"}

    subject: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]


class ProjectPatch(Model):
    """The body of ``PATCH /v1/projects/{name}``; its fields replace the stored ones."""

    EXAMPLE: ClassVar = {"max_priority": 50}

    status: Status = Field(default="active", description="Keys of a disabled project are refused.")
    max_priority: Annotated[int, Field(ge=0, le=100)] | None = Field(
        default=None, description="Highest priority of its sessions and endpoints; null means any."
    )
    resource_groups: Annotated[list[Name], Field(max_length=1000)] | None = Field(
        default=None, description="Resource groups that the project may name; null means all."
    )
    requests_per_minute: Rate | None = Field(
        default=None,
        description="Limits on model requests with all its keys together; null means no limit.",
    )
    tokens_per_minute: Rate | None = None
    concurrent_requests: Rate | None = None
    reuse: ReusePolicy | None = Field(
        default=None,
        description=(
            "Whether the result of an equal batch session is reused if a session does not specify "
            "`reuse`; null means as the resource group specifies."
        ),
    )


class ProjectSpec(ProjectPatch):
    """The body of ``POST /v1/projects``."""

    EXAMPLE: ClassVar = {"name": "vision", "resource_groups": ["training"]}

    name: Name


class ProjectView(View):
    id: str
    name: str
    status: Status
    max_priority: int | None = None
    resource_groups: list[str] | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None
    reuse: ReusePolicy | None = None
    members: int = Field(description="Number of members.")
    version: int = Field(default=0, description="Differs after each change; the ETag.")
    created_at: datetime
    created_by: str = ""
    archived_at: datetime | None = Field(
        default=None,
        description="When the project was archived; null if it is not. Its status is disabled.",
    )
    archived_by: str = ""


class Membership(Model):
    """The body of ``PUT /v1/projects/{project}/members/{user}``."""

    EXAMPLE: ClassVar = {"role": "member"}

    role: MemberRole


class MemberView(View):
    project: str
    user: str
    role: MemberRole
    changed_at: datetime
    changed_by: str = ""
