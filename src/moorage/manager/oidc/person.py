"""Person who has signed in at the OpenID provider, or is refused. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.model.errors import Forbidden
from moorage.common.model.oidc_rules import Grants


class SignInRefused(Forbidden):
    """The provider has not let the person in, or nothing allows it here."""

    code = "sign-in-refused"


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who has signed in at the provider. ``names``: what a new user could be called.
    ``email``: as verified by the provider."""

    issuer: str
    subject: str
    names: tuple[str, ...]
    email: str
    grants: Grants
