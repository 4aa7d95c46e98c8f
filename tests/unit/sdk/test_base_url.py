"""Addresses of managers and proxies, compared with yarl's reading of them."""

from __future__ import annotations

import pytest
from yarl import URL

from moorage.sdk.base_url import BaseUrl


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8700",
        "http://LocalHost/",
        "https://moorage.example.org",
        "https://moorage.example.org:443/",
        "https://moorage.example.org/gpu/mgr",
        "http://[::1]:8700/mgr/",
        "http://bücher.example:8700",
        "http://h/with space/ü%2Fx",
    ],
)
def test_an_address_is_read_as_yarl_reads_it(url: str) -> None:
    base = BaseUrl.parse(url)
    expected = URL(url)
    assert (base.scheme, base.host, base.port) == (
        expected.scheme,
        expected.raw_host,
        expected.port,
    )
    assert base.path == expected.raw_path.rstrip("/")
    assert URL(str(base), encoded=True).raw_path.rstrip("/") == base.path


def test_the_host_header_has_brackets_and_only_a_given_port() -> None:
    assert BaseUrl.parse("http://[::1]:8700").authority == "[::1]:8700"
    assert BaseUrl.parse("https://user:word@example.org/v1?a=b#c").authority == "example.org"
    assert str(BaseUrl.parse("https://user:word@example.org/v1?a=b#c")) == "https://example.org/v1"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "ftp://example.org",
        "http://",
        "http://:8700",
        "http://h:99999",
        "http://h:x",
        "http://[::1",
        "http://a b",
        "//example.org",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"not an http|characters|Port|port|Invalid IPv6"):
        BaseUrl.parse(url)
