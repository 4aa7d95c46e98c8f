"""Which headers cross the proxy."""

from __future__ import annotations

import pytest

from moorage.proxy.core.headers import is_event_stream, to_client, to_replica, usable_request_id


def test_to_the_replica_go_its_key_and_nothing_of_the_connection():
    client = [
        ("Host", "models.example"),
        ("authorization", "Bearer client-secret"),
        ("X-API-Key", "client-secret"),
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
    assert to_replica(client, "replica-key", "id-1") == [
        ("Content-Type", "application/json"),
        ("traceparent", "00-abc-def-01"),
        ("Accept", "text/event-stream"),
        ("Authorization", "Bearer replica-key"),
        ("X-Request-Id", "id-1"),
    ]


def test_a_replica_without_a_key_gets_no_authorization():
    assert to_replica([("Authorization", "Bearer client-secret")], "", "id") == [("X-Request-Id", "id")]


def test_to_the_client_go_our_headers_and_nothing_of_the_connection():
    replica = [
        ("Content-Type", "application/json"),
        ("Connection", "close"),
        ("Transfer-Encoding", "chunked"),
        ("X-Request-Id", "engine's"),
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
    ]
    assert to_client(replica, "0123456789abcdef", 0.0015, "id-1") == [
        ("Content-Type", "application/json"),
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
        ("x-request-id", "id-1"),
        ("x-moorage-replica", "0123456789ab"),
        ("x-moorage-overhead-ms", "1.500"),
    ]


def test_event_streams_are_marked_unless_the_replica_says_otherwise():
    plain = dict(to_client([("Content-Type", "text/event-stream; charset=utf-8")], "k", 0, "id"))
    assert plain["X-Accel-Buffering"] == "no"
    assert plain["Cache-Control"] == "no-cache"
    told = to_client([("content-type", "text/event-stream"), ("cache-control", "no-store")], "k", 0, "id")
    assert [value for name, value in told if name.lower() == "cache-control"] == ["no-store"]
    assert ("X-Accel-Buffering", "no") in told


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
    ("given", "kept"),
    [("abc-1", True), ("x" * 128, True), ("x" * 129, False), ("", False), ("a b", False), ("ü", False)],
)
def test_usable_request_id(given, kept):
    assert usable_request_id(given) == (given if kept else None)
    assert usable_request_id(None) is None
