"""Requests as bytes, for the scripted engine: what HTTP/1.1 allows and few clients send, and what
it does not allow. Each is sent by a plain socket, once directly and once through each data plane.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

CHAT = "/v1/chat/completions"
END = b"\r\n\r\n"


@dataclass(frozen=True)
class Raw:
    """``sent``: the pieces to send, with a pause between them. ``answers``: the methods whose
    answers are read, in order. ``half_closes``: the client ends its side after it has sent.
    ``awaits_continue``: the second piece follows the answer 100."""

    sent: tuple[bytes, ...]
    answers: tuple[str, ...] = ("POST",)
    half_closes: bool = False
    awaits_continue: bool = False


def body_of(said: str = "hello", **members: object) -> bytes:
    asked = {"model": "tiny", "messages": [{"role": "user", "content": said}], **members}
    return json.dumps(asked).encode()


BODY = body_of()
LENGTH = f"Content-Length: {len(BODY)}"
CHUNKED = "Transfer-Encoding: chunked"
JSON = "Content-Type: application/json"


def head(*lines: str, line: str = f"POST {CHAT} HTTP/1.1", key: str = "KEY") -> bytes:
    """A head with the place's key, whose placeholder is KEY; an empty ``key`` leaves it out."""
    authorization = (f"Authorization: Bearer {key}",) if key else ()
    written = (line, "Host: localhost", *authorization, *lines)
    return "\r\n".join((*written, "", "")).encode("latin-1")


def post(*lines: str, body: bytes = BODY, line: str = f"POST {CHAT} HTTP/1.1") -> bytes:
    return head(JSON, f"Content-Length: {len(body)}", *lines, line=line) + body


def get(*lines: str, path: str = "/v1/models", method: str = "GET", version: str = "1.1") -> bytes:
    return head(*lines, line=f"{method} {path} HTTP/{version}")


def chunks(*pieces: bytes, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    written = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
    return written + b"0\r\n" + trailer + b"\r\n"


def _methods() -> Iterator[tuple[str, Raw]]:
    yield "GET of the models", Raw((get(),), ("GET",))
    yield "HEAD of the models", Raw((get(method="HEAD"),), ("HEAD",))
    yield "HEAD, then GET", Raw((get(method="HEAD") + get(),), ("HEAD", "GET"))
    yield "GET of one model", Raw((get(path="/v1/models/tiny"),), ("GET",))
    yield "GET of an unknown model", Raw((get(path="/v1/models/none"),), ("GET",))
    yield "GET where POST is meant", Raw((get(path=CHAT),), ("GET",))
    yield "DELETE of the models", Raw((get(method="DELETE"),), ("DELETE",))
    yield "PUT of a chat", Raw((post(line=f"PUT {CHAT} HTTP/1.1"),), ("PUT",))
    yield "unknown method", Raw((get(method="BREW"),), ("BREW",))
    yield "lower-case method", Raw((get(method="get"),), ("GET",))
    yield "unknown path", Raw((get(path="/v1/none"),), ("GET",))
    yield (
        "GET with a body",
        Raw((head(JSON, LENGTH, line="GET /v1/models HTTP/1.1") + BODY,), ("GET",)),
    )


def _targets() -> Iterator[tuple[str, Raw]]:
    for name, path in {
        "query": f"{CHAT}?a=1&b=%20",
        "empty query": f"{CHAT}?",
        "percent-encoded letter": "/v1/chat/%63ompletions",
        "percent-encoded slash": "/v1/chat%2Fcompletions",
        "double slash": "/v1//chat/completions",
        "dot segments": "/v1/x/../chat/completions",
        "trailing slash": f"{CHAT}/",
        "fragment": f"{CHAT}#a",
        "upper case": "/V1/chat/completions",
        "absolute form": f"http://localhost{CHAT}",
        "absolute form in upper case": f"HTTP://localhost{CHAT}",
        "query of 3,000 characters": f"{CHAT}?{'q' * 3000}",
        "query of 100,000 characters": f"{CHAT}?{'q' * 100_000}",
    }.items():
        yield f"target: {name}", Raw((post(line=f"POST {path} HTTP/1.1"),))

    yield "target: asterisk", Raw((get(method="OPTIONS", path="*"),), ("OPTIONS",))
    yield "target: HTTP/1.1 with two spaces", Raw((post(line=f"POST  {CHAT} HTTP/1.1"),))


def _headers() -> Iterator[tuple[str, Raw]]:
    for name, lines in {
        "odd case of names": ("cOnTeNt-LaNgUaGe: en", "x-CUSTOM: a"),
        "no space after the colon": ("X-Custom:a",),
        "spaces and tabs around a value": ("X-Custom: \t a \t ",),
        "empty value": ("X-Custom:",),
        "the same name twice": ("X-Custom: a", "X-Custom: b"),
        "value of 4,000 characters": (f"X-Other: {'v' * 4000}",),
        "a hundred lines": tuple(f"X-{number}: 1" for number in range(100)),
        "value beyond ASCII": ("X-Other: caf\xe9",),
        "Accept-Encoding": ("Accept-Encoding: gzip, br",),
        "Connection names a header": ("Connection: X-Other", "X-Other: 1"),
        "TE": ("TE: trailers", "Connection: TE"),
        "Upgrade to h2c": ("Connection: Upgrade", "Upgrade: h2c"),
        "Keep-Alive": ("Connection: keep-alive", "Keep-Alive: timeout=5"),
        "Range": ("Range: bytes=0-3",),
        "If-None-Match": ('If-None-Match: "a"',),
        "cookie": ("Cookie: a=1; b=2",),
        "line of 100,000 characters": (f"X-Other: {'v' * 100_000}",),
        "space before the colon": ("X-Other : 1",),
        "line without a colon": ("X-Other",),
        "folded line": ("X-Other: 1\r\n 2",),
        "NUL": ("X-Other: a\0b",),
        "two hosts": ("Host: localhost",),
    }.items():
        yield f"header: {name}", Raw((post(*lines, body=body_of("headers")),))

    bare = f"POST {CHAT} HTTP/1.1\r\nAuthorization: Bearer KEY\r\n{JSON}\r\n{LENGTH}"
    yield "header: no host", Raw((bare.encode() + END + BODY,))
    yield "header: bare line feeds", Raw((post().replace(b"\r\n", b"\n"),))
    yield "header: empty line before", Raw((b"\r\n" + post(),))
    yield "header: sent by bytes", Raw(tuple(bytes([byte]) for byte in get()), ("GET",))


def _bodies() -> Iterator[tuple[str, Raw]]:
    for name, sent in {
        "one chunk": chunks(BODY),
        "chunks of one byte": chunks(*(bytes([byte]) for byte in BODY)),
        "chunk extension": chunks(BODY, extension=b";name=value"),
        "trailer": chunks(BODY, trailer=b"X-Trailer: 1\r\n"),
        "size in upper case with zeros": b"000%X\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
        "malformed size": b"xyz\r\n{}\r\n0\r\n\r\n",
        "no line end after the data": b"2\r\n{}0\r\n\r\n",
    }.items():
        yield f"chunked: {name}", Raw((head(JSON, CHUNKED) + sent,))

    sent = (head(JSON, CHUNKED), chunks(BODY[:10])[:-5], chunks(BODY[10:]))
    yield "chunked: in pieces", Raw(sent)
    yield "chunked: in odd case", Raw((head(JSON, "transfer-ENCODING: CHUNKED") + chunks(BODY),))
    yield "chunked and a length", Raw((head(JSON, CHUNKED, LENGTH) + chunks(BODY),))
    yield "other coding", Raw((head(JSON, "Transfer-Encoding: gzip, chunked") + chunks(BODY),))
    yield "no length", Raw((head(JSON),))
    yield "two lengths", Raw((head(JSON, LENGTH, "Content-Length: 3") + BODY,))
    yield "length with a sign", Raw((head(JSON, f"Content-Length: +{len(BODY)}") + BODY,))
    yield "length of zero", Raw((post(body=b""),))
    yield "not JSON", Raw((post(body=b"{"),))
    yield "body of 2 MB", Raw((post(body=body_of("x" * 2_000_000)),))
    yield "body in pieces", Raw((post()[:-20], post()[-20:]))
    yield "Expect", Raw((head(JSON, LENGTH, "Expect: 100-continue"), BODY), awaits_continue=True)
    yield (
        "Expect in odd case",
        Raw((head(JSON, LENGTH, "expect: 100-CONTINUE"), BODY), awaits_continue=True),
    )
    yield "Expect of something else", Raw((head(JSON, LENGTH, "Expect: tea") + BODY,))
    yield (
        "Expect, chunked",
        Raw((head(JSON, CHUNKED, "Expect: 100-continue"), chunks(BODY)), awaits_continue=True),
    )


def _connections() -> Iterator[tuple[str, Raw]]:
    yield "three in a row", Raw((post(), post(), get()), ("POST", "POST", "GET"))
    yield "three at once", Raw((post() + get() + post(),), ("POST", "GET", "POST"))
    yield "ten at once", Raw((post() * 10,), ("POST",) * 10)
    yield "Connection: close", Raw((post("Connection: close"),))
    yield "Connection: Close, in a list", Raw((post("Connection: x, Close"),))
    yield "close, then another", Raw((post("Connection: close") + get(),))
    yield "HTTP/1.0", Raw((get(version="1.0"),), ("GET",))
    yield "HTTP/1.0 keep-alive", Raw((get("Connection: keep-alive", version="1.0"),), ("GET",))
    yield "HTTP/1.0 chat", Raw((post(line=f"POST {CHAT} HTTP/1.0"),))
    streamed = post(body=body_of(stream=True), line=f"POST {CHAT} HTTP/1.0")
    yield "HTTP/1.0 stream", Raw((streamed,))
    yield "HTTP/1.2", Raw((get(version="1.2"),), ("GET",))
    yield "HTTP/2.0", Raw((get(version="2.0"),), ("GET",))
    yield "half-close within a body", Raw((post()[:-5],), half_closes=True)
    yield "half-close within a head", Raw((post()[:40],), half_closes=True)


def _answers() -> Iterator[tuple[str, Raw]]:
    for status in (400, 403, 404, 409, 418, 422, 429, 500, 502, 503, 504, 529):
        yield (
            f"answer: {status}",
            Raw((post(body=body_of(f"status:{status}")) + get(),), ("POST", "GET")),
        )
    for status in (201, 204, 302, 304):
        yield (
            f"answer: bare {status}",
            Raw((post(body=body_of(f"bare:{status}")) + get(),), ("POST", "GET")),
        )

    stream = body_of("hello", stream=True)
    yield "answer: stream", Raw((post(body=stream) + get(),), ("POST", "GET"))
    yield "answer: slow stream", Raw((post(body=body_of("pace:0.02", stream=True)),))
    yield "answer: cut within a stream", Raw((post(body=body_of("cut", stream=True)),))
    yield "answer: cut within a length", Raw((post(body=body_of("cut")),))
    yield "answer: 1 MB", Raw((post(body=body_of("long:1000000")) + get(),), ("POST", "GET"))
    wrong = head(JSON, "Content-Length: 1000000", key="wrong")
    yield "answer: before the body", Raw((wrong + b"{" * 100,))
    yield "answer: to no key", Raw((head(JSON, LENGTH, key="") + BODY,))
    expecting = head(JSON, LENGTH, "Expect: 100-continue", key="wrong")
    yield "answer: before the body that is expected", Raw((expecting,))


REQUESTS = dict((*_methods(), *_targets(), *_headers(), *_bodies(), *_connections(), *_answers()))
