"""Credentials of requests for apps: which one counts, and which ones the app gets."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from moorage.common.link.messages import AccessTokenGrant, AppRoute, KeyGrant, RouteTable
from moorage.common.model.ids import SessionId
from moorage.proxy.apps import error_response, headers
from moorage.proxy.apps.address import AppAddress
from moorage.proxy.apps.admission import AppGrant, admit
from moorage.proxy.apps.credentials import PossibleCredential, read_credentials
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.routes import IndexedTable

ID = "01a1fe3c-5331-77ad-8599-a7c43705bf82"
NOW = 1_000_000.0
# Of the form that Moorage gives them, valid or not, and of forms that only the table knows.
GOOD, OLD, FOREIGN, GONE = (f"mga-{letter * 43}" for letter in "gofx")
KEY = "mg-" + "k" * 43
SHORT = "mga-good"
OWN_KEY = "client-key"
APP = "aabbcc"  # a credential of the app


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def token(secret: str, *, app: str = "lab", lasts_s: int = 60) -> AccessTokenGrant:
    return AccessTokenGrant(sha(secret), SessionId(ID), app, int(NOW) + lasts_s)


TABLE = IndexedTable(
    RouteTable(
        7,
        (),
        keys=(KeyGrant(sha(KEY), 0, "ann", "p"), KeyGrant(sha(OWN_KEY), 0, "ann", "p")),
        apps=tuple(
            AppRoute(
                SessionId(ID),
                app,
                "http",
                base_path=False,
                host="127.0.0.1",
                port=21001,
                key="",
                user="ann",
                project="p",
            )
            for app in ("lab", "other")
        ),
        access_tokens=(
            token(GOOD),
            token(SHORT),
            token(OLD, lasts_s=-60),
            token(FOREIGN, app="other"),
        ),
    )
)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def decide(
    query: str = "", authorization: str = "", cookie: str = ""
) -> tuple[AppGrant | ErrorResponse, Mapping[str, str]]:
    """The decision about a request, and the headers and the query that the app gets."""
    address = AppAddress(ID, "lab", f"/apps/{ID}/lab/x", "/x", query=query)
    pairs = [("Authorization", authorization)] if authorization else []
    pairs += [("Cookie", cookie)] if cookie else []
    credentials = read_credentials(address, dict(pairs), [cookie] if cookie else [])
    found = admit(credentials, TABLE, NOW)
    if isinstance(found, ErrorResponse):
        return found, {}
    sent = headers.to_app(
        pairs,
        address,
        found,
        host="proxy",
        peer="192.0.2.9",
        scheme="http",
        upgrade=False,
        without=found.withheld,
    )
    return found, dict(sent) | {"query": found.query}


OURS = f"moorage-access-token={GOOD}"
STALE = f"moorage-access-token={OLD}"


@pytest.mark.parametrize(
    ("query", "authorization", "cookie", "counts", "passed"),
    [
        # One credential, in every form that clients have.
        (f"access_token={GOOD}", "", "", "query", {}),
        (f"token={GOOD}", "", "", "query", {}),
        (f"a=1&t%6Fken={GOOD}&b", "", "", "query", {"query": "a=1&b"}),
        (f"token={GOOD.replace('-', '%2D')}", "", "", "query", {}),
        ("", f"Bearer {GOOD}", "", "header", {}),
        ("", f"bearer   {GOOD} ", "", "header", {}),
        ("", f"token {GOOD}", "", "header", {}),
        ("", f"Token\t{GOOD}", "", "header", {}),
        ("", f"token {KEY}", "", "header", {}),
        ("", f"Bearer {OWN_KEY}", "", "header", {}),
        ("", basic("any", GOOD), "", "basic", {}),
        ("", basic("any", KEY), "", "basic", {}),
        ("", basic(GOOD, ""), "", "basic", {}),
        ("", basic(GOOD, "x-oauth-basic"), "", "basic", {}),
        ("", basic("a", GOOD).rstrip("="), "", "basic", {}),
        ("", "", OURS, "cookie", {}),
        # None, none that is valid, or one where it is not accepted.
        ("", "", "", "no_access_token", None),
        (f"token={APP}", "", "", "no_access_token", None),
        ("", f"token {APP}", "", "no_access_token", None),
        ("", basic("ann", APP), "", "no_access_token", None),
        ("", "Basic %%%", "", "no_access_token", None),
        ("", f"Digest {GOOD}", "", "no_access_token", None),
        ("", GOOD, "", "no_access_token", None),
        (f"token={OLD}", "", "", "access_token_expired", None),
        ("", basic("any", OLD), "", "access_token_expired", None),
        (f"token={FOREIGN}", "", "", "no_access_token", None),
        (f"token={KEY}", "", "", "no_access_token", None),
        ("", "", f"moorage-access-token={KEY}", "no_access_token", None),
        (f"other={GOOD}", "", "", "no_access_token", None),
        # Beside a credential of the app, which passes unchanged.
        (f"token={APP}", "", OURS, "cookie", {"query": f"token={APP}"}),
        (f"access_token={APP}", "", OURS, "cookie", {"query": f"access_token={APP}"}),
        (f"token={APP}", f"Bearer {GOOD}", "", "header", {"query": f"token={APP}"}),
        (f"token={GOOD}&token={APP}", "", "", "query", {"query": f"token={APP}"}),
        (f"token={GOOD}", f"token {APP}", "", "query", {"Authorization": f"token {APP}"}),
        (f"token={GOOD}", basic("a", APP), "", "query", {"Authorization": basic("a", APP)}),
        ("", basic("a", APP), OURS, "cookie", {"Authorization": basic("a", APP)}),
        ("", f"Bearer {APP}", OURS, "cookie", {"Authorization": f"Bearer {APP}"}),
        ("", "", f"a=1; {OURS}; token={APP}", "cookie", {"Cookie": f"a=1; token={APP}"}),
        # Several of Moorage's: the first that grants access counts, and none passes.
        (f"token={GOOD}", f"token {GOOD}", OURS, "query", {}),
        (f"token={OLD}", f"token {GOOD}", "", "header", {}),
        (f"token={GOOD}", "", STALE, "query", {}),
        (f"token={OLD}", "", OURS, "cookie", {}),
        ("", f"token {OLD}", OURS, "cookie", {}),
        ("", basic("any", GONE), OURS, "cookie", {}),
        ("", basic(KEY, APP), OURS, "basic", {}),
        (f"token={FOREIGN}", f"Bearer {GOOD}", "", "header", {}),
        (f"token={SHORT}&access_token={SHORT}", "", OURS, "query", {}),
        ("", f"Bearer {SHORT}", OURS, "header", {}),
        ("", basic("any", OWN_KEY), OURS, "basic", {}),
        (f"token={OWN_KEY}", "", OURS, "cookie", {}),
        (f"k={KEY}&a=1", "", OURS, "cookie", {"query": "a=1"}),
    ],
)
def test_which_credential_counts_and_what_passes(
    query: str,
    authorization: str,
    cookie: str,
    counts: str,
    passed: dict[str, str] | None,
) -> None:
    found, sent = decide(query, authorization, cookie)
    assert (found.code if isinstance(found, ErrorResponse) else found.source) == counts
    if passed is not None:
        named = {name: sent.get(name, "") for name in ("query", "Authorization", "Cookie")}
        assert {name: value for name, value in named.items() if value} == passed


OF_MOORAGE = st.sampled_from([GOOD, OLD, FOREIGN, GONE, KEY, SHORT, OWN_KEY])
OF_APP = st.text("abcXYZ019-_.~%=", min_size=1, max_size=12).filter(lambda text: "mg" not in text)
SECRETS = OF_MOORAGE | OF_APP
FIELDS = st.builds(
    lambda name, value: f"{name}={value}",
    st.sampled_from(["token", "access_token", "t%6fken", "a", "theirs"]),
    SECRETS,
)
AUTHORIZATIONS = st.one_of(
    st.just(""),
    st.builds(
        lambda scheme, value: f"{scheme} {value}", st.sampled_from(["Bearer", "tOken"]), SECRETS
    ),
    st.builds(basic, SECRETS, SECRETS),
)


@given(st.lists(FIELDS, max_size=4), AUTHORIZATIONS)
@examples(300)
def test_nothing_of_moorage_passes_and_all_of_the_app_does(
    fields: list[str], authorization: str
) -> None:
    found, sent = decide("&".join(fields), authorization, OURS)
    assert isinstance(found, AppGrant)

    def is_ours(text: str) -> bool:
        plain = text.replace("%6f", "o")
        return any(one in plain for one in (GOOD, OLD, FOREIGN, GONE, KEY)) or (
            plain.startswith(("token=", "access_token="))
            and plain.partition("=")[2] in (SHORT, OWN_KEY)
        )

    assert sent["query"] == "&".join(field for field in fields if not is_ours(field))

    candidates = read_credentials(
        found_address("&".join(fields)), {"Authorization": authorization}, []
    ).candidates
    of_header = [one.secret for one in candidates if one.source in ("header", "basic")]
    has_ours = any(
        known in secret for secret in of_header for known in (GOOD, OLD, FOREIGN, GONE, KEY)
    ) or any(secret in (SHORT, OWN_KEY) for secret in of_header)
    assert sent.get("Authorization", "") == ("" if has_ours else authorization)


def found_address(query: str) -> AppAddress:
    return AppAddress(ID, "lab", f"/apps/{ID}/lab/x", "/x", query=query)


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_read(query: str, authorization: str, cookie: str) -> None:
    address = found_address(query)
    for value in (authorization, f"Basic {authorization}"):
        read_credentials(address, {"Authorization": value}, [cookie])


def test_only_what_a_client_adds_itself_may_be_newer_than_the_table() -> None:
    address = found_address("")
    of_cookie = read_credentials(address, {}, [OURS])
    assert of_cookie.candidates == (PossibleCredential("cookie", GOOD),)
    assert not of_cookie.may_be_new
    for value in (f"token {GONE}", basic("any", GONE)):
        assert read_credentials(address, {"Authorization": value}, [OURS]).may_be_new
    assert read_credentials(found_address(f"token={GONE}"), {}, []).may_be_new


def test_a_key_in_the_address_is_refused_with_what_to_do() -> None:
    for query, cookie in ((f"token={KEY}", ""), ("", f"moorage-access-token={KEY}")):
        found, _ = decide(query, cookie=cookie)
        assert isinstance(found, ErrorResponse)
        assert found.status == 401
        assert "API keys are not accepted in the address" in found.message
        assert f"`moorage open {ID} lab`" in found.message
        assert KEY not in found.message


@pytest.mark.parametrize(
    ("sent", "browser"),
    [
        ({"User-Agent": "git/2.39.5", "Accept": "*/*"}, False),
        ({"User-Agent": "curl/7.88.1", "Accept": "*/*"}, False),
        ({}, False),
        ({"Accept": "text/html,application/xhtml+xml"}, True),
        ({"Accept": "*/*", "Sec-Fetch-Mode": "cors"}, True),
        ({"Accept": "*/*", "User-Agent": "Mozilla/5.0 (X11; Linux x86_64)"}, True),
    ],
)
def test_only_programs_are_asked_for_a_password(sent: dict[str, str], browser: bool) -> None:
    assert error_response.is_browser(sent) is browser
    error = error_response.unauthorized(found_address(""), given=False)
    assert error.headers["WWW-Authenticate"] == 'Basic realm="Moorage", charset="UTF-8"'
    assert "WWW-Authenticate" not in error_response.without_challenge(error).headers
