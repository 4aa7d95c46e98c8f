"""Settings of the manager about console sessions and single sign-on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field

from moorage.common.model.addresses import is_loopback
from moorage.common.model.oidc_rules import Rule


def _check_url(value: str) -> str:
    parts = urlsplit(value)
    is_local = parts.scheme == "http" and is_loopback(parts.hostname or "")
    if value and (
        not parts.hostname
        or not (parts.scheme == "https" or is_local)
        or parts.query
        or parts.fragment
    ):
        raise ValueError(
            f"{value!r} must be an https URL without a query; http is for loopback only"
        )

    return value


def _check_rule(value: str) -> str:
    Rule.parse(value)
    return value


HttpsUrl = Annotated[str, AfterValidator(_check_url)]


class ConsoleSettings(BaseModel):
    console_session_hours: Annotated[float, Field(gt=0, le=8760, allow_inf_nan=False)] = 12
    """Longest duration of a console session; then its user signs in again."""
    console_idle_minutes: Annotated[float, Field(ge=1, le=525_600, allow_inf_nan=False)] = 60
    """Time without an act of its user after which a console session ends. What an open page asks by
    itself does not count."""
    oidc_issuer: HttpsUrl = ""
    """Issuer of an OpenID Connect provider, such as https://id.example.com/realms/lab: its people
    may sign in to the console. Empty: none."""
    oidc_client_id: str = ""
    """Client id of this installation at the provider."""
    oidc_client_secret: str | None = Field(None, repr=False)
    """Client secret. None: a public client, which has PKCE only. Also
    ``oidc_client_secret_file``."""
    oidc_label: Annotated[str, Field(max_length=60)] = "Single sign-on"
    """Text of the console's button that leads to the provider."""
    oidc_redirect_url: HttpsUrl = ""
    """URL to which the provider leads people back, as registered there:
    https://HOST/v1/session/oidc/callback. Empty: made of the address in the browser, for a manager
    without a web server in front of it."""
    oidc_scopes: tuple[Annotated[str, Field(pattern=r"^[!-~]+$")], ...] = (
        "openid",
        "profile",
        "email",
    )
    """Scopes to ask for; the first is ``openid``."""
    oidc_groups_claim: str = "groups"
    """Claim with the groups of a person."""
    oidc_rules: tuple[Annotated[str, AfterValidator(_check_rule)], ...] = ()
    """Who gets which role: ``group:NAME = PROJECT:ROLE``, ``domain:example.com = PROJECT:ROLE``
    (verified e-mail addresses), ``group:NAME = auditor`` or ``= admin``. Whoever a rule matches
    becomes a user at the first sign-in. None: only people whom an administrator has linked with a
    user may sign in."""
    oidc_ca: Path | None = None
    """Certificates of authorities in PEM that are trusted for the provider, beside those of the
    system."""
