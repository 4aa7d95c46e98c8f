"""Protection of requests that use a console session's cookie, and the cookie's attributes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.manager.identity import csrf

SECRET = "mg-secret"
GOOD = {"token": csrf.token_of(SECRET), "origin": "http://host:8700", "fetch_site": "same-origin"}


def refusal(method: str = "POST", *, upgrade: bool = False, **given: str) -> str:
    return csrf.refusal(method, upgrade=upgrade, secret=SECRET, host="host:8700", **(GOOD | given))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"fetch_site": ""},
        {"origin": ""},
        {"origin": "http://HOST:8700"},
    ],
)
def test_the_console_writes(given: dict[str, str]) -> None:
    assert refusal(**given) == ""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"token": ""}, "X-CSRF-Token"),
        ({"token": csrf.token_of("another")}, "X-CSRF-Token"),
        ({"token": SECRET}, "X-CSRF-Token"),
        ({"origin": "http://host:8800", "fetch_site": "same-site"}, "must not write"),
        ({"origin": "http://host:8800", "fetch_site": ""}, "must not write"),
        ({"origin": "http://other:8700"}, "must not write"),
        ({"fetch_site": "cross-site"}, "must not write"),
        ({"origin": "null"}, "must not write"),
        ({"origin": "http://[", "fetch_site": ""}, "must not write"),
        ({"origin": "file://host:8700"}, "must not write"),
        ({"origin": "http://host:99999"}, "must not write"),
        ({"origin": "", "fetch_site": ""}, "must not write"),
        ({"origin": "", "fetch_site": "none"}, "must not write"),
    ],
)
def test_others_do_not(given: dict[str, str], words: str) -> None:
    assert words in refusal(**given)


def test_reads_need_no_token_and_websockets_need_the_origin() -> None:
    assert refusal("GET", token="", origin="http://other", fetch_site="cross-site") == ""
    assert refusal("GET", upgrade=True, token="") == ""
    assert "must not" in refusal(
        "GET", upgrade=True, token="", origin="http://host:8800", fetch_site=""
    )


def test_standard_ports_may_be_left_out() -> None:
    assert csrf.is_same_origin("https://host", "", "host:443")
    assert csrf.is_same_origin("https://host:443", "", "host")
    assert not csrf.is_same_origin("https://host", "", "host:8443")


@given(st.text(max_size=30), st.sampled_from(["", "none", "same-site", "cross-site"]))
def test_only_the_own_origin_is_the_same(origin: str, fetch_site: str) -> None:
    same = csrf.is_same_origin(origin, fetch_site, "console.example:8700")
    assert same <= (
        origin.lower().rpartition("://")[2].rpartition("@")[2].startswith("console.example:8700")
    )
