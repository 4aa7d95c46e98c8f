"""Header filter: selects the headers that cross the proxy, in both directions. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

from moorage.common.http.cors import CONTROLS
from moorage.common.link.messages import Target
from moorage.proxy.core.asserted_headers import is_asserted
from moorage.proxy.core.content_coding import offered
from moorage.proxy.core.secret_form import has_secret

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
# The client's credentials are for the proxy, not the engine: client libraries' key headers, and
# cookies, including those of apps. The other headers are set again for the next hop.
_NOT_UPSTREAM = _HOP_BY_HOP | {
    "api-key",
    "authorization",
    "content-encoding",  # replicas get the expanded body
    "content-length",
    "cookie",
    "expect",
    "host",
    "http2-settings",
    # An engine may refuse pages of other origins. Which of them may ask is decided here.
    "origin",
    "x-api-key",
    "x-goog-api-key",
    "x-request-id",
}
NOT_FROM_A_KERNEL = frozenset(
    {
        # In browsers, these affect the whole origin or site, which others share.
        "accept-ch",
        "alt-svc",
        "clear-site-data",
        "critical-ch",
        "nel",
        "public-key-pins",
        "report-to",
        "reporting-endpoints",
        "service-worker-allowed",
        "set-cookie2",
        "strict-transport-security",
        # These make web servers in front of the proxy serve other resources.
        "x-accel-charset",
        "x-accel-expires",
        "x-accel-limit-rate",
        "x-accel-redirect",
        "x-lighttpd-send-file",
        "x-reproxy-url",
        "x-sendfile",
        # The proxy's own headers.
        "x-moorage-budget-warning",
        "x-moorage-error",
        "x-moorage-idle-ends-at",
        "x-moorage-model",
        "x-moorage-overhead-ms",
        "x-moorage-replica",
        "x-request-id",
    }
)
"""Response headers, in lower case, with which a program in a session would have effects beyond its
own responses."""
# Outside providers' headers about the account and its limits, which are not the client's.
_OF_ACCOUNT = frozenset(
    {"openai-organization", "openai-project"}
    | {
        f"x-ratelimit-{of}-{kind}"
        for of in ("limit", "remaining", "reset")
        for kind in ("requests", "tokens")
    }
)
# Which pages of other origins may read a response is decided here, for all engines.
_NOT_DOWNSTREAM = _HOP_BY_HOP | NOT_FROM_A_KERNEL | _OF_ACCOUNT | CONTROLS | {"set-cookie"}
# The only client headers that an outside provider gets.
_TO_PROVIDER = frozenset({"accept", "accept-encoding", "content-type"})

# The prefix of the protocol with the key that OpenAI's clients offer in browsers, which cannot set
# headers.
_KEY_PROTOCOL = "openai-insecure-api-key."
_ACCEPTS = "accept-encoding"
_PROTOCOLS = "sec-websocket-protocol"
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


def hop_by_hop_names(pairs: list[tuple[str, str]]) -> frozenset[str]:
    """The names, in lower case, of the headers in ``pairs`` that apply only to this connection."""
    return _HOP_BY_HOP | connection_options(pairs)


def connection_options(pairs: list[tuple[str, str]]) -> frozenset[str]:
    """The options in the Connection headers, in lower case: header names, ``close``,
    ``keep-alive``."""
    values = [value for name, value in pairs if name.lower() == "connection"]
    if not values:
        return frozenset()
    return frozenset(option.strip().lower() for value in values for option in value.split(","))


def kept_for_replica(
    client: HeaderPairs,
    *,
    uncompressed: bool = False,
    without: frozenset[str] = frozenset(),
    is_trusted: bool = False,
) -> list[tuple[str, str]]:
    """The client's headers that a replica gets. The proxy's own headers from ``for_replica`` are
    added for each request. ``uncompressed``: the replica must not compress its response; otherwise,
    it can use codings that can be read here (``content_coding``). ``without``: names to leave out,
    in lower case. ``is_trusted``: the peer is a web server whose headers about the client pass."""
    pairs = list(client)
    dropped = _NOT_UPSTREAM | connection_options(pairs) | without
    if uncompressed:
        dropped |= {_ACCEPTS}

    kept = [
        (name, value)
        for name, value in pairs
        if name.lower() not in dropped and (is_trusted or not is_asserted(name))
    ]
    return [(name, offered(value) if name.lower() == _ACCEPTS else value) for name, value in kept]


def kept_for_provider(client: HeaderPairs, *, uncompressed: bool = False) -> list[tuple[str, str]]:
    """The client's headers that an outside provider gets."""
    kept = kept_for_replica(client, uncompressed=uncompressed)
    return [pair for pair in kept if pair[0].lower() in _TO_PROVIDER] + [("User-Agent", "moorage")]


def for_replica(key: str) -> list[tuple[str, str]]:
    """The proxy's own headers for a replica, in addition to X-Request-Id. ``key``: the replica's
    own key, empty if it has none."""
    return [("Authorization", f"Bearer {key}")] if key else []


def kept_for_client(replica: HeaderPairs) -> list[tuple[str, str]]:
    """The replica's headers that the client gets. Those from ``for_client`` are added."""
    pairs = list(replica)
    dropped = _NOT_DOWNSTREAM | connection_options(pairs)
    kept = [(name, value) for name, value in pairs if name.lower() not in dropped]
    values = {name.lower(): value for name, value in kept}
    if is_event_stream(values.get("content-type", "")):
        # Otherwise a web server in front of the proxy would buffer the events.
        if "x-accel-buffering" not in values:
            kept.append(("X-Accel-Buffering", "no"))
        if "cache-control" not in values:
            kept.append(("Cache-Control", "no-cache"))

    return kept


def bearer_key(fields: Mapping[str, str]) -> str:
    """The key in Authorization; empty if there is none, or only another scheme's credentials."""
    scheme, _, key = fields.get("Authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def key_in_protocols(protocols: str) -> str:
    """The key among the protocols offered by a WebSocket client; empty if there is none."""
    offered = (protocol.strip() for protocol in protocols.split(","))
    return next((p.removeprefix(_KEY_PROTOCOL) for p in offered if p.startswith(_KEY_PROTOCOL)), "")


def upgrade_for_replica(
    client: HeaderPairs, without: frozenset[str] = frozenset(), *, is_trusted: bool = False
) -> list[tuple[str, str]]:
    """The client's headers for a replica that should switch to a WebSocket, without the key, and
    without an offer to compress, so that the tokens in the messages can be counted."""
    kept = [("Connection", "Upgrade"), ("Upgrade", "websocket")]
    for name, value in kept_for_replica(client, without=without, is_trusted=is_trusted):
        if name.lower() == _PROTOCOLS:
            offered = (protocol.strip() for protocol in value.split(","))
            value = ", ".join(p for p in offered if not p.startswith(_KEY_PROTOCOL))
        if value and name.lower() != "sec-websocket-extensions":
            kept.append((name, value))

    return kept


def upgrade_for_client(replica: HeaderPairs) -> list[tuple[str, str]]:
    """The headers for the client from a replica that has switched to a WebSocket."""
    return [("Connection", "Upgrade"), ("Upgrade", "websocket"), *kept_for_client(replica)]


def name_of(replica: Target) -> str:
    """The answering target's name for clients: the id of the replica's session, which commands and
    the REST API accept, or an outside provider's position among the fallbacks. The id is not
    shortened, because a common prefix means that ids were created at the same time, not that they
    are the same replica."""
    return replica.session_id or replica.kernel_id


def for_client(replica: Target, overhead_s: float, request_id: str) -> list[tuple[str, str]]:
    """The proxy's own headers for the client. ``overhead_s``: time spent in the proxy."""
    return [
        ("x-request-id", request_id),
        ("x-moorage-replica", name_of(replica)),
        ("x-moorage-overhead-ms", f"{overhead_s * 1000:.3f}"),
    ]


def query_to_replica(query: str) -> str:
    """The raw query string for a replica, without access tokens, which are only for apps, and
    without anything else that looks like a Moorage credential."""
    if not query:
        return ""
    fields = query.split("&")
    return "&".join(
        field
        for field in fields
        if unquote(field.partition("=")[0]).lower() != "access_token"
        and not has_secret(unquote(field))
    )


def printable_reason(reason: str | None) -> str | None:
    """A response's reason phrase if it is safe to pass on, otherwise None for the usual one."""
    return reason if reason is not None and reason.isascii() and reason.isprintable() else None


def is_event_stream(content_type: str) -> bool:
    if content_type == "application/json":
        return False  # a fast path for the usual case
    return content_type.partition(";")[0].strip().lower() == "text/event-stream"


def valid_request_id(value: str | None) -> str | None:
    """``value`` if it is safe to echo and log, with at most 128 visible ASCII characters; otherwise
    None."""
    return value if value is not None and _REQUEST_ID.fullmatch(value) else None
