"""Header filter: selects the headers that cross the proxy, in both directions. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

HeaderPairs = Iterable[tuple[str, str]]

# RFC 9110 §7.6.1, and headers that older peers still send.
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
# The client's credentials are for the proxy, not for the engine. The others are set anew for the next hop.
_NOT_UPSTREAM = _HOP_BY_HOP | {
    "authorization",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "x-api-key",
    "x-request-id",
}
_NOT_DOWNSTREAM = _HOP_BY_HOP | {"x-request-id", "x-moorage-replica", "x-moorage-overhead-ms"}

_REQUEST_ID = re.compile(r"^[\x21-\x7e]{1,128}$")


def hop_by_hop_names(pairs: list[tuple[str, str]]) -> frozenset[str]:
    """Names, in lower case, of the headers in ``pairs`` that apply to this connection only."""
    return _HOP_BY_HOP | _named_by_connection(pairs)


def _named_by_connection(pairs: list[tuple[str, str]]) -> frozenset[str]:
    values = [value for name, value in pairs if name.lower() == "connection"]
    if not values:
        return frozenset()
    return frozenset(option.strip().lower() for value in values for option in value.split(","))


def to_replica(client: HeaderPairs, key: str, request_id: str) -> list[tuple[str, str]]:
    """The client's headers for a replica. ``key``: the replica's own key, "" if it has none."""
    pairs = list(client)
    dropped = _NOT_UPSTREAM | _named_by_connection(pairs)
    kept = [(name, value) for name, value in pairs if name.lower() not in dropped]
    if key:
        kept.append(("Authorization", f"Bearer {key}"))
    kept.append(("X-Request-Id", request_id))
    return kept


def to_client(
    replica: HeaderPairs, kernel_id: str, overhead_s: float, request_id: str
) -> list[tuple[str, str]]:
    """The replica's headers for the client, plus the proxy's own. ``overhead_s``: time spent in the proxy."""
    pairs = list(replica)
    dropped = _NOT_DOWNSTREAM | _named_by_connection(pairs)
    kept = [(name, value) for name, value in pairs if name.lower() not in dropped]
    values = {name.lower(): value for name, value in kept}
    if is_event_stream(values.get("content-type", "")):
        # Otherwise a web server in front of the proxy buffers the events.
        if "x-accel-buffering" not in values:
            kept.append(("X-Accel-Buffering", "no"))
        if "cache-control" not in values:
            kept.append(("Cache-Control", "no-cache"))
    kept.append(("x-request-id", request_id))
    kept.append(("x-moorage-replica", kernel_id[:12]))
    kept.append(("x-moorage-overhead-ms", f"{overhead_s * 1000:.3f}"))
    return kept


def is_event_stream(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "text/event-stream"


def valid_request_id(value: str | None) -> str | None:
    """``value`` if it is safe to echo and to log: at most 128 visible ASCII characters. Otherwise None."""
    return value if value is not None and _REQUEST_ID.match(value) else None
