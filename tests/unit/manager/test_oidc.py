"""Single sign-on: ID tokens that are refused, rules, and what a sign-in attempt sends to the
provider."""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey
from pydantic import ValidationError

from moorage.common.config.settings import ManagerSettings
from moorage.common.model.oidc_rules import Grants, Rule, grants
from moorage.manager.oidc import SignInAttempt
from moorage.manager.oidc.tokens import TokenRefused, check_id_token, import_keys

NOW = 1_800_000_000.0
ISSUER = "https://id.example.com"
CLIENT = "moorage"
ATTEMPT = SignInAttempt.of("mg-secret")
KEY = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
CURVE = ECKey.generate_key("P-256", {"kid": "two"})
OTHER = RSAKey.generate_key(2048, {"kid": "one"})
KEYS = import_keys(
    {
        "keys": [
            KEY.as_dict(private=False),
            CURVE.as_dict(private=False),
            {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"},
            {"kty": "AKP", "kid": "of the future"},
            {"kty": "oct", "kid": "three", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"},
            "no key at all",
        ]
    }
)
CLAIMS: dict[str, Any] = {
    "iss": ISSUER,
    "sub": "248289761001",
    "aud": CLIENT,
    "iat": int(NOW) - 5,
    "exp": int(NOW) + 300,
    "nonce": ATTEMPT.nonce,
}


def signed(key: Any = KEY, alg: str = "RS256", kid: str | None = "one", **changes: Any) -> str:
    header = {"alg": alg} | ({"kid": kid} if kid else {})
    claims = {name: value for name, value in (CLAIMS | changes).items() if value is not None}
    return jwt.encode(header, claims, key, algorithms=[alg])


def check(token: str) -> dict[str, Any]:
    return check_id_token(
        token, KEYS, issuer=ISSUER, client_id=CLIENT, nonce=ATTEMPT.nonce, now=NOW
    )


def encoded(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def by_hand(alg: str, kid: str, secret: bytes = b"") -> str:
    header = {"alg": alg, "kid": kid}
    text = ".".join(encoded(json.dumps(part).encode()) for part in (header, CLAIMS))
    return f"{text}.{encoded(hmac.digest(secret, text.encode(), 'sha256')) if secret else ''}"


def test_a_token_of_the_provider_is_accepted() -> None:
    assert check(signed())["sub"] == CLAIMS["sub"]
    assert check(signed(CURVE, "ES256", "two"))["sub"] == CLAIMS["sub"]
    assert check(signed(alg="PS256"))["sub"] == CLAIMS["sub"]
    assert check(signed(aud=[CLIENT, "other"], azp=CLIENT))["sub"] == CLAIMS["sub"]
    assert check(signed(exp=int(NOW) - 30))["sub"] == CLAIMS["sub"], "clocks differ a little"


PUBLIC = KEY.as_pem(private=False)
REFUSED = {
    "issuer": (signed(iss="https://id.example.com.evil.example"), "iss"),
    "no issuer": (signed(iss=None), "iss"),
    "audience": (signed(aud="another-client"), "aud"),
    "no audience": (signed(aud=None), "aud"),
    "several audiences without a party": (signed(aud=[CLIENT, "other"]), "another client"),
    "another party": (signed(azp="other"), "another client"),
    "expired": (signed(exp=int(NOW) - 61), "expired"),
    "without an end": (signed(exp=None), "exp"),
    "of the future": (signed(iat=int(NOW) + 120), "future"),
    "not valid yet": (signed(nbf=int(NOW) + 120), "not yet"),
    "nonce of another sign-in attempt": (
        signed(nonce=SignInAttempt.of("mg-other").nonce),
        "another sign-in attempt",
    ),
    "no nonce": (signed(nonce=None), "another sign-in attempt"),
    "nobody": (signed(sub=""), "sub"),
    "no subject": (signed(sub=None), "sub"),
    "unsigned": (by_hand("none", "one"), "not signed"),
    "HMAC with the public key": (by_hand("HS256", "one", PUBLIC), "not signed"),
    "HMAC with a listed secret": (
        by_hand("HS256", "three", b"secret-secret-secret-secret-secret"),
        "not signed",
    ),
    "unknown key": (signed(kid="nine"), "unknown key"),
    "no key named, of several": (signed(kid=None), "unknown key"),
    "signature of another key": (signed(OTHER), "signature"),
    "key of another kind": (signed(KEY, "RS256", "two"), "invalid"),
    "changed": (signed()[:-6] + "AAAAAA", "signature"),
    "no token": ("", "invalid"),
    "garbage": ("a.b.c", "invalid"),
    "huge": ("x" * 100_000, "100000 bytes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_tokens_are_refused(case: str) -> None:
    token, reason = REFUSED[case]
    with pytest.raises(TokenRefused, match=reason) as refused:
        check(token)
    assert refused.value.is_unknown_key is (reason in ("unknown key", "signature"))


def test_an_attempt_follows_from_its_secret_and_shows_it_to_nobody() -> None:
    parts = urlsplit(
        ATTEMPT.url(
            "https://id.example.com/auth?tenant=lab",
            client_id=CLIENT,
            redirect_url="https://gpus.example.com/v1/session/oidc/callback",
            scopes=("openid", "email"),
        )
    )
    query = {name: value for name, [value] in parse_qs(parts.query).items()}
    challenge = urlsafe_b64encode(sha256(ATTEMPT.verifier.encode()).digest()).rstrip(b"=").decode()
    assert query == {
        "tenant": "lab",
        "response_type": "code",
        "client_id": CLIENT,
        "redirect_uri": "https://gpus.example.com/v1/session/oidc/callback",
        "scope": "openid email",
        "state": ATTEMPT.state,
        "nonce": ATTEMPT.nonce,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    assert 43 <= len(ATTEMPT.verifier) <= 128
    assert ATTEMPT.verifier not in parts.query
    assert len({ATTEMPT.state, ATTEMPT.nonce, ATTEMPT.verifier}) == 3
    assert SignInAttempt.of("mg-secret") == ATTEMPT
    assert ATTEMPT.has_state(ATTEMPT.state)
    for state in ("", "é", SignInAttempt.of("mg-other").state, SignInAttempt.of("").state):
        assert not ATTEMPT.has_state(state)


RULES = [
    Rule.parse(text)
    for text in (
        "group:gpu admins = admin",
        "group:auditors = auditor",
        "group:vision = vision:member",
        "group:vision-leads = vision:admin",
        "domain:Example.com = common:viewer",
    )
]
MAIL = {"email": "ann@EXAMPLE.com", "email_verified": True}


@pytest.mark.parametrize(
    ("claims", "given"),
    [
        ({}, Grants()),
        ({"groups": ["vision"]}, Grants(None, {"vision": "member"})),
        ({"groups": ["vision-leads", "vision"]}, Grants(None, {"vision": "admin"})),
        ({"groups": ["auditors", "gpu admins"]}, Grants("admin", {})),
        ({"groups": "vision"}, Grants(None, {"vision": "member"})),
        ({"groups": {"vision": True}}, Grants()),
        ({"roles": ["vision"]}, Grants()),
        (MAIL, Grants(None, {"common": "viewer"})),
        (MAIL | {"email_verified": False}, Grants()),
        (MAIL | {"email_verified": "true"}, Grants()),
        ({"email": "ann@example.com"}, Grants()),
        (MAIL | {"email": "ann@example.com.evil.example"}, Grants()),
        (MAIL | {"email": "ann@evil.example@example.com"}, Grants()),
        (MAIL | {"email": "ann@sub.example.com"}, Grants()),
        (MAIL | {"email": "example.com"}, Grants()),
    ],
)
def test_rules_give_roles(claims: dict[str, Any], given: Grants) -> None:
    assert grants(RULES, claims, "groups") == given
    assert bool(given) is (given != Grants())


@pytest.mark.parametrize(
    "settings",
    [
        {"oidc_rules": ["vision"]},
        {"oidc_rules": ["group:vision = boss"]},
        {"oidc_rules": ["group:vision = vision:auditor"]},
        {"oidc_rules": ["group:vision = :member"]},
        {"oidc_rules": ["domain:example.com = admin"]},
        {"oidc_rules": ["user:ann = admin"]},
        {"oidc_issuer": "http://id.example.com"},
        {"oidc_issuer": "id.example.com"},
        {"oidc_issuer": "https://id.example.com/?a=b"},
        {"oidc_redirect_url": "http://gpus.example.com/v1/session/oidc/callback"},
    ],
)
def test_settings_that_would_let_in_the_wrong_people_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ManagerSettings.model_validate(settings)
    ManagerSettings.model_validate(
        {"oidc_issuer": "http://127.0.0.1:3000", "oidc_rules": ["group:a=admin"]}
    )
