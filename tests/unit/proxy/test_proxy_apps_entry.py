"""Which app a request means, who is let in, and which headers cross: tables of cases."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.link.messages import AccessTokenGrant, AppRoute, KeyGrant, RouteTable
from moorage.common.model.ids import SessionId
from moorage.proxy.apps import address, error_response, headers
from moorage.proxy.apps.address import Asked, Shown
from moorage.proxy.apps.admission import Entry, admit, still_open
from moorage.proxy.core.error_response import Refuse
from moorage.proxy.core.routes import Table

ID = "01a1fe3c-5331-77ad-8599-a7c43705bf82"
OTHER = "01a1fe3c-5331-77ad-8599-a7c43705bf83"
NOW = 1_000_000.0


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def route(app: str = "lab", protocol: str = "http", **more: object) -> AppRoute:
    fields = {
        "base_path": False,
        "host": "127.0.0.1",
        "port": 21001,
        "key": "",
        "user": "ann",
        "project": "p",
    }
    return AppRoute(SessionId(ID), app, protocol, **(fields | more))  # type: ignore[arg-type]


TABLE = Table(
    RouteTable(
        7,
        (),
        (
            KeyGrant(sha("anns"), 0, "ann", "p"),
            KeyGrant(sha("bobs"), 0, "bob", "p"),
            KeyGrant(sha("other-project"), 0, "ann", "q"),
            KeyGrant(sha("root"), 0, "root", "p", True),
        ),
        (route(), route("db", "tcp")),
        (
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
            Asked(ID, "lab", f"/apps/{ID}/lab/a%20b", "/a%20b", "x=1&y"),
        ),
        ("h:1", f"/apps/{ID}/lab", "", Asked(ID, "lab", f"/apps/{ID}/lab", "")),
        ("h:1", f"/apps/{ID}/lab/", "", Asked(ID, "lab", f"/apps/{ID}/lab/", "/")),
        ("h:1", f"/apps/{ID}", "", Asked(ID, "", f"/apps/{ID}", "")),
        ("h:1", f"/apps/{ID}//x", "", Asked(ID, "", f"/apps/{ID}//x", "/x")),
        ("h:1", f"/tunnel/{ID}/db", "", Asked(ID, "db", f"/tunnel/{ID}/db", "", tunnel=True)),
        (
            f"lab--{ID}.apps.x:80",
            "/v1/models",
            "apps.x",
            Asked(ID, "lab", "/v1/models", "/v1/models", by_host=True),
        ),
        (f"LAB--{ID}.Apps.X", "/", "apps.x", Asked(ID, "lab", "/", "/", by_host=True)),
        (
            f"tensor-board--{ID}.localhost",
            "/",
            "localhost",
            Asked(ID, "tensor-board", "/", "/", by_host=True),
        ),
        ("www.apps.x", "/", "apps.x", Asked("", "www", "/", "/", by_host=True)),
        ("apps.x", "/v1/models", "apps.x", None),
        ("evilapps.x", "/v1/models", "apps.x", None),
        (f"lab--{ID}.apps.x", "/v1/models", "", None),
    ],
)
def test_which_app_is_meant(host: str, target: str, domain: str, expected: Asked | None) -> None:
    assert address.read(host, target, domain) == expected


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_request_is_understood_or_not(host: str, target: str) -> None:
    address.read(host, target, "localhost")
    address.read(host, f"/apps/{target}", "")


def test_what_is_shown_is_taken_out_of_what_is_asked() -> None:
    asked = Asked(ID, "lab", "/p", "/p", "a=1&access_token=x&access_token=y&permitted=2")
    found = address.shown(
        asked, {"Authorization": "Bearer  z "}, ["a=b; moorage-access-token=c1", "moorage-access-token=c2"]
    )
    assert found == Shown(Asked(ID, "lab", "/p", "/p", "a=1&permitted=2"), ("x", "y"), "z", ("c1", "c2"))
    assert address.shown(asked, {"Authorization": "token z"}, []).by_header == ""


def shown(
    app: str = "lab", *, query: str = "", header: str = "", cookie: str = "", session: str = ID
) -> Shown:
    asked = Asked(session, app, f"/apps/{session}/{app}/", "/")
    return Shown(asked, (query,) if query else (), header, (cookie,) if cookie else ())


@pytest.mark.parametrize(
    ("what", "code"),
    [
        (shown(query="good"), ""),
        (shown(header="good"), ""),
        (shown(cookie="good"), ""),
        (shown(header="anns"), ""),
        (shown(header="root"), ""),
        (shown(cookie="good", header="token-of-the-app"), ""),
        (shown(cookie="good", query="wrong"), ""),
        (shown(cookie="good", query="old"), ""),
        (shown(), "no_access_token"),
        (shown(query="wrong"), "no_access_token"),
        (shown(query="dbs"), "no_access_token"),
        (shown(query="early"), "no_access_token"),
        (shown(query="old"), "access_token_expired"),
        (shown(cookie="old"), "access_token_expired"),
        (shown(header="bobs"), "no_access_token"),
        (shown(header="other-project"), "no_access_token"),
        (shown(query="anns"), "no_access_token"),  # a key has no business in an address
        (shown(cookie="root"), "no_access_token"),
        (shown(query="early", session=OTHER), "app_not_ready"),
        (shown(header="root", session=OTHER), "app_not_ready"),
        (shown(header="anns", session=OTHER), "no_access_token"),
        (shown("db", query="dbs"), "app_is_tcp"),
        (shown("", query="good"), "no_such_app"),
        (shown(query="good", session=""), "no_such_app"),
    ],
)
def test_who_is_let_in(what: Shown, code: str) -> None:
    verdict = admit(what, TABLE, NOW)
    assert (verdict.code if isinstance(verdict, Refuse) else "") == code


def test_a_tunnel_leads_to_tcp_and_to_http() -> None:
    for app, access_token in (("lab", "good"), ("db", "dbs")):
        asked = Asked(ID, app, "", "", tunnel=True)
        assert isinstance(admit(Shown(asked, (), access_token, ()), TABLE, NOW), Entry)


@pytest.mark.parametrize(
    ("method", "upgrade", "origin", "in_"),
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
def test_another_sites_page_does_not_act_by_the_cookie(
    method: str, upgrade: bool, origin: str | None, in_: bool
) -> None:
    about = {"method": method, "upgrade": upgrade, "host": "proxy:8800", "origin": origin}
    verdict = admit(shown(cookie="good"), TABLE, NOW, **about)  # type: ignore[arg-type]
    assert isinstance(verdict, Entry) is in_
    assert isinstance(admit(shown(header="good"), TABLE, NOW, **about), Entry)  # type: ignore[arg-type]


def test_what_is_open_stays_open_until_the_access_token_is_revoked() -> None:
    for what in (shown(query="good"), shown(header="anns")):
        entry = admit(what, TABLE, NOW)
        assert isinstance(entry, Entry)
        assert still_open(entry, TABLE)
        assert not still_open(entry, Table(RouteTable(8, (), (), TABLE.source.apps)))


def entry(way: str = "cookie", **more: object) -> Entry:
    return Entry(route(**more), "good", sha("good"), way, int(NOW) + 60)  # type: ignore[arg-type]


BY_PATH = Asked(ID, "lab", f"/apps/{ID}/lab/x", "/x")
BY_HOST = Asked(ID, "lab", "/x", "/x", by_host=True)


def up(pairs: list[tuple[str, str]], asked: Asked = BY_PATH, let: Entry | None = None, upgrade: bool = False):
    about = {"host": "proxy:8800", "peer": "192.0.2.9", "scheme": "http", "upgrade": upgrade}
    return headers.to_app(pairs, asked, let or entry(), **about)  # type: ignore[arg-type]


def test_the_access_token_never_reaches_the_app() -> None:
    pairs = [
        ("Cookie", "a=1; moorage-access-token=good; b=2"),
        ("Authorization", "token mine"),
        ("Accept", "*/*"),
    ]
    sent = dict(up(pairs))
    assert sent["Cookie"] == "a=1; b=2"
    assert sent["Authorization"] == "token mine"
    assert "good" not in str(sent)
    assert "Cookie" not in dict(up([("Cookie", "moorage-access-token=good")]))
    assert "Authorization" not in dict(up([("Authorization", "Bearer good")], let=entry("header")))
    guarded = up([("Authorization", "Bearer good")], let=entry("header", key="k"))
    assert [value for name, value in guarded if name == "Authorization"] == ["Bearer k"]


def test_an_app_is_told_where_it_is() -> None:
    told = dict(up([("Host", "x"), ("X-Forwarded-Prefix", "/evil"), ("X-Forwarded-For", "198.51.100.1")]))
    assert told["Host"] == told["X-Forwarded-Host"] == "proxy:8800"
    assert told["X-Forwarded-Prefix"] == f"/apps/{ID}/lab"
    assert told["X-Forwarded-For"] == "198.51.100.1, 192.0.2.9"
    assert told["X-Forwarded-Proto"] == "http"
    assert "X-Forwarded-Prefix" not in dict(up([("X-Forwarded-Prefix", "/evil")], BY_HOST))


def test_an_upgrade_crosses_and_nothing_else_of_the_hop() -> None:
    pairs = [
        ("Connection", "keep-alive, Upgrade, X-Mine"),
        ("Upgrade", "websocket"),
        ("X-Mine", "1"),
        ("TE", "x"),
    ]
    assert {"Connection", "Upgrade", "X-Mine", "TE"}.isdisjoint(dict(up(pairs)))
    crossing = dict(up(pairs, upgrade=True))
    assert (crossing["Connection"], crossing["Upgrade"]) == ("Upgrade", "websocket")
    assert "X-Mine" not in crossing


@pytest.mark.parametrize(
    ("asked", "base_path", "name", "value", "expected"),
    [
        (BY_PATH, False, "Location", "/login", f"/apps/{ID}/lab/login"),
        (BY_PATH, False, "Location", "login", "login"),
        (BY_PATH, False, "Location", "//elsewhere/x", "//elsewhere/x"),
        (BY_PATH, False, "Location", "https://elsewhere/x", "https://elsewhere/x"),
        (BY_PATH, False, "Location", "http://proxy:8800/a", f"http://proxy:8800/apps/{ID}/lab/a"),
        (BY_PATH, False, "Location", f"/apps/{ID}/lab/a", f"/apps/{ID}/lab/a"),
        (BY_PATH, True, "Location", f"/apps/{ID}/lab/a", f"/apps/{ID}/lab/a"),
        (BY_HOST, False, "Location", "/login", "/login"),
        (BY_PATH, False, "Set-Cookie", "a=1; Path=/; HttpOnly", f"a=1; Path=/apps/{ID}/lab/; HttpOnly"),
        (BY_HOST, False, "Set-Cookie", "a=1; Path=/", "a=1; Path=/"),
        (BY_PATH, False, "Set-Cookie", "moorage-access-token=mine; Path=/", None),
        (BY_HOST, False, "Set-Cookie", " Moorage-Access-Token=mine", None),
        (BY_HOST, False, "Connection", "close", None),
    ],
)
def test_what_an_app_says_of_its_own_place(
    asked: Asked, base_path: bool, name: str, value: str, expected: str | None
) -> None:
    answer = headers.to_client([(name, value)], asked, entry(base_path=base_path), "proxy:8800")
    assert answer == ([] if expected is None else [(name, expected)])


def test_the_cookie_is_for_one_app_and_no_script() -> None:
    made = headers.access_token_cookie(BY_PATH, entry(), NOW, secure=False)
    assert made == f"moorage-access-token=good; Path=/apps/{ID}/lab; Max-Age=60; HttpOnly; SameSite=Lax"
    assert headers.access_token_cookie(BY_HOST, entry(), NOW, secure=True).endswith("; SameSite=Lax; Secure")
    assert "; Path=/;" in headers.access_token_cookie(BY_HOST, entry(), NOW, secure=True)


def test_a_refusal_is_a_page_for_browsers_and_says_what_to_do() -> None:
    asked = Asked("<script>", "lab", "/", "/")
    refused = error_response.no_access_token(asked, given=False)
    body, kind = error_response.body_of(refused, "text/html,*/*")
    assert kind == "text/html"
    assert b"<script>" not in body
    assert b"<code>moorage open &lt;script&gt; lab</code>" in body
    assert b"http-equiv" not in body
    assert b"http-equiv" in error_response.body_of(error_response.not_ready(asked), "text/html")[0], (
        "it asks again by itself"
    )
    assert error_response.body_of(refused, "*/*")[1] == "application/json"
    assert "2 min ago" in error_response.access_token_expired(asked, 121).message
