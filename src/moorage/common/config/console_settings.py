"""Settings of the manager for console sessions and single sign-on."""

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
            f"{value!r} must be an https URL without a query; http is allowed for loopback only"
        )

    return value


def _check_rule(value: str) -> str:
    Rule.parse(value)
    return value


HttpsUrl = Annotated[str, AfterValidator(_check_url)]


class ConsoleSettings(BaseModel):
    console_session_hours: Annotated[float, Field(gt=0, le=8760, allow_inf_nan=False)] = 12
    """Longest duration of a console session; after that, its user must sign in again."""
    console_idle_minutes: Annotated[float, Field(ge=1, le=525_600, allow_inf_nan=False)] = 60
    """Time without user activity after which a console session ends. Requests that an open page
    sends by itself do not count."""
    oidc_issuer: HttpsUrl = ""
    """Issuer of an OpenID Connect provider whose users may sign in to the console, such as
    https://id.example.com/realms/lab. Empty means none."""
    oidc_client_id: str = ""
    """This installation's client id at the provider."""
    oidc_client_secret: str | None = Field(None, repr=False)
    """Client secret. None means a public client, which uses only PKCE. Also
    ``oidc_client_secret_file``."""
    oidc_label: Annotated[str, Field(max_length=60)] = "Single sign-on"
    """Label of the console's sign-in button for the provider."""
    oidc_redirect_url: HttpsUrl = ""
    """Redirect URL as registered at the provider: https://HOST/v1/session/oidc/callback. If empty,
    it is derived from the address in the browser, which works for a manager without a web server in
    front of it."""
    oidc_scopes: tuple[Annotated[str, Field(pattern=r"^[!-~]+$")], ...] = (
        "openid",
        "profile",
        "email",
    )
    """Scopes to request; the first is ``openid``."""
    oidc_groups_claim: str = "groups"
    """Claim that lists a user's groups."""
    oidc_rules: tuple[Annotated[str, AfterValidator(_check_rule)], ...] = ()
    """Rules that assign roles: ``group:NAME = PROJECT:ROLE``, ``domain:example.com = PROJECT:ROLE``
    (verified e-mail addresses), ``group:NAME = auditor`` or ``= admin``. Anybody who matches a rule
    becomes a user at the first sign-in. Without rules, only people whom an administrator has linked
    to a user may sign in."""
    oidc_ca: Path | None = None
    """CA certificates in PEM that are trusted for the provider, in addition to the system's."""
