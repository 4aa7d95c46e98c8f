"""Single sign-on by OpenID Connect: authorization code with PKCE, against one provider."""

from moorage.manager.oidc.flow import Attempt
from moorage.manager.oidc.provider import OidcClient, Person, SignInRefused
from moorage.manager.oidc.tokens import TokenRefused, check_id_token, import_keys

__all__ = [
    "Attempt",
    "OidcClient",
    "Person",
    "SignInRefused",
    "TokenRefused",
    "check_id_token",
    "import_keys",
]
