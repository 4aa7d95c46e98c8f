"""The header filter between clients and replicas."""

from __future__ import annotations

import pytest

from moorage.common.link.messages import Target
from moorage.common.model.ids import KernelId, SessionId
from moorage.proxy.core.headers import (
    for_client,
    for_replica,
    is_event_stream,
    kept_for_client,
    kept_for_replica,
    name_of,
    printable_reason,
    query_to_replica,
    valid_request_id,
)


def target(session_id: str, kernel_id: str = "k") -> Target:
    return Target(
        SessionId(session_id),
        KernelId(kernel_id),
        host="127.0.0.1",
        port=1,
        key="key",
        engine="custom",
    )


def test_replicas_that_started_together_have_names_of_their_own():
    one = "019f3c5e-2a10-7c3b-8d44-51f0a6b2c9e1"
    other = "019f3c5e-2a11-7f90-9b12-0c7d5e3fa824"
    assert name_of(target(one)) == one
    assert name_of(target(one)) != name_of(target(other))
    assert name_of(target("", "provider-0/gpt")) == "provider-0/gpt"


def test_replica_gets_its_key_and_no_hop_by_hop_headers():
    client = [
        ("Host", "models.example"),
        ("authorization", "Bearer client-secret"),
        ("X-API-Key", "client-secret"),
        ("api-key", "client-secret"),
        ("Cookie", "moorage-access-token=client-secret"),
        ("Connection", "keep-alive, X-Private"),
        ("X-Private", "1"),
        ("Keep-Alive", "timeout=5"),
        ("Transfer-Encoding", "chunked"),
        ("TE", "trailers"),
        ("Upgrade", "h2c"),
        ("Expect", "100-continue"),
        ("Content-Length", "10"),
        ("Content-Type", "application/json"),
        ("traceparent", "00-abc-def-01"),
        ("Accept", "text/event-stream"),
        ("x-request-id", "theirs"),
    ]
    assert kept_for_replica(client) + for_replica("replica-key") == [
        ("Content-Type", "application/json"),
        ("traceparent", "00-abc-def-01"),
        ("Accept", "text/event-stream"),
        ("Authorization", "Bearer replica-key"),
    ]


def test_replica_without_a_key_gets_no_authorization():
    assert kept_for_replica([("Authorization", "Bearer client-secret")]) + for_replica("") == []


def test_client_gets_proxy_headers_and_no_hop_by_hop_headers():
    replica = [
        ("Content-Type", "application/json"),
        ("Connection", "close"),
        ("Transfer-Encoding", "chunked"),
        ("X-Request-Id", "engine's"),
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
        ("Clear-Site-Data", "*"),
        ("X-Accel-Redirect", "/internal"),
        ("x-moorage-replica", "forged"),
    ]
    assert kept_for_client(replica) + for_client(target("0123456789abcdef"), 0.0015, "id-1") == [
        ("Content-Type", "application/json"),
        ("x-request-id", "id-1"),
        ("x-moorage-replica", "0123456789abcdef"),
        ("x-moorage-overhead-ms", "1.500"),
    ]


def test_event_streams_disable_buffering_unless_the_replica_decides():
    plain = dict(kept_for_client([("Content-Type", "text/event-stream; charset=utf-8")]))
    assert plain["X-Accel-Buffering"] == "no"
    assert plain["Cache-Control"] == "no-cache"
    explicit = kept_for_client(
        [("content-type", "text/event-stream"), ("cache-control", "no-store")]
    )
    assert [value for name, value in explicit if name.lower() == "cache-control"] == ["no-store"]
    assert ("X-Accel-Buffering", "no") in explicit


@pytest.mark.parametrize(
    ("query", "sent"),
    [
        ("", ""),
        ("a=1&b", "a=1&b"),
        ("access_token=x", ""),
        ("a=1&access%5ftoken=x&%61ccess_token=y", "a=1"),
    ],
)
def test_replica_gets_no_access_token_in_the_query(query, sent):
    assert query_to_replica(query) == sent


@pytest.mark.parametrize(
    ("reason", "passed"), [("OK", "OK"), ("", ""), (None, None), ("O\rK", None), ("\udcff", None)]
)
def test_reason_phrase_passes_only_if_it_is_printable(reason, passed):
    assert printable_reason(reason) == passed


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream;charset=utf-8", True),
        ("application/json", False),
        ("", False),
    ],
)
def test_is_event_stream(content_type, expected):
    assert is_event_stream(content_type) is expected


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        ("abc-1", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("", False),
        ("a b", False),
        ("a\n", False),
        ("ü", False),
    ],
)
def test_valid_request_id(value, valid):
    assert valid_request_id(value) == (value if valid else None)
    assert valid_request_id(None) is None
