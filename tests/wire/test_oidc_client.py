"""The OpenID client over real HTTP: answers in pieces, new keys, wrong and absent providers.

The provider here is scripted; tests/browser/test_single_sign_on.py uses a real one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from joserfc import jwt
from joserfc.jwk import RSAKey

from moorage.common.aio.clock import ManualClock
from moorage.common.config.settings import ManagerSettings
from moorage.common.model.errors import MoorageError
from moorage.common.model.oidc_rules import Grants
from moorage.manager.oidc import SignInAttempt, SignInRefused
from moorage.manager.oidc.provider import OidcClient

ATTEMPT = SignInAttempt.of("mg-secret")
BACK = "https://gpus.example.com/v1/session/oidc/callback"
KEYS = {name: RSAKey.generate_key(2048, {"kid": name}) for name in ("one", "two")}


class Provider:
    """``answers``: changes to its description. ``asked``: the requested paths, in order."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.url = ""
        self.key = "one"
        self.asked: list[str] = []
        self.description: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        self.told: dict[str, Any] = {"sub": "s-1", "groups": ["staff"]}
        self.token_status = 200

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        content: Any = getattr(
            self, request.path.strip("/").replace(".well-known/", "").replace("-", "_")
        )(request)
        response = web.StreamResponse(status=self.token_status if request.path == "/token" else 200)
        await response.prepare(request)
        text = json.dumps(content).encode()
        for start in range(0, len(text), 100):  # as it arrives over a slow network
            await response.write(text[start : start + 100])

        return response

    def openid_configuration(self, _: web.Request) -> Any:
        ends = {
            f"{name}_endpoint": f"{self.url}/{name}"
            for name in ("authorization", "token", "userinfo")
        }
        return {"issuer": self.url, "jwks_uri": f"{self.url}/keys", **ends} | self.description

    def keys(self, _: web.Request) -> Any:
        return {"keys": [KEYS[self.key].as_dict(private=False)]}

    def token(self, _: web.Request) -> Any:
        if self.token_status != 200:
            return {"error": "invalid_grant", "error_description": "it was used before"}
        now = int(self.clock.now().timestamp())
        claims = {"iss": self.url, "sub": "s-1", "aud": "moorage", "iat": now, "exp": now + 60}
        claims |= {"nonce": ATTEMPT.nonce} | self.claims
        header = {"alg": "RS256", "kid": self.key}
        return {"access_token": "access", "id_token": jwt.encode(header, claims, KEYS[self.key])}

    def userinfo(self, request: web.Request) -> Any:
        assert request.headers["Authorization"] == "Bearer access"
        return self.told


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    made = Provider(ManualClock())
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


def client(provider: Provider) -> OidcClient:
    settings = ManagerSettings(
        oidc_issuer=provider.url,
        oidc_client_id="moorage",
        oidc_client_secret="secret",
        oidc_redirect_url=BACK,
        oidc_rules=("group:staff = vision:member",),
    )
    return OidcClient(settings, provider.clock)


async def test_a_code_becomes_a_person_and_keys_are_asked_for_again_when_they_change(
    provider: Provider,
) -> None:
    oidc = client(provider)
    for _ in range(2):
        person = await oidc.finish(ATTEMPT, "code", "", BACK)
        assert (person.subject, person.grants) == ("s-1", Grants(None, {"vision": "member"}))

    assert provider.asked.count("/keys") == 1
    provider.key = "two"
    with pytest.raises(SignInRefused, match="unknown key"):
        await oidc.finish(ATTEMPT, "code", "", BACK)

    provider.clock.advance(11)
    await oidc.finish(ATTEMPT, "code", "", BACK)
    assert provider.asked.count("/keys") == 2
    assert oidc.sign_out_url("http://inside:8700") == ""


async def test_a_way_back_after_signing_out_is_that_of_the_browser(provider: Provider) -> None:
    provider.description = {"end_session_endpoint": f"{provider.url}/end?a=b"}
    oidc = client(provider)
    await oidc.begin(ATTEMPT, BACK)
    back = "https%3A%2F%2Fgpus.example.com%2Fconsole%2F"
    expected = f"{provider.url}/end?a=b&client_id=moorage&post_logout_redirect_uri={back}"
    assert oidc.sign_out_url("http://inside:8700") == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"description": {"issuer": "https://other.example.com"}},
            "names itself 'https://other.example.com'",
        ),
        ({"description": {"jwks_uri": ""}}, "no usable address for keys"),
        ({"description": {"token_endpoint": "file:///etc/passwd"}}, "no usable address for token"),
        ({"description": {"padding": "x" * (1 << 20)}}, "more than 1048576 bytes"),
        (
            {"description": {"authorization_response_iss_parameter_supported": True}},
            "another provider",
        ),
        ({"told": {"sub": "s-2"}}, "another person"),
        ({"token_status": 400}, "it was used before"),
        ({"token_status": 401}, "answers 401"),
        ({"claims": {"nonce": "other"}}, "another sign-in attempt"),
    ],
)
async def test_what_is_wrong_is_said(
    provider: Provider, changes: dict[str, Any], message: str
) -> None:
    for name, value in changes.items():
        setattr(provider, name, value)
    with pytest.raises(MoorageError, match=message) as failed:
        await client(provider).finish(ATTEMPT, "code", "", BACK)
    assert failed.value.http in (403, 502)


async def test_a_provider_that_is_away_is_not_asked_for_each_who_comes(provider: Provider) -> None:
    oidc = client(provider)
    provider.description = {"issuer": "wrong"}
    for _ in range(5):
        with pytest.raises(MoorageError, match="names itself"):
            await oidc.begin(ATTEMPT, BACK)
    assert len(provider.asked) == 1
    provider.description = {}
    provider.clock.advance(6)
    assert (await oidc.begin(ATTEMPT, BACK)).startswith(f"{provider.url}/authorization?")
