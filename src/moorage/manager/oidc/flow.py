"""One attempt to sign in at the provider: the data sent there, and the data that must come back.
Pure.

All of it is derived from one secret, which the browser keeps in a cookie. Nothing is stored before
a user has signed in, so nobody can fill a table with attempts.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from urllib.parse import urlencode

COOKIE = "moorage-oidc"
SECURE_COOKIE = f"__Host-{COOKIE}"
# Time that a person has to sign in at the provider.
LIFETIME_S = 900


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    """``state`` binds the answer to this browser, ``nonce`` the ID token to this attempt,
    ``verifier`` the code to this manager."""

    state: str
    nonce: str
    verifier: str

    @staticmethod
    def of(secret: str) -> SignInAttempt:
        """The attempt with this secret in its cookie."""
        return SignInAttempt(*(_derived(secret, name) for name in ("state", "nonce", "verifier")))

    def has_state(self, state: str) -> bool:
        return hmac.compare_digest(state.encode(), self.state.encode())

    def url(
        self, endpoint: str, *, client_id: str, redirect_url: str, scopes: tuple[str, ...]
    ) -> str:
        """URL to which the browser is redirected."""
        challenge = hashlib.sha256(self.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": redirect_url,
            "scope": " ".join(scopes),
            "state": self.state,
            "nonce": self.nonce,
            "code_challenge": _encoded(challenge),
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"


def _derived(secret: str, name: str) -> str:
    return _encoded(hmac.new(secret.encode(), f"oidc:{name}".encode(), hashlib.sha256).digest())


def _encoded(digest: bytes) -> str:
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
