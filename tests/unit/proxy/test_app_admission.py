"""App requests: addresses, credentials, admission, header filter and error responses."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.http.client_address import TrustedProxies
from moorage.common.link.messages import AccessTokenGrant, AppRoute, KeyGrant, RouteTable
from moorage.common.model.ids import SessionId
from moorage.proxy.apps import error_response, headers
from moorage.proxy.apps.address import AppAddress, client_scheme, local_path, parse_address
from moorage.proxy.apps.admission import AppGrant, admit, is_still_granted
from moorage.proxy.apps.credentials import Credentials, CredentialSource, PossibleCredential
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.routes import IndexedTable

ID = "01a1fe3c-5331-77ad-8599-a7c43705bf82"
OTHER = "01a1fe3c-5331-77ad-8599-a7c43705bf83"
NOW = 1_000_000.0


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def route(app: str = "lab", protocol: str = "http", **changes: object) -> AppRoute:
    fields = {
        "base_path": False,
        "host": "127.0.0.1",
        "port": 21001,
        "key": "",
        "user": "ann",
        "project": "p",
    }
    return AppRoute(SessionId(ID), app, protocol, **(fields | changes))  # type: ignore[arg-type]


TABLE = IndexedTable(
    RouteTable(
        7,
        (),
        keys=(
            KeyGrant(sha("anns"), 0, "ann", "p"),
            KeyGrant(sha("bobs"), 0, "bob", "p"),
            KeyGrant(sha("other-project"), 0, "ann", "q"),
            KeyGrant(sha("root"), 0, "root", "p", True),
            KeyGrant(sha("lead"), 0, "lead", "p", project_admin=True),
            KeyGrant(sha("lead-elsewhere"), 0, "lead", "q", project_admin=True),
            KeyGrant(sha("viewers"), 0, "", "p"),
        ),
        apps=(route(), route("db", "tcp"), route("shell", unisolated=True)),
        access_tokens=(
            AccessTokenGrant(sha("good"), SessionId(ID), "lab", int(NOW) + 60),
            AccessTokenGrant(sha("old"), SessionId(ID), "lab", int(NOW) - 120),
            AccessTokenGrant(sha("dbs"), SessionId(ID), "db", int(NOW) + 60),
            AccessTokenGrant(sha("early"), SessionId(OTHER), "lab", int(NOW) + 60),
        ),
    )
)


@pytest.mark.parametrize(
    ("host", "target", "domain", "expected"),
    [
        ("h:1", "/v1/models", "", None),
        ("h:1", "/apps", "", None),
        (
            "h:1",
            f"/apps/{ID}/lab/a%20b?x=1&y",
            "",
            AppAddress(ID, "lab", f"/apps/{ID}/lab/a%20b", "/a%20b", "x=1&y"),
        ),
        ("h:1", f"/apps/{ID}/lab", "", AppAddress(ID, "lab", f"/apps/{ID}/lab", "")),
        ("h:1", f"/apps/{ID}/lab/", "", AppAddress(ID, "lab", f"/apps/{ID}/lab/", "/")),
        ("h:1", f"/apps/{ID}", "", AppAddress(ID, "", f"/apps/{ID}", "")),
        ("h:1", f"/apps/{ID}//x", "", AppAddress(ID, "", f"/apps/{ID}//x", "/x")),
        ("h:1", f"/tunnel/{ID}/db", "", AppAddress(ID, "db", f"/tunnel/{ID}/db", "", tunnel=True)),
        (
            f"lab--{ID}.apps.x:80",
            "/v1/models",
            "apps.x",
            AppAddress(ID, "lab", "/v1/models", "/v1/models", by_host=True),
        ),
        (f"LAB--{ID}.Apps.X", "/", "apps.x", AppAddress(ID, "lab", "/", "/", by_host=True)),
        (
            f"tensor-board--{ID}.localhost",
            "/",
            "localhost",
            AppAddress(ID, "tensor-board", "/", "/", by_host=True),
        ),
        ("www.apps.x", "/", "apps.x", AppAddress("", "www", "/", "/", by_host=True)),
        ("apps.x", "/v1/models", "apps.x", None),
        ("evilapps.x", "/v1/models", "apps.x", None),
        (f"lab--{ID}.apps.x", "/v1/models", "", None),
    ],
)
def test_parse_address(host: str, target: str, domain: str, expected: AppAddress | None) -> None:
    assert parse_address(host, target, domain) == expected


@given(st.text(max_size=60), st.text(max_size=60))
def test_parse_address_accepts_any_text(host: str, target: str) -> None:
    parse_address(host, target, "localhost")
    parse_address(host, f"/apps/{target}", "")


def credentials_for(
    app: str = "lab",
    *,
    query: str = "",
    header: str = "",
    basic: str = "",
    cookie: str = "",
    session: str = ID,
) -> Credentials:
    address = AppAddress(session, app, f"/apps/{session}/{app}/", "/")
    given: tuple[tuple[CredentialSource, str], ...] = (
        ("query", query),
        ("header", header),
        ("basic", basic),
        ("cookie", cookie),
    )
    return Credentials(address, tuple(PossibleCredential(*one) for one in given if one[1]))


@pytest.mark.parametrize(
    ("credentials", "code"),
    [
        (credentials_for(query="good"), ""),
        (credentials_for(header="good"), ""),
        (credentials_for(basic="good"), ""),
        (credentials_for(cookie="good"), ""),
        (credentials_for(header="anns"), ""),
        (credentials_for(basic="anns"), ""),
        (credentials_for(basic="bobs"), "app_forbidden"),
        (credentials_for(header="root"), ""),
        (credentials_for(header="lead"), ""),
        (credentials_for(header="lead-elsewhere"), "app_not_found"),
        (credentials_for("shell", header="root"), ""),
        (credentials_for("shell", header="lead"), "app_forbidden"),
        (credentials_for("shell", header="anns"), "app_forbidden"),
        (credentials_for(header="viewers"), "app_forbidden"),
        (credentials_for(cookie="good", header="token-of-the-app"), ""),
        (credentials_for(cookie="good", query="wrong"), ""),
        (credentials_for(cookie="good", query="old"), ""),
        (credentials_for(), "no_access_token"),
        (credentials_for(query="wrong"), "no_access_token"),
        (credentials_for(query="dbs"), "no_access_token"),
        (credentials_for(query="early"), "no_access_token"),
        (credentials_for(query="old"), "access_token_expired"),
        (credentials_for(cookie="old"), "access_token_expired"),
        (credentials_for(header="bobs"), "app_forbidden"),
        (credentials_for(header="bobs", cookie="good"), ""),
        (credentials_for(header="other-project"), "app_not_found"),
        (credentials_for(query="anns"), "no_access_token"),  # keys are not accepted in an address
        (credentials_for(cookie="root"), "no_access_token"),
        (credentials_for(query="early", session=OTHER), "app_not_ready"),
        (credentials_for(header="root", session=OTHER), "app_not_ready"),
        (credentials_for(header="anns", session=OTHER), "app_not_found"),
        (credentials_for("db", query="dbs"), "app_is_tcp"),
        (credentials_for("", query="good"), "no_such_app"),
        (credentials_for(query="good", session=""), "no_such_app"),
    ],
)
def test_admit(credentials: Credentials, code: str) -> None:
    result = admit(credentials, TABLE, NOW)
    assert (result.code if isinstance(result, ErrorResponse) else "") == code


def test_tunnels_reach_tcp_and_http_apps() -> None:
    for app, access_token in (("lab", "good"), ("db", "dbs")):
        address = AppAddress(ID, app, "", "", tunnel=True)
        credentials = Credentials(address, (PossibleCredential("header", access_token),))
        assert isinstance(admit(credentials, TABLE, NOW), AppGrant)


@pytest.mark.parametrize(
    ("method", "upgrade", "origin", "admitted"),
    [
        ("GET", False, None, True),
        ("GET", False, "https://evil.example", True),
        ("POST", False, None, True),
        ("POST", False, "http://proxy:8800", True),
        ("POST", False, "https://PROXY:8800", True),
        ("POST", False, "https://evil.example", False),
        ("POST", False, "null", False),
        ("GET", True, "https://evil.example", False),
        ("GET", True, "http://proxy:8800", True),
    ],
)
@pytest.mark.parametrize("source", ["cookie", "basic"])
def test_pages_of_other_origins_cannot_act_with_what_browsers_send_by_themselves(
    source: str, method: str, upgrade: bool, origin: str | None, admitted: bool
) -> None:
    context = {"method": method, "upgrade": upgrade, "host": "proxy:8800", "origin": origin}
    result = admit(credentials_for(**{source: "good"}), TABLE, NOW, **context)  # type: ignore[arg-type]
    assert isinstance(result, AppGrant) is admitted
    assert isinstance(admit(credentials_for(header="good"), TABLE, NOW, **context), AppGrant)  # type: ignore[arg-type]


def test_open_connections_last_until_the_credential_is_revoked() -> None:
    for credentials in (credentials_for(query="good"), credentials_for(header="anns")):
        grant = admit(credentials, TABLE, NOW)
        assert isinstance(grant, AppGrant)
        assert is_still_granted(grant, TABLE)
        assert not is_still_granted(grant, IndexedTable(RouteTable(8, (), (), TABLE.whole().apps)))


def test_open_connections_end_when_their_key_may_not_open_the_session_any_more() -> None:
    opened = admit(credentials_for(header="anns"), TABLE, NOW)
    assert isinstance(opened, AppGrant)
    for changed in (KeyGrant(sha("anns"), 0, "", "p"), KeyGrant(sha("anns"), 0, "ann", "q")):
        table = IndexedTable(RouteTable(8, (), (changed,), TABLE.whole().apps))
        assert not is_still_granted(opened, table)


def test_what_a_key_may_not_see_looks_as_what_does_not_exist() -> None:
    foreign, absent = (
        admit(credentials_for(header="other-project", session=session), TABLE, NOW)
        for session in (ID, OTHER)
    )
    assert isinstance(foreign, ErrorResponse)
    assert isinstance(absent, ErrorResponse)
    assert (foreign.status, foreign.code) == (absent.status, absent.code) == (404, "app_not_found")
    assert foreign.message.replace(ID, OTHER) == absent.message


ANN = KeyGrant(sha("anns"), 0, "ann", "p")


@pytest.mark.parametrize(
    ("key", "granted"),
    [
        ("anns", ANN),
        ("anns", replace(ANN, warned_until=1)),
        ("lead", KeyGrant(sha("lead"), 0, "lead", "p", project_admin=True)),
    ],
)
def test_open_connections_outlast_changes_that_take_nothing(key: str, granted: KeyGrant) -> None:
    grant = admit(credentials_for(header=key), TABLE, NOW)
    assert isinstance(grant, AppGrant)
    assert is_still_granted(grant, IndexedTable(RouteTable(8, (), (granted,), TABLE.whole().apps)))


@pytest.mark.parametrize(
    ("key", "granted"),
    [
        ("anns", replace(ANN, user="")),
        ("lead", KeyGrant(sha("lead"), 0, "lead", "p")),
        ("root", KeyGrant(sha("root"), 0, "root", "p", project_admin=False)),
    ],
    ids=["viewer", "member", "no administrator"],
)
def test_open_connections_end_with_the_role_that_opened_them(key: str, granted: KeyGrant) -> None:
    grant = admit(credentials_for(header=key), TABLE, NOW)
    assert isinstance(grant, AppGrant)
    assert not is_still_granted(
        grant, IndexedTable(RouteTable(8, (), (granted,), TABLE.whole().apps))
    )


def test_open_connections_end_with_their_agent() -> None:
    for credentials in (credentials_for(query="good"), credentials_for(header="root")):
        grant = admit(credentials, TABLE, NOW)
        assert isinstance(grant, AppGrant)
        there = replace(grant, route=route(peer_id="a1"))
        assert is_still_granted(there, IndexedTable(replace(TABLE.whole(), revoked_agents=("a2",))))
        assert not is_still_granted(
            there, IndexedTable(replace(TABLE.whole(), revoked_agents=("a2", "a1")))
        )


def grant(source: CredentialSource = "cookie", **changes: object) -> AppGrant:
    return AppGrant(
        route(**changes),  # type: ignore[arg-type]
        "good",
        sha256=sha("good"),
        source=source,
        expires_at=int(NOW) + 60,
    )


BY_PATH = AppAddress(ID, "lab", f"/apps/{ID}/lab/x", "/x")
BY_HOST = AppAddress(ID, "lab", "/x", "/x", by_host=True)


def to_app(
    pairs: list[tuple[str, str]],
    address: AppAddress = BY_PATH,
    granted: AppGrant | None = None,
    upgrade: bool = False,
    *,
    forwarded: bool = False,
) -> list[tuple[str, str]]:
    context = {"host": "proxy:8800", "peer": "192.0.2.9", "scheme": "http", "upgrade": upgrade}
    return headers.to_app(pairs, address, granted or grant(), forwarded=forwarded, **context)  # type: ignore[arg-type]


def test_access_tokens_never_reach_the_app() -> None:
    pairs = [
        ("Cookie", "a=1; moorage-access-token=good; b=2"),
        ("Authorization", "token mine"),
        ("Accept", "*/*"),
    ]
    sent = dict(to_app(pairs))
    assert sent["Cookie"] == "a=1; b=2"
    assert sent["Authorization"] == "token mine"
    assert "good" not in str(sent)
    assert "Cookie" not in dict(to_app([("Cookie", "moorage-access-token=good")]))
    guarded = to_app([("Authorization", "token mine")], granted=grant(key="k"))
    assert [value for name, value in guarded if name == "Authorization"] == ["Bearer k"]


def test_app_gets_forwarded_headers() -> None:
    sent = dict(
        to_app(
            [("Host", "x"), ("X-Forwarded-Prefix", "/evil"), ("X-Forwarded-For", "198.51.100.1")]
        )
    )
    assert sent["Host"] == sent["X-Forwarded-Host"] == "proxy:8800"
    assert sent["X-Forwarded-Prefix"] == f"/apps/{ID}/lab"
    assert sent["X-Forwarded-For"] == "192.0.2.9", "only a trusted web server's word counts"
    assert sent["X-Forwarded-Proto"] == "http"
    sent = dict(to_app([("X-Forwarded-For", "198.51.100.1")], forwarded=True))
    assert sent["X-Forwarded-For"] == "198.51.100.1, 192.0.2.9"
    assert "X-Forwarded-Prefix" not in dict(to_app([("X-Forwarded-Prefix", "/evil")], BY_HOST))


def test_only_the_upgrade_header_of_the_hop_by_hop_headers_crosses() -> None:
    pairs = [
        ("Connection", "keep-alive, Upgrade, X-Mine"),
        ("Upgrade", "websocket"),
        ("X-Mine", "1"),
        ("TE", "x"),
    ]
    assert {"Connection", "Upgrade", "X-Mine", "TE"}.isdisjoint(dict(to_app(pairs)))
    sent = dict(to_app(pairs, upgrade=True))
    assert (sent["Connection"], sent["Upgrade"]) == ("Upgrade", "websocket")
    assert "X-Mine" not in sent


@pytest.mark.parametrize(
    ("address", "base_path", "name", "value", "expected"),
    [
        (BY_PATH, False, "Location", "/login", f"/apps/{ID}/lab/login"),
        (BY_PATH, False, "Location", "login", "login"),
        (BY_PATH, False, "Location", "//elsewhere/x", "//elsewhere/x"),
        (BY_PATH, False, "Location", "https://elsewhere/x", "https://elsewhere/x"),
        (BY_PATH, False, "Location", "http://proxy:8800/a", f"http://proxy:8800/apps/{ID}/lab/a"),
        (BY_PATH, False, "Location", f"/apps/{ID}/lab/a", f"/apps/{ID}/lab/a"),
        (BY_PATH, True, "Location", f"/apps/{ID}/lab/a", f"/apps/{ID}/lab/a"),
        (BY_HOST, False, "Location", "/login", "/login"),
        (
            BY_PATH,
            False,
            "Set-Cookie",
            "a=1; Path=/; HttpOnly",
            f"a=1; Path=/apps/{ID}/lab/; HttpOnly",
        ),
        (BY_HOST, False, "Set-Cookie", "a=1; Path=/", "a=1; Path=/"),
        (BY_PATH, False, "Set-Cookie", "moorage-access-token=mine; Path=/", None),
        (BY_HOST, False, "Set-Cookie", " Moorage-Access-Token=mine", None),
        (BY_HOST, False, "Connection", "close", None),
        # Confined to the app: no path above it, no other host, and no name that could be mistaken
        # for ours.
        (BY_PATH, True, "Set-Cookie", "a=1; Path=/", f"a=1; Path=/apps/{ID}/lab/"),
        (
            BY_PATH,
            True,
            "Set-Cookie",
            f"a=1; path=/apps/{ID}/labs",
            f"a=1; Path=/apps/{ID}/lab/apps/{ID}/labs",
        ),
        (
            BY_PATH,
            True,
            "Set-Cookie",
            f"a=1; Path=/apps/{ID}/lab; Path=/",
            f"a=1; Path=/apps/{ID}/lab/",
        ),
        (BY_PATH, False, "Set-Cookie", "a=1; Secure", f"a=1; Path=/apps/{ID}/lab; Secure"),
        (BY_HOST, False, "Set-Cookie", "a=1; Domain=apps.x; Path=/b; DOMAIN=.x", "a=1; Path=/b"),
        (BY_HOST, False, "Set-Cookie", "=moorage-access-token=mine", None),
        (BY_HOST, False, "Set-Cookie", "moorage-access-token", None),
        (BY_HOST, False, "Set-Cookie", "\tmoorage-access-token=mine", None),
        (BY_HOST, False, "Set-Cookie", "a=1\x00; Domain=x", None),
        (BY_HOST, False, "Clear-Site-Data", '"cookies"', None),
        (BY_PATH, False, "Service-Worker-Allowed", "/", None),
        (BY_PATH, False, "Strict-Transport-Security", "max-age=9; includeSubDomains", None),
        (BY_PATH, False, "NEL", "{}", None),
        (BY_PATH, False, "Alt-Svc", 'h2=":21000"', None),
        (BY_PATH, False, "X-Accel-Redirect", "/internal/", None),
        (BY_PATH, False, "X-Moorage-Error", "forged", None),
    ],
)
def test_location_and_cookie_path_get_the_prefix(
    address: AppAddress, base_path: bool, name: str, value: str, expected: str | None
) -> None:
    result = headers.to_client([(name, value)], address, grant(base_path=base_path), "proxy:8800")
    assert result == ([] if expected is None else [(name, expected)])


def test_cookie_is_limited_to_one_app_and_hidden_from_scripts() -> None:
    cookie = headers.access_token_cookie(BY_PATH, grant(), NOW, secure=False)
    assert (
        cookie
        == f"moorage-access-token=good; Path=/apps/{ID}/lab; Max-Age=60; HttpOnly; SameSite=Lax"
    )
    assert headers.access_token_cookie(BY_HOST, grant(), NOW, secure=True).endswith(
        "; SameSite=Lax; Secure"
    )
    assert "; Path=/;" in headers.access_token_cookie(BY_HOST, grant(), NOW, secure=True)


def test_browsers_get_error_pages_with_the_next_step() -> None:
    address = AppAddress("<script>", "lab", "/", "/")
    error = error_response.unauthorized(address, given=False)
    body, media_type = error_response.render(error, "text/html,*/*")
    assert media_type == "text/html"
    assert b"<script>" not in body
    assert b"<code>moorage open &lt;script&gt; lab</code>" in body
    assert b"http-equiv" not in body
    assert (
        b"http-equiv" in error_response.render(error_response.not_ready(address), "text/html")[0]
    ), "the page reloads itself"
    assert error_response.render(error, "*/*")[1] == "application/json"
    assert "2 min ago" in error_response.access_token_expired(address, 121).message


KEY, TOKEN, JOIN = (f"{prefix}{'x' * 43}" for prefix in ("mg-", "mga-", "mgj-"))


@pytest.mark.parametrize("secret", [KEY, TOKEN, JOIN])
def test_no_credential_reaches_an_app_in_any_header(secret: str) -> None:
    """In addition to the credential that admitted the request: a second bearer, other names,
    cookies, addresses."""
    pairs = [
        ("Authorization", f"Bearer {secret}"),
        ("X-Api-Key", secret),
        ("api-key", secret),
        ("X-Anything", f"key={secret}"),
        ("Referer", f"http://proxy:8800/apps/x/?access_token={secret}"),
        ("Cookie", f"moorage-access-token =good; theirs={secret}; a=1"),
        ("Sec-WebSocket-Protocol", f"base64url.bearer.{secret}"),
    ]
    for address in (BY_PATH, BY_HOST):
        sent = to_app(pairs, address)
        assert secret not in str(sent)
        assert dict(sent)["Cookie"] == "a=1"
        assert {"Authorization", "X-Anything"}.isdisjoint(dict(sent))


def test_only_a_trusted_web_server_changes_the_scheme_and_only_to_one_of_two() -> None:
    trusted = TrustedProxies(["127.0.0.0/8", "::1/128", "100.65.0.0/16"])
    assert all(trusted.contains(peer) for peer in ("127.0.0.1", "::1", "::ffff:100.65.2.3"))
    assert not any(trusted.contains(peer) for peer in ("198.18.0.1", "", None))
    assert client_scheme("http", "https", trusted=True) == "https"
    assert client_scheme("http", "https", trusted=False) == "http"
    assert client_scheme("http", "https://evil.example/?", trusted=True) == "http"
    assert client_scheme("https", "", trusted=True) == "https"


@pytest.mark.parametrize("path", ["//evil.example/x", "/\\evil.example/x", "///evil.example/x"])
def test_redirects_stay_on_the_host(path: str) -> None:
    assert local_path(path) == "/evil.example/x"
