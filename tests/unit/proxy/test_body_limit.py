"""Limits of bodies: whose limit applies, and which model the beginning of a body names."""

from __future__ import annotations

import pytest

from moorage.common.link.messages import KeyGrant, ModelRoute, RouteTable
from moorage.proxy.core.body_limit import (
    BodyLimit,
    limit_of_any,
    limit_of_head,
    limit_of_route,
    model_in_beginning,
)
from moorage.proxy.core.error_response import body_too_large
from moorage.proxy.core.routes import AdapterRoute, IndexedTable

FORM = "multipart/form-data; boundary=b"
FIELD = b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'


def shown(limit: BodyLimit | None) -> tuple[int, str, str] | None:
    return None if limit is None else (limit.size, limit.source, limit.endpoint)


def limited(name: str, size: int) -> ModelRoute:
    return ModelRoute(name, 1, max_body_bytes=size)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (None, (100, "proxy", "")),
        (0, (100, "proxy", "")),
        (99, (99, "key", "")),
        (100, (100, "proxy", "")),
        (101, (100, "proxy", "")),
    ],
)
def test_limit_of_head(key: int | None, expected: tuple[int, str, str]) -> None:
    grant = None if key is None else KeyGrant("sha", max_body_bytes=key)
    assert shown(limit_of_head(100, grant)) == expected


def test_limit_of_an_endpoint_applies_to_its_adapters() -> None:
    assert shown(limit_of_route(limited("m", 0))) is None
    assert shown(limit_of_route(None)) is None
    adapter = AdapterRoute("m:sql", 1, max_body_bytes=5, parent="m")
    assert shown(limit_of_route(adapter)) == (5, "endpoint", "m")


def test_limit_of_a_key_with_few_models_is_the_largest() -> None:
    small, large = limited("small", 5), limited("large", 9)
    assert shown(limit_of_any([small, large])) == (9, "endpoint", "large")
    assert limit_of_any([small, limited("free", 0)]) is None
    assert limit_of_any([small, None]) is None
    assert limit_of_any([]) is None


@pytest.mark.parametrize(
    ("begin", "content_type", "expected"),
    [
        (b'{"model":"tiny","prompt":"xx', "", "tiny"),
        (b'{"prompt":{"model":"x"},"model":"tiny","a', "", "tiny"),
        (b'{"mod\\u0065l":"tiny","a', "", "tiny"),
        (b'{"a":"' + b"x" * 50_000 + b'","model":"tiny",', "", "tiny"),
        ('{"model":"tiny","a"'.encode("utf-16"), "", "tiny"),
        (b'{"model":"ti', "", ""),
        (b'{"prompt":{"model":"x"},"a', "", ""),
        (b'{"model":7,"a', "", ""),
        (b"\xff\xff\xff\xff", "", ""),
        (b"nonsense", "", ""),
        (b"[" * 2000, "", ""),
        (b'{"a":[' + b'{"":[[[[[[[[[1]]]]]]]]]},' * 5000, "", ""),
        (b"", "", ""),
        (FIELD % (b"model", b"tiny") + b"--b\r\nContent-Disp", FORM, "tiny"),
        (FIELD % (b"n", b"1") + FIELD % (b"model", b"tiny") + b"--b\r\n", FORM, "tiny"),
        (FIELD % (b"file", b"x" * 90_000), FORM, ""),
        (b"nonsense", FORM, ""),
    ],
)
def test_model_in_the_beginning_of_a_body(begin: bytes, content_type: str, expected: str) -> None:
    assert model_in_beginning(begin, content_type) == expected


def test_table_knows_which_models_are_limited() -> None:
    table = IndexedTable(RouteTable(1, (limited("a", 5), limited("b", 5), limited("c", 0)), ()))
    assert table.limited_models == {"a", "b"}
    table.change(RouteTable(2, (limited("a", 0),), (), base=1, removed_models=("b",)))
    assert table.limited_models == set()


@pytest.mark.parametrize(
    ("limit", "texts"),
    [
        (BodyLimit(7), ("limit of this proxy, 7 bytes", "proxy.max_body_bytes")),
        (BodyLimit(7, "key"), ("limit of this API key, 7 bytes", "keys set NAME --max-body SIZE")),
        (
            BodyLimit(7, "endpoint", "qwen"),
            ("limit of the endpoint 'qwen', 7 bytes", "`routing.max_body_bytes`"),
        ),
    ],
)
def test_error_names_the_limit_its_source_and_what_to_change(
    limit: BodyLimit, texts: tuple[str, ...]
) -> None:
    error = body_too_large(limit)
    assert (error.status, error.code) == (413, "request_too_large")
    assert all(text in error.message for text in texts), error.message
    assert b'"type": "request_too_large"' in error.body(anthropic=True)
