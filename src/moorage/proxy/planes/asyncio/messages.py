"""Messages as bytes: requests for replicas, the proxy's own responses, and decisions about
heads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from moorage.common.link.messages import Target
from moorage.proxy.core import headers
from moorage.proxy.core.commands import StartResponse
from moorage.proxy.core.flow import RequestFlow
from moorage.proxy.core.traced_flow import replaced_headers
from moorage.proxy.planes.asyncio.heads import REASONS, RequestHead

_THOUSANDTHS: Final = [f".{number:03}" for number in range(1000)]


class KnownHead:
    """The decision about a head, with the caller and the headers for a replica. ``expires``: when
    the key expires. ``max_body``: the largest body that is certainly admitted, in bytes.
    ``is_trusted``: the peer is a web server whose headers about the client
    pass."""

    LIMIT: ClassVar = 64

    def __init__(self, head: RequestHead, flow: RequestFlow, *, is_trusted: bool) -> None:
        admitted = flow.admitted
        assert admitted is not None
        self._pairs = head.pairs
        without = replaced_headers(flow)
        self._kept = lines(
            headers.kept_for_replica(
                head.pairs,
                uncompressed=admitted.reads_answer,
                without=without,
                is_trusted=is_trusted,
            )
        )
        query = headers.query_to_replica(head.query)
        self._query = f"?{query}" if query else ""
        self.admitted = admitted
        self.max_body = admitted.limit.size
        self.expires = admitted.key is not None and admitted.key.expires_at > 0
        self._lines: dict[str, tuple[Target, bytes]] = {}

    def for_replica(self, path: str, target: Target, request_id: str, length: int) -> bytes:
        """The head of the request for ``target``."""
        known = self._lines.get(target.kernel_id)
        if known is None or known[0] is not target:
            host = f"[{target.host}]" if ":" in target.host else target.host
            query = self._query
            kept = self._kept
            if target.tls:
                uncompressed = self.admitted.reads_answer
                query = ""
                kept = lines(headers.kept_for_provider(self._pairs, uncompressed=uncompressed))

            first = (
                f"{self.admitted.method} {path}{query} HTTP/1.1\r\nHost: {host}:{target.port}\r\n"
            )
            known = target, first.encode("latin-1") + kept + lines(headers.for_replica(target.key))
            if len(self._lines) >= self.LIMIT:
                self._lines.clear()

            self._lines[target.kernel_id] = known

        return known[1] + f"X-Request-Id: {request_id}\r\nContent-Length: {length}\r\n\r\n".encode()


class KnownHeads:
    """Decisions about heads, by the bytes of the head without the length. They are valid for one
    revision of credentials, and for peers that are all trusted or all not."""

    LIMIT: ClassVar = 1024
    LONGEST: ClassVar = 4096

    def __init__(self) -> None:
        self._revision = -1
        self._known: dict[bytes, KnownHead] = {}

    def get(self, key: bytes, revision: int) -> KnownHead | None:
        if revision != self._revision:
            self._known.clear()
            self._revision = revision
        return self._known.get(key)

    def put(self, key: bytes, known: KnownHead) -> None:
        if len(self._known) >= self.LIMIT:
            self._known.clear()
        self._known[key] = known


def lines(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Header lines."""
    return "".join([f"{name}: {value}\r\n" for name, value in pairs]).encode("latin-1", "replace")


def own_lines(flow: RequestFlow, start: StartResponse) -> bytes:
    """The proxy's own header lines for a replica's response."""
    assert flow.target is not None
    us = int(start.overhead_s * 1e6 + 0.5)
    own = (
        f"x-request-id: {flow.request_id}\r\nx-moorage-replica: {headers.name_of(flow.target)}\r\n"
        f"x-moorage-overhead-ms: {us // 1000}{_THOUSANDTHS[us % 1000]}\r\n"
    ).encode()
    if start.more:
        own += lines(start.more)

    return own + lines(flow.cors) if flow.cors else own


def own_response(
    status: int, date: bytes, pairs: Iterable[tuple[str, str]], *, body: bytes, with_body: bool
) -> bytes:
    """A response from the proxy itself. ``date``: its header line."""
    head = f"HTTP/1.1 {status} {REASONS.get(status, '')}\r\n".encode()
    length = b"\r\n" if status == 204 else b"Content-Length: %d\r\n\r\n" % len(body)
    return b"".join((head, date, lines(pairs), length, body if with_body else b""))
