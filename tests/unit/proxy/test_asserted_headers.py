"""Headers that name an address or a user: only those of trusted web servers reach programs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.common.link.messages import AppRoute
from moorage.common.model.ids import SessionId
from moorage.proxy.apps import headers as app_headers
from moorage.proxy.apps.address import AppAddress
from moorage.proxy.apps.admission import AppGrant
from moorage.proxy.core.asserted_headers import is_asserted
from moorage.proxy.core.headers import kept_for_provider, kept_for_replica, upgrade_for_replica

ID = "01a1fe3c-5331-77ad-8599-a7c43705bf82"
ASSERTED = (
    # RFC 7239, and what preceded it
    "Forwarded", "X-Forwarded", "X-Forwarded-By", "X-Forwarded-For", "X-Forwarded-Host",
    "X-Forwarded-Path", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Proto",
    "X-Forwarded-Scheme", "X-Forwarded-Server", "X-Forwarded-Ssl", "X-Forwarded-Uri",
    "Forwarded-For", "X-Forward-For",
    # the client's address: nginx, Apache, Cloudflare, Akamai, Fastly, Azure, App Engine, Envoy
    "X-Real-IP", "X-Real-Port", "X-Client-IP", "Client-IP", "True-Client-IP", "CF-Connecting-IP",
    "CF-Connecting-IPv6", "Fastly-Client-IP", "X-Azure-ClientIP", "X-Cluster-Client-IP",
    "X-Appengine-User-IP", "X-Envoy-External-Address", "X-ProxyUser-Ip", "X-Remote-Addr",
    "X-Remote-IP", "X-Original-Forwarded-For",
    # the user: Apache, Kubernetes, Authelia, oauth2-proxy, Traefik, Grafana, authentik, IAP, Azure
    "Remote-User", "Remote-Groups", "Remote-Email", "Remote-Name", "X-Remote-User",
    "X-Remote-Group", "X-Remote-Extra-Scopes", "X-Auth-Request-User", "X-Auth-Request-Email",
    "X-Auth-Request-Access-Token", "X-Forwarded-User", "X-Forwarded-Email", "X-Forwarded-Groups",
    "X-Forwarded-Preferred-Username", "X-Forwarded-Access-Token", "X-Authenticated-User",
    "X-WEBAUTH-USER", "X-Authentik-Username", "X-Goog-Authenticated-User-Email",
    "X-Goog-IAP-JWT-Assertion", "Cf-Access-Jwt-Assertion", "Cf-Access-Authenticated-User-Email",
    "X-Amzn-Oidc-Identity", "X-MS-CLIENT-PRINCIPAL-NAME", "Tailscale-User-Login", "X-Vouch-User",
    "X-Pomerium-Jwt-Assertion",
    # the client's certificate: RFC 9440, nginx, Azure
    "X-Forwarded-Client-Cert", "Client-Cert", "Client-Cert-Chain", "SSL-Client-Verify",
    "X-SSL-Client-S-DN", "X-Client-Cert", "X-ARR-ClientCert",
    # what was asked for: IIS, Symfony, ingress-nginx, Envoy, WSGI
    "X-Original-URL", "X-Original-Host", "X-Original-URI", "X-Original-Method", "X-Rewrite-URL",
    "X-Replaced-Path", "X-Host", "X-HTTP-Host-Override", "X-Scheme", "X-Url-Scheme",
    "Front-End-Https", "X-Script-Name", "X-Ingress-Path", "X-Envoy-Original-Path",
)  # fmt: skip
OF_CLIENTS = (
    "Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "Content-Type", "Date",
    "From", "If-None-Match", "Origin", "Range", "Referer", "User-Agent", "Via", "DNT",
    "Sec-Fetch-Site", "Sec-WebSocket-Key", "Sec-WebSocket-Protocol", "traceparent",
    "X-CSRF-Token", "X-XSRFToken", "X-Requested-With", "X-HTTP-Method-Override", "X-Request-Id",
    "X-Client-Version", "x-ms-client-request-id", "x-ms-version", "x-amz-content-sha256",
    "X-Goog-User-Project", "anthropic-version", "OpenAI-Organization", "X-Stainless-Lang",
    "X-Token-Count", "X-Jupyter-Kernel-Id", "HX-Request", "Private-Token", "PRIVATE-TOKEN",
    "X-Gitlab-Token", "X-User", "X-Auth-Token", "Client-Name", "Remote-Control",
)  # fmt: skip


@pytest.mark.parametrize("name", ASSERTED)
def test_what_only_a_web_server_in_front_may_say(name: str) -> None:
    for spelled in (name, name.lower(), name.upper(), name.replace("-", "_")):
        assert is_asserted(spelled)


@pytest.mark.parametrize("name", OF_CLIENTS)
def test_what_clients_say_themselves(name: str) -> None:
    assert not is_asserted(name)


def to_app(pairs: list[tuple[str, str]], *, trusted: bool) -> list[tuple[str, str]]:
    route = AppRoute(
        SessionId(ID),
        "lab",
        "http",
        base_path=False,
        host="127.0.0.1",
        port=21001,
        key="",
        user="ann",
        project="p",
    )
    granted = AppGrant(route, "good", sha256="", source="cookie", expires_at=0)
    return app_headers.to_app(
        pairs,
        AppAddress(ID, "lab", f"/apps/{ID}/lab/x", "/x"),
        granted,
        host="proxy:8800",
        peer="192.0.2.9",
        scheme="http",
        upgrade=False,
        forwarded=trusted,
    )


def spelled(name: str, capitals: int, separators: str) -> str:
    """``name`` in one of the ways in which servers read it as the same."""
    letters = [
        letter.upper() if capitals >> at & 1 else letter.lower() for at, letter in enumerate(name)
    ]
    return "".join(letters).replace("-", separators)


CLAIMS = st.builds(
    spelled,
    st.sampled_from(ASSERTED) | st.builds("X-Forwarded-{}".format, st.text("abcXYZ-", max_size=9)),
    st.integers(0, 2**30),
    st.sampled_from("-_."),
)
LIES = "6.6.6.6 evil.example /admin root"


@given(st.lists(st.tuples(CLAIMS | st.sampled_from(OF_CLIENTS), st.just(LIES)), max_size=6))
@examples(300)
def test_no_claim_of_an_untrusted_client_reaches_a_program(pairs: list[tuple[str, str]]) -> None:
    told = [pair for pair in pairs if pair[0] in OF_CLIENTS]
    lies = [pair for pair in to_app(pairs, trusted=False) if pair[1] == LIES]
    assert lies == told
    for kept in (kept_for_replica(pairs), upgrade_for_replica(pairs), kept_for_provider(pairs)):
        assert not [name for name, _ in kept if name not in OF_CLIENTS and is_asserted(name)]

    of_proxy = [pair for pair in to_app(pairs, trusted=False) if is_asserted(pair[0])]
    assert of_proxy == [
        ("X-Forwarded-For", "192.0.2.9"),
        ("X-Forwarded-Proto", "http"),
        ("X-Forwarded-Host", "proxy:8800"),
        ("X-Forwarded-Prefix", f"/apps/{ID}/lab"),
    ]


def test_claims_of_a_trusted_web_server_pass() -> None:
    pairs = [
        ("Forwarded", "for=198.51.100.1"),
        ("X-Real-IP", "198.51.100.1"),
        ("X-Auth-Request-User", "ann"),
        ("X-Forwarded-Port", "443"),
    ]
    assert to_app(pairs, trusted=True)[1:5] == pairs
    assert kept_for_replica(pairs, is_trusted=True) == pairs
    assert kept_for_replica(pairs) == []

    given = [("X-Forwarded-For", "198.51.100.1"), ("X-Forwarded-Host", "evil.example")]
    sent = to_app(given, trusted=True)
    assert [value for name, value in sent if name == "X-Forwarded-For"] == [
        "198.51.100.1, 192.0.2.9"
    ]
    assert [value for name, value in sent if name == "X-Forwarded-Host"] == ["proxy:8800"]
