"""Client of an OpenID provider: discovery, keys and their rotation, codes exchanged for claims."""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import aiohttp
from joserfc.jwk import KeySet

from moorage.common.aio.clock import Clock
from moorage.common.config.console_settings import ConsoleSettings
from moorage.common.model.errors import MoorageError
from moorage.common.model.oidc_rules import Rule, grants, verified_email
from moorage.manager.oidc.flow import SignInAttempt
from moorage.manager.oidc.person import Person, SignInRefused
from moorage.manager.oidc.tokens import TokenRefused, check_id_token, import_keys

_TIMEOUT = aiohttp.ClientTimeout(total=10, sock_connect=5)
_MAX_BYTES = 1 << 20
# How long the provider's description and keys are used. An unknown key causes an earlier request,
# but the requests are at least this many seconds apart.
_FRESH_S = 3600.0
_ASK_AGAIN_S = 10.0
# After the provider has failed to answer, sign-ins fail immediately for this many seconds.
_FAILED_S = 5.0
_CALLBACK = "/v1/session/oidc/callback"
_CONFIGURE = "check manager.oidc_issuer and manager.oidc_client_id, and the client at the provider"


class ProviderFailed(MoorageError):
    """The OpenID provider does not answer, or does not answer as required."""

    code = "provider-failed"
    http = 502


@dataclass(frozen=True, slots=True)
class _Provider:
    authorization: str
    token: str
    keys: str
    userinfo: str
    end_session: str
    posts_secret: bool
    sends_issuer: bool


class OidcClient:
    """The client of one provider. All methods except ``sign_out_url`` raise ``ProviderFailed``."""

    def __init__(self, settings: ConsoleSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._rules = [Rule.parse(rule) for rule in settings.oidc_rules]
        self._lock = asyncio.Lock()
        self._provider: tuple[float, _Provider] | None = None
        self._failed: tuple[float, ProviderFailed] | None = None
        self._keys: tuple[float, KeySet] | None = None

    @property
    def issuer(self) -> str:
        return self._settings.oidc_issuer

    @property
    def label(self) -> str:
        return self._settings.oidc_label

    def redirect_url(self, origin: str) -> str:
        """URL to which the provider redirects the user. ``origin``: the manager's origin, as the
        browser sees it."""
        return self._settings.oidc_redirect_url or f"{origin}{_CALLBACK}"

    async def begin(self, attempt: SignInAttempt, redirect_url: str) -> str:
        """URL at which the browser signs in."""
        settings = self._settings
        provider = await self._discovered()
        return attempt.url(
            provider.authorization,
            client_id=settings.oidc_client_id,
            redirect_url=redirect_url,
            scopes=settings.oidc_scopes,
        )

    async def finish(
        self, attempt: SignInAttempt, code: str, issuer: str, redirect_url: str
    ) -> Person:
        """Return the person for whom the provider has issued ``code``.

        ``issuer``: as named in the response, if at all. Raises ``SignInRefused``."""
        settings = self._settings
        provider = await self._discovered()
        if (issuer or provider.sends_issuer) and issuer != settings.oidc_issuer:
            raise SignInRefused(
                f"another provider has answered: {issuer[:200]!r}", next_step="begin again"
            )

        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_url,
            "code_verifier": attempt.verifier,
        }
        tokens = await self._exchange(provider, form)
        try:
            claims = await self._check(provider, str(tokens.get("id_token", "")), attempt.nonce)
        except TokenRefused as refused:
            raise SignInRefused(str(refused), next_step=_CONFIGURE) from None

        if provider.userinfo and (access := tokens.get("access_token")):
            headers = {"Authorization": f"Bearer {access}"}
            told = await self._ask("GET", provider.userinfo, headers=headers)
            if told.get("sub") != claims["sub"]:
                raise SignInRefused("the provider describes another person", next_step=_CONFIGURE)

            claims = told | claims

        return self._person(claims)

    def _person(self, claims: Mapping[str, Any]) -> Person:
        email = verified_email(claims)
        names = str(claims.get("preferred_username") or ""), email.partition("@")[0]
        given = grants(self._rules, claims, self._settings.oidc_groups_claim)
        return Person(
            self._settings.oidc_issuer, claims["sub"], names=names, email=email, grants=given
        )

    def sign_out_url(self, origin: str) -> str:
        """URL at which the browser also signs out at the provider, or "" if there is none."""
        if self._provider is None or not (url := self._provider[1].end_session):
            return ""
        base = self.redirect_url(origin).removesuffix(_CALLBACK)
        back = {
            "client_id": self._settings.oidc_client_id,
            "post_logout_redirect_uri": f"{base}/console/",
        }
        return f"{url}{'&' if '?' in url else '?'}{urlencode(back)}"

    async def _exchange(self, provider: _Provider, form: dict[str, str]) -> dict[str, Any]:
        settings = self._settings
        headers: dict[str, str] = {}
        if settings.oidc_client_secret is None:
            form |= {"client_id": settings.oidc_client_id}
        elif provider.posts_secret:
            form |= {
                "client_id": settings.oidc_client_id,
                "client_secret": settings.oidc_client_secret,
            }
        else:
            pair = (
                f"{quote_plus(settings.oidc_client_id)}:{quote_plus(settings.oidc_client_secret)}"
            )
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"

        return await self._ask("POST", provider.token, data=form, headers=headers)

    async def _check(self, provider: _Provider, token: str, nonce: str) -> dict[str, Any]:
        """Check the claims. Raises ``TokenRefused``."""
        expected = {
            "issuer": self._settings.oidc_issuer,
            "client_id": self._settings.oidc_client_id,
        }
        keys = await self._key_set(provider, _FRESH_S)
        now = self._clock.now().timestamp()
        try:
            return check_id_token(token, keys, nonce=nonce, now=now, **expected)
        except TokenRefused as refused:
            if not refused.is_unknown_key:
                raise

        keys = await self._key_set(provider, _ASK_AGAIN_S)
        return check_id_token(token, keys, nonce=nonce, now=now, **expected)

    async def _key_set(self, provider: _Provider, max_age_s: float) -> KeySet:
        async with self._lock:
            now = self._clock.monotonic()
            if self._keys is None or now - self._keys[0] >= max_age_s:
                self._keys = now, import_keys(await self._ask("GET", provider.keys))
            return self._keys[1]

    async def _discovered(self) -> _Provider:
        async with self._lock:
            now = self._clock.monotonic()
            if self._provider is not None and now - self._provider[0] < _FRESH_S:
                return self._provider[1]
            if self._failed is not None and now - self._failed[0] < _FAILED_S:
                raise self._failed[1]

            issuer = self._settings.oidc_issuer
            url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
            try:
                self._provider = now, _read_description(await self._ask("GET", url), issuer)
            except ProviderFailed as failed:
                self._failed = self._clock.monotonic(), failed
                raise

            return self._provider[1]

    async def _ask(self, method: str, url: str, **options: Any) -> dict[str, Any]:
        """Request a JSON object from the provider."""
        where = urlsplit(url)._replace(query="").geturl()
        try:
            ca = self._settings.oidc_ca
            trust = await asyncio.to_thread(_trust, str(ca)) if ca else True
            async with (
                aiohttp.ClientSession(timeout=_TIMEOUT) as http,
                http.request(method, url, ssl=trust, allow_redirects=False, **options) as answer,
            ):
                body = bytearray()
                async for piece in answer.content.iter_any():
                    body += piece
                    if len(body) > _MAX_BYTES:
                        raise ValueError(f"a response of more than {_MAX_BYTES} bytes")

                found = json.loads(body)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            problem = str(error) or type(error).__name__
            raise ProviderFailed(
                f"the provider does not answer at {where}: {problem}", next_step=_CONFIGURE
            ) from None

        if answer.status != 200 or not isinstance(found, dict):
            said = (
                found.get("error_description") or found.get("error")
                if isinstance(found, dict)
                else ""
            )
            detail = f"the provider answers {answer.status} at {where}: {str(said)[:500]}"
            if method == "POST" and answer.status == 400:
                raise SignInRefused(
                    detail,
                    next_step="start again; a code works only once, and only for a short time",
                )

            raise ProviderFailed(detail, next_step=_CONFIGURE)

        return found


def _trust(ca_file: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.load_verify_locations(cafile=ca_file)
    return context


def _read_description(found: Mapping[str, Any], issuer: str) -> _Provider:
    if found.get("issuer") != issuer:
        raise ProviderFailed(
            f"the provider names itself {str(found.get('issuer'))[:200]!r}, not {issuer!r}",
            next_step="set manager.oidc_issuer to exactly that name",
        )

    schemes = {"https"} if issuer.startswith("https:") else {"https", "http"}
    urls = {}
    for name in ("authorization", "token", "userinfo", "end_session"):
        urls[name] = str(found.get(f"{name}_endpoint", ""))

    urls["keys"] = str(found.get("jwks_uri", ""))
    for name, url in urls.items():
        if (url or name in ("authorization", "token", "keys")) and urlsplit(
            url
        ).scheme not in schemes:
            raise ProviderFailed(f"the provider has no usable address for {name}: {url[:200]!r}")

    ways = found.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    posts = "client_secret_basic" not in ways and "client_secret_post" in ways
    sends_issuer = found.get("authorization_response_iss_parameter_supported") is True
    return _Provider(**urls, posts_secret=posts, sends_issuer=sends_issuer)
