"""REST models for console sessions: a user signed in with a password, a key or single sign-on."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from moorage.common.model.roles import MemberRole, PlatformRole, Role
from moorage.common.model.spec import Model, Name
from moorage.common.views.resources import View

Password = Annotated[str, Field(min_length=8, max_length=1024, repr=False)]


class SignIn(Model):
    """The body of ``POST /v1/session``: a user name with a password, or a key."""

    EXAMPLE: ClassVar = {"user": "ann", "password": "correct horse battery staple"}

    user: Name | None = None
    password: Annotated[str, Field(min_length=1, max_length=1024)] | None = Field(
        default=None, repr=False
    )
    key: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(
        default=None,
        repr=False,
        description="API key. The console session has the key's rights.",
    )

    @model_validator(mode="after")
    def _check_kind(self) -> SignIn:
        with_password = (self.user is not None, self.password is not None)
        if with_password not in ((True, True), (False, False)) or with_password[0] == (
            self.key is not None
        ):
            raise ValueError("send user and password, or key alone")
        return self


class SwitchProject(Model):
    """The body of ``PUT /v1/session``."""

    EXAMPLE: ClassVar = {"project": "vision"}

    project: Name


class NewPassword(Model):
    """The body of ``PUT /v1/users/{name}/password``."""

    EXAMPLE: ClassVar = {"password": "correct horse battery staple"}

    password: Password


class PasswordChange(NewPassword):
    """The body of ``PUT /v1/session/password``."""

    EXAMPLE: ClassVar = {"current": "correct horse", "password": "correct horse battery staple"}

    current: Annotated[str, Field(max_length=1024, repr=False)]


class WhoAmI(View):
    """The caller, whether it has a key or a console session."""

    kind: Literal["key", "console"]
    user: str
    project: str
    role: Role
    platform_role: PlatformRole | None = None
    projects: dict[str, MemberRole] = Field(
        default={}, description="The user's role in each of its projects."
    )
    key: str = Field(
        default="", description="Name of the key; empty for a user who signed in without one."
    )
    csrf_token: str = Field(
        default="", description="For console sessions: sent as X-CSRF-Token with each write."
    )
    expires_at: datetime | None = Field(
        default=None, description="Time at which the console session ends, even if it is used."
    )
    idle_s: int | None = Field(
        default=None, description="Seconds without a request after which a console session ends."
    )
    now: datetime = Field(description="Current time of the manager.")


class SignedOut(View):
    ended: int = Field(description="Number of console sessions that were ended.")
    continue_at: str = Field(
        default="",
        description="URL at which the browser signs out of the OpenID provider; empty if none.",
    )


class SignInWays(View):
    oidc: str = Field(
        description=(
            "Label of the button for single sign-on at /v1/session/oidc; empty means no button."
        )
    )
