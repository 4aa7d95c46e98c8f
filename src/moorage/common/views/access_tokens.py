"""Apps (the service ports of a session) and access tokens to them, as they are asked for and shown. The
access token
itself is shown once, in the answer that makes it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from moorage.common.model.service_ports import Protocol
from moorage.common.model.spec import Model

WORKING_DAY_S, MONTH_S = 28_800.0, 2_592_000.0


class AppView(BaseModel):
    """One service port of a session. ``ready``: a proxy that has heard of it leads there."""

    model_config = ConfigDict(frozen=True)

    name: str
    protocol: Protocol
    base_path: bool = False
    ready: bool
    path: str = Field(description="Of a proxy's address, where the app is; no slash at its end.")


class AccessTokenSpec(Model):
    """The body of ``POST /v1/sessions/{ref}/apps/{app}/access-tokens``."""

    lifetime_s: Annotated[float, Field(ge=10, le=MONTH_S)] = Field(
        WORKING_DAY_S, description="It opens the app for so many seconds."
    )


class AccessTokenView(BaseModel):
    """An access token without its secret: whoever shows it reaches one app of one session."""

    model_config = ConfigDict(frozen=True)

    id: str
    session_id: str
    app: str
    prefix: str = Field(description="How it begins, to tell access tokens apart.")
    created_at: datetime
    created_by: str
    expires_at: datetime


class NewAccessTokenView(AccessTokenView):
    """The one answer that has the access token: only its hash is kept."""

    access_token: str = Field(
        description="Send it as `?access_token=` once (a browser gets a cookie for it), or as a bearer token."
    )
    protocol: Protocol
    path: str
