"""Heads of requests and responses, parsed strictly by llhttp, with further checks.

A head is separated from the stream at its empty line before llhttp sees it, so a message that
llhttp would end elsewhere is refused.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import unquote

import httptools
from multidict import CIMultiDict

from moorage.common.http.head import HeadGuard
from moorage.proxy.core import headers

if TYPE_CHECKING:
    from mypy_extensions import i64

MAX_URL = 16_384
MAX_HEADER = 32_768
MAX_HEAD = 65_536
MAX_LINES = 512
_MAX_DIGITS: Final = 12
LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: (\d{1,%d})\r\n" % _MAX_DIGITS)
"""Matches the length of a body in a head, in the usual form."""
BARE_LF = re.compile(rb"(?<!\r)\n")
"""Matches a line end that only lenient parsers accept (RFC 9112 §2.2)."""
_DIGITS = re.compile(r"[0-9]{1,18}")
_VERSIONS = {"1.1": (1, 1), "1.0": (1, 0)}
REASONS = {status.value: status.phrase for status in HTTPStatus}
_BODILESS = frozenset({204, 304})


class Pattern:
    """A head without its length, because the next head on a connection usually equals the last one
    except for that."""

    def __init__(self, data: bytes, found: re.Match[bytes], end: int) -> None:
        """``found``: the match of ``LENGTH`` in ``data``. ``end``: the end of the head, after its
        empty line."""
        self._before = data[: found.start(1)]
        self._after = data[found.end(1) : end]
        self._skip = len(self._before)
        self._rest = len(self._after)

    def match(self, data: bytes) -> tuple[int, int]:
        """The length in the head at the start of ``data``, and the end of that head; (-1, 0) if the
        head differs."""
        if not data.startswith(self._before):
            return -1, 0

        begin: i64 = self._skip
        at: i64 = begin
        length: i64 = 0
        size: i64 = len(data)
        while at < size and 0x30 <= data[at] <= 0x39 and at - begin < _MAX_DIGITS:
            length = length * 10 + data[at] - 0x30
            at += 1

        end = at + self._rest
        return (length, end) if at > begin and data[at:end] == self._after else (-1, 0)


class BadHead(Exception):
    """A refused head. ``detail``: the problem, as part of a sentence."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class _Reader:
    """Callbacks of httptools for one message."""

    def __init__(self) -> None:
        self.url = b""
        self.reason = b""
        self.pairs: list[tuple[str, str]] = []
        self.begun = 0
        self.is_complete = False
        self.has_body = False

    def on_message_begin(self) -> None:
        self.begun += 1

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_status(self, reason: bytes) -> None:
        self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self.pairs.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        self.is_complete = True

    def on_body(self, body: bytes) -> None:
        self.has_body = True

    def is_one_head(self) -> bool:
        return self.begun == 1 and self.is_complete and not self.has_body

    def length(self, fields: CIMultiDict[str], *, chunks: bool) -> int | None:
        """The body's length according to the headers, None if it is chunked. Raises ``BadHead``."""
        coding = fields.get("Transfer-Encoding")
        if coding is not None:
            if coding.strip().lower() != "chunked" or not chunks:
                raise BadHead(
                    400, "its Transfer-Encoding is not supported; send chunked with HTTP/1.1"
                )

            return None

        size = fields.get("Content-Length")
        if size is None:
            return -1
        if not _DIGITS.fullmatch(size):
            raise BadHead(400, "its Content-Length is not a number")

        return int(size)


class RequestHead:
    """A request up to its body. ``length``: None if the body is chunked. ``path`` is decoded;
    ``target`` is unchanged. ``is_plain``: similar requests may follow."""

    def __init__(self, head: bytes, guard: HeadGuard) -> None:
        """Raises ``BadHead``."""
        reader = _Reader()
        parser = httptools.HttpRequestParser(reader)
        try:
            parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            pass  # an offer to switch protocols, after whose head an ordinary body follows
        except httptools.HttpParserError as error:
            raise _explain(reader, str(error)) from None

        if not reader.is_one_head():
            raise BadHead(400, "its head does not end where it should")

        _check_sizes(reader)
        self.pairs = reader.pairs
        self.fields = CIMultiDict(reader.pairs)
        version = parser.get_http_version()
        self.version = _VERSIONS.get(version, (int(version[0]), int(version[-1])))
        host = self.fields.get("Host")
        refusal = guard.find_problem(
            self.version, [n.encode("latin-1") for n, _ in self.pairs], host or ""
        )
        if refusal is not None:
            raise BadHead(refusal.status, refusal.detail)
        if host is None and self.version == (1, 1):
            raise BadHead(400, "it has no Host header")

        self.length = reader.length(self.fields, chunks=self.version == (1, 1))
        self.length = 0 if self.length == -1 else self.length
        self.method = parser.get_method().decode("latin-1")
        self.target = _target(reader.url)
        path, _, self.query = self.target.partition("?")
        self.path = unquote(path) if "%" in path else path
        options = headers.connection_options(self.pairs)
        self.keeps_alive = self.version == (1, 1) and "close" not in options
        expects = self.fields.get("Expect", "").lower()
        self.expects_continue = expects == "100-continue" and self.version == (1, 1)
        is_form = "boundary" in self.fields.get("Content-Type", "")
        self.is_plain = (
            self.keeps_alive and not expects and not is_form and "traceparent" not in self.fields
        )


def _target(url: bytes) -> str:
    """The unchanged path and query. Raises ``BadHead``."""
    if url.startswith(b"/"):
        return url.decode("latin-1").partition("#")[0]

    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserError:
        raise BadHead(400, "its URL cannot be read") from None

    path = parsed.path or b"/"
    query = parsed.query
    return (path if query is None else path + b"?" + query).decode("latin-1")


def _explain(reader: _Reader, detail: str) -> BadHead:
    if len(reader.url) > MAX_URL:
        return _too_long(reader)
    return BadHead(400, detail.rstrip(".").lower() or "bad request")


def _check_sizes(reader: _Reader) -> None:
    if len(reader.url) > MAX_URL:
        raise _too_long(reader)
    if len(reader.pairs) > MAX_LINES or any(len(n) + len(v) > MAX_HEADER for n, v in reader.pairs):
        raise _too_long(reader)


def _too_long(reader: _Reader) -> BadHead:
    return BadHead(*too_long(len(reader.url) > MAX_URL))


def too_long(is_url: bool) -> tuple[int, str]:
    """The status and detail for a head that exceeds a limit."""
    return (
        414 if is_url else 431,
        f"its URL is limited to {MAX_URL} bytes, each header to {MAX_HEADER}, all to {MAX_HEAD} "
        "bytes in "
        f"{MAX_LINES} lines",
    )


class ResponseHead:
    """A response up to its body. ``start``: status line and headers for the client, without
    framing.

    ``length``: None if the body is chunked, -1 if it ends with the connection. ``has_date``: False
    if the recipient must add the date (RFC 9110 §6.6.1). ``takes_event``: an event can be added to
    the body. One head can stand for others that differ only in their length.
    """

    def __init__(self, head: bytes) -> None:
        """Raises ``BadHead``."""
        reader = _Reader()
        parser = httptools.HttpResponseParser(reader)
        try:
            parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            raise BadHead(502, "it switches protocols unasked") from None
        except httptools.HttpParserError as error:
            raise BadHead(502, str(error)) from None

        if not reader.is_one_head():
            raise BadHead(502, "its head does not end where it should")
        if len(reader.pairs) > MAX_LINES:
            raise BadHead(502, f"its head has more than {MAX_LINES} lines")

        version = parser.get_http_version()
        self.status = parser.get_status_code()
        if version not in _VERSIONS or not 100 <= self.status <= 999 or self.status == 101:
            raise BadHead(502, f"it has the version {version} and the status {self.status}")

        fields = CIMultiDict(reader.pairs)
        if (
            len(fields.getall("Content-Length", ())) > 1
            or len(fields.getall("Transfer-Encoding", ())) > 1
        ):
            raise BadHead(502, "its length is ambiguous")

        self.length = reader.length(fields, chunks=version == "1.1")
        self.is_bodiless = self.status in _BODILESS
        self.has_length = self.length is not None and self.length >= 0 and not self.is_bodiless
        if self.is_bodiless:
            self.length = 0

        options = headers.connection_options(reader.pairs)
        self.keeps_alive = version == "1.1" and "close" not in options and self.length != -1
        self.content_type = fields.get("Content-Type", "")
        self.coding = ", ".join(fields.getall("Content-Encoding", ()))
        self.has_date = "Date" in fields
        is_stream = headers.is_event_stream(self.content_type)
        self.takes_event = is_stream and not self.has_length and not self.coding
        reason = headers.printable_reason(reader.reason.decode("latin-1"))
        if reason is None:
            reason = REASONS.get(self.status, "")

        kept = headers.kept_for_client(reader.pairs)
        lines = [f"HTTP/1.1 {self.status} {reason}\r\n"]
        lines += [
            f"{name}: {value}\r\n" for name, value in kept if name.lower() != "content-length"
        ]
        self.start = "".join(lines).encode("latin-1")


class ResponseHeads:
    """A parser for response heads, which recognizes heads that differ only in their length."""

    LIMIT: ClassVar = 512

    def __init__(self) -> None:
        self._known: dict[bytes, ResponseHead] = {}

    def read(self, data: bytes, end: int) -> tuple[ResponseHead, int | None, Pattern | None]:
        """Read the head in ``data[:end]``, which ends with its empty line; return it with the
        length of its body as in ``ResponseHead`` and the pattern of similar heads. Raises
        ``BadHead``."""
        found = LENGTH.search(data, 0, end - 2)
        key = data[:end] if found is None else data[: found.start(1)] + data[found.end(1) : end]
        head = self._known.get(key)
        if head is None:
            head = ResponseHead(data[:end])
            if len(self._known) >= self.LIMIT:
                self._known.clear()

            self._known[key] = head

        if found is None or head.is_bodiless:
            return head, head.length, None

        return head, int(found[1]), Pattern(data, found, end)
