"""A person who has signed in at the OpenID provider, or was refused. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.model.errors import Forbidden
from moorage.common.model.oidc_rules import Grants


class SignInRefused(Forbidden):
    """The provider has refused the sign-in, or no rule of this manager permits it."""

    code = "sign-in-refused"


@dataclass(frozen=True, slots=True)
class Person:
    """A person who has signed in at the provider. ``names``: candidates for the name of a new user.
    ``email``: as verified by the provider."""

    issuer: str
    subject: str
    names: tuple[str, ...]
    email: str
    grants: Grants
