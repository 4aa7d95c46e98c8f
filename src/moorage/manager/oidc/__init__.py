"""Single sign-on by OpenID Connect: authorization code with PKCE, against one provider. The client
and the token validation are imported only where a provider is configured, because most managers
have none."""

from moorage.manager.oidc.flow import SignInAttempt
from moorage.manager.oidc.person import Person, SignInRefused

__all__ = ["Person", "SignInAttempt", "SignInRefused"]
