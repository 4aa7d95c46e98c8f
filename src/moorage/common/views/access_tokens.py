"""REST models for apps (sessions' service ports) and access tokens to them.

The secret of an access token appears only once, in the response that creates it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from moorage.common.model.service_ports import Protocol
from moorage.common.model.spec import Model

WORKING_DAY_S = 28_800.0
MONTH_S = 2_592_000.0


class AppView(BaseModel):
    """A session's service port. ``ready``: the session is running, so proxies have a route to
    it."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    name: str
    protocol: Protocol
    base_path: bool = False
    ready: bool
    path: str = Field(
        description="Path of the app below a proxy's address, without a trailing slash."
    )


class AccessTokenSpec(Model):
    """The body of ``POST /v1/sessions/{ref}/apps/{app}/access-tokens``."""

    EXAMPLE: ClassVar = {"lifetime_s": 3600}

    lifetime_s: Annotated[float, Field(ge=10, le=MONTH_S)] = Field(
        default=WORKING_DAY_S, description="How long the token is valid, in seconds."
    )


class AccessTokenView(BaseModel):
    """An access token without its secret. Its bearer can reach one app of one session."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    session_id: str
    app: str
    prefix: str = Field(description="First characters of the secret, to tell tokens apart.")
    created_at: datetime
    created_by: str
    expires_at: datetime


class NewAccessTokenView(AccessTokenView):
    """The only response with the secret: the manager stores only its hash."""

    access_token: str = Field(
        description=(
            "The secret: sent once as `?access_token=` (browsers get a cookie), or as a bearer "
            "token."
        )
    )
    protocol: Protocol
    path: str
