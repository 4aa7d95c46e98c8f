"""Which headers cross the proxy, in both directions. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

Pairs = Iterable[tuple[str, str]]

# RFC 9110 §7.6.1, and what older peers still send.
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# The client's credentials are for us, not for the engine; the rest is set anew for the next hop.
_NOT_UP = _HOP_BY_HOP | {
    "authorization",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "x-api-key",
    "x-request-id",
}
_NOT_DOWN = _HOP_BY_HOP | {"x-request-id", "x-moorage-replica", "x-moorage-overhead-ms"}

_REQUEST_ID = re.compile(r"^[\x21-\x7e]{1,128}$")


def of_this_hop(pairs: list[tuple[str, str]]) -> frozenset[str]:
    """Names, in small letters, of what is only between two neighbours."""
    return _HOP_BY_HOP | _named_by_connection(pairs)


def _named_by_connection(pairs: list[tuple[str, str]]) -> frozenset[str]:
    named = [value for name, value in pairs if name.lower() == "connection"]
    if not named:
        return frozenset()
    return frozenset(word.strip().lower() for value in named for word in value.split(","))


def to_replica(client: Pairs, key: str, request_id: str) -> list[tuple[str, str]]:
    """The client's headers for the replica that is guarded by ``key`` (may be empty: no guard)."""
    pairs = list(client)
    dropped = _NOT_UP | _named_by_connection(pairs)
    kept = [(name, value) for name, value in pairs if name.lower() not in dropped]
    if key:
        kept.append(("Authorization", f"Bearer {key}"))
    kept.append(("X-Request-Id", request_id))
    return kept


def to_client(replica: Pairs, kernel_id: str, overhead_s: float, request_id: str) -> list[tuple[str, str]]:
    """The replica's headers for the client, with ours added. ``overhead_s``: time spent in the proxy."""
    pairs = list(replica)
    dropped = _NOT_DOWN | _named_by_connection(pairs)
    kept = [(name, value) for name, value in pairs if name.lower() not in dropped]
    said = {name.lower(): value for name, value in kept}
    if is_event_stream(said.get("content-type", "")):
        # Or a web server in front of us gathers the events before it passes them on.
        if "x-accel-buffering" not in said:
            kept.append(("X-Accel-Buffering", "no"))
        if "cache-control" not in said:
            kept.append(("Cache-Control", "no-cache"))
    kept.append(("x-request-id", request_id))
    kept.append(("x-moorage-replica", kernel_id[:12]))
    kept.append(("x-moorage-overhead-ms", f"{overhead_s * 1000:.3f}"))
    return kept


def is_event_stream(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "text/event-stream"


def usable_request_id(given: str | None) -> str | None:
    """The client's request id if it can be echoed and logged: at most 128 visible ASCII characters."""
    return given if given is not None and _REQUEST_ID.match(given) else None
