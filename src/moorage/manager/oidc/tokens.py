"""Validation of ID tokens. Pure.

joserfc verifies the signature and reads the claims; this module decides which algorithms and keys
are accepted, and which claims are required.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from joserfc import jwt
from joserfc.errors import (
    BadSignatureError,
    ExpiredTokenError,
    InvalidKeyIdError,
    JoseError,
    UnsupportedAlgorithmError,
)
from joserfc.jwk import JWKRegistry, Key, KeySet

# Algorithms that need a private key. With HMAC, anybody who knows the public key could sign.
ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
LEEWAY_S = 60
_MAX_BYTES = 64 * 1024


class TokenRefused(Exception):
    """The ID token does not prove who has signed in. ``is_unknown_key``: the provider may have new
    keys."""

    def __init__(self, reason: str, *, is_unknown_key: bool = False) -> None:
        super().__init__(reason)
        self.is_unknown_key = is_unknown_key


def import_keys(document: Mapping[str, Any]) -> KeySet:
    """The signature keys of a JWK set; unknown kinds are omitted."""
    found: list[Key] = []
    given = document.get("keys")
    for entry in given if isinstance(given, list) else ():
        if (
            not isinstance(entry, dict)
            or entry.get("use", "sig") != "sig"
            or entry.get("kty") == "oct"
        ):
            continue

        try:
            found.append(JWKRegistry.import_key(entry))
        except (JoseError, ValueError, KeyError, TypeError):
            continue

    return KeySet(found)


def check_id_token(
    token: str, keys: KeySet, *, issuer: str, client_id: str, nonce: str, now: float
) -> dict[str, Any]:
    """Check the claims of an ID token from ``issuer`` for ``client_id`` in the attempt with
    ``nonce``.

    ``now``: Unix seconds. Raises ``TokenRefused``."""
    if len(token) > _MAX_BYTES:
        raise TokenRefused(f"the ID token has {len(token)} bytes")

    try:
        decoded = jwt.decode(token, keys, algorithms=ALGORITHMS)
        claims = dict(decoded.claims)
        jwt.JWTClaimsRegistry(
            now=int(now),
            leeway=LEEWAY_S,
            iss={"essential": True, "value": issuer},
            sub={"essential": True},
            aud={"essential": True, "value": client_id},
            exp={"essential": True},
            iat={"essential": True},
        ).validate(claims)
    except InvalidKeyIdError:
        raise TokenRefused(
            "the ID token is signed with an unknown key", is_unknown_key=True
        ) from None
    except UnsupportedAlgorithmError:
        raise TokenRefused(
            f"the ID token is not signed with one of {', '.join(ALGORITHMS)}"
        ) from None
    except BadSignatureError:
        raise TokenRefused("the signature of the ID token is wrong", is_unknown_key=True) from None
    except ExpiredTokenError:
        raise TokenRefused(
            "the ID token has expired: compare the clocks of the provider and the manager"
        ) from None
    except (JoseError, ValueError, KeyError, TypeError) as error:
        raise TokenRefused(f"the ID token is invalid: {error}") from None

    if not claims["sub"]:
        raise TokenRefused("the ID token has no subject")

    audience = claims["aud"]
    several = isinstance(audience, list) and len(audience) > 1
    if claims.get("azp", None if several else client_id) != client_id:
        raise TokenRefused("the ID token was issued for another client")
    if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        raise TokenRefused("the ID token belongs to another sign-in attempt")

    return claims
