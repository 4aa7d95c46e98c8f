"""Hostile input from clients and engines: none of it holds up the proxy's event loop.

The plane alone runs in the loop: clients and engines are threads. The tests measure the CPU time of
the loop's thread between two looks at its sockets, which other work on the machine does not change.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import random
import selectors
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from hashlib import sha256
from typing import Any

import pytest
from tests.conformance.planes.harness import KEY, PLANES, Served, limited, serving, target

from moorage.common.link.messages import (
    KeyGrant,
    ModelRoute,
    RequestLimits,
    RouteFallback,
    RouteTable,
)
from moorage.proxy.core.apis import APIS, REALTIME, RESPONSES
from moorage.proxy.core.request_body import WHOLE_BYTES

MOST_S = 0.05
TRIES = 5
PAUSE_S = 0.2
MIB = 1 << 20
READ = 256 * 1024  # the most that a loop reads from a socket at a time
LATE_S = 60.0

JSON_PATHS = [path for path, api in APIS.items() if not api.in_form]
FORM_PATHS = [path for path, api in APIS.items() if api.in_form]


class MeasuringSelector(selectors.DefaultSelector):
    """Measures the CPU time of the loop's thread between two selections, which is the time that a
    few callbacks take."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_s = 0.0
        self._since = time.thread_time()

    def reset(self) -> None:
        self._since = time.thread_time()
        self.longest_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.longest_s = max(self.longest_s, time.thread_time() - self._since)
        found = super().select(timeout)
        self._since = time.thread_time()
        return found


class Engine(socketserver.ThreadingTCPServer):
    """Reads each request to its end, sends ``answer`` and closes the connection."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Visit)
        self.answer = b""
        self.port = self.server_address[1]


class _Visit(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Engine)
        length = 0
        while (line := self.rfile.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        while length > 0 and (piece := self.rfile.read(min(length, MIB))):
            length -= len(piece)
        with suppress(OSError):  # the proxy has left
            self.connection.sendall(self.server.answer)


class Stage:
    """A plane in its loop, in front of an engine."""

    def __init__(self, runner: asyncio.Runner, selector: MeasuringSelector, engine: Engine) -> None:
        self._runner = runner
        self._selector = selector
        self.engine = engine
        self.served: Served | None = None
        self._asked = (b"", b"")

    def ask(self, request: bytes, answer: bytes = b"") -> bytes:
        """The proxy's answer to a client that sends ``request``."""
        self._asked = (request, answer)
        self.engine.answer = answer or OK
        self._selector.reset()
        return self._runner.run(asyncio.to_thread(self._converse, request))

    def _converse(self, request: bytes) -> bytes:
        assert self.served is not None
        with socket.create_connection(self.served.address, timeout=LATE_S) as client:
            reader = threading.Thread(target=self._send, args=(client, request))
            reader.start()
            received = []
            with suppress(ConnectionError):
                while piece := client.recv(MIB):
                    received.append(piece)

            reader.join()

        return b"".join(received)

    @staticmethod
    def _send(client: socket.socket, request: bytes) -> None:
        with suppress(OSError):  # the proxy has closed the connection
            client.sendall(request)

    def check(self, name: str) -> None:
        """Compare the shortest of up to five measurements of the last request, with pauses: a
        virtual machine counts time that its host took as the thread's own, and so does a core that
        shares its units with another."""
        longest_s = self._selector.longest_s
        for number in range(1, TRIES):
            if longest_s < MOST_S:
                return

            time.sleep(PAUSE_S * number)
            self.ask(*self._asked)
            longest_s = min(longest_s, self._selector.longest_s)

        assert longest_s < MOST_S, f"{name}: {1000 * longest_s:.0f} ms of the loop at a time"


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[Stage]:
    selector = MeasuringSelector()
    engine = Engine()
    threading.Thread(target=engine.serve_forever, kwargs={"poll_interval": 0.05}).start()
    gc.collect()

    # as the proxy does: otherwise a full collection of all the tests' objects would be measured as
    # well
    gc.freeze()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        stage = Stage(runner, selector, engine)
        stack = AsyncExitStack()
        stage.served = runner.run(
            stack.enter_async_context(
                serving(PLANES[request.param], routes(engine.port), auth="keys")
            )
        )
        limits = RequestLimits(tokens_per_minute=1 << 40)
        usage = limited(stage.served, limits)
        assert usage is not None
        yield stage
        runner.run(stack.aclose())

    gc.unfreeze()
    engine.shutdown()
    engine.server_close()


def routes(port: int) -> RouteTable:
    """``tiny`` has an engine, and is the fallback of ``gone``, which has none."""
    tiny = ModelRoute("tiny", 1, (target("k", port),), prefix_affinity=True)
    gone = ModelRoute("gone", 1, (), fallbacks=(RouteFallback("tiny"),))
    key = KeyGrant(sha256(KEY.encode()).hexdigest(), id="k", project="p")
    return RouteTable(1, (tiny, gone), (key,))


def request(
    body: bytes = b"",
    path: str = "/v1/completions",
    *lines: str,
    method: str = "POST",
    kind: str = "application/json",
) -> bytes:
    fixed = (f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {KEY}")
    framing = ("Connection: close", f"Content-Type: {kind}", f"Content-Length: {len(body)}")
    return "\r\n".join((*fixed, *lines, *framing, "", "")).encode("latin-1") + body


def status(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer[:100]
    return int(answer[9:12])


def some(piece: bytes, size: int, between: bytes = b",") -> bytes:
    return between.join([piece] * (size // (len(piece) + len(between))))


# Requests from clients

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
LARGE = 2 * MIB


def bodies(size: int, model: bytes = b"tiny") -> dict[str, bytes]:
    """JSON bodies and bodies that are almost JSON."""
    names = b",".join(b'"k%d":1' % number for number in range(size // 12))
    values = {
        "numbers": some(b"1", size),
        "strings": some(b'""', size),
        "lists": some(b"[]", size),
        "objects": some(b"{}", size),
        "objects with a model": some(b'{"model":"x"}', size),
        "lists, 8 deep": some(b"[" * 8 + b"1" + b"]" * 8, size),
        "objects, 8 deep": some(b'{"":' * 8 + b"1" + b"}" * 8, size),
        "lists, 800 deep": some(b"[" * 800 + b"]" * 800, size),
        "messages": some(b'{"role":"user","content":[{"type":"text","text":"a b"}]}', size),
    }
    first = b'"model":"%b"' % model

    return {
        "members": b"{%b,%b}" % (first, names),
        "members behind an escape": b'{%b,"\\u0061":1,%b}' % (first, names),
        **{name: b'{%b,"messages":[%b]}' % (first, value) for name, value in values.items()},
        "models": b"{%b}" % some(first, size),
        "repeated members": b"{%b,%b}" % (first, some(b'"n":1', size)),
        "repeated messages": b"{%b,%b}"
        % (first, some(b'"messages":[%b]' % some(b"1", 20_000), size)),
        "escaped names": b"{%b,%b}" % (first, some(b'"\\u006e":1', size)),
        "long text": b'{%b,"prompt":"%b"}' % (first, b"a" * size),
        "escapes": b'{%b,"prompt":"%b"}' % (first, b"\\u00e9" * (size // 6)),
        "long name": b'{%b,"%b":1}' % (first, b"a" * size),
        "long number": b'{%b,"n":%b}' % (first, b"9" * size),
        "long model": b'{"model":"%b"}' % (b"a" * size),
        "spaces": b"{%b%b}" % (first, b" " * size),
        "too deep": b'{%b,"x":%b' % (first, b"[" * size),
        "in UTF-16": ('{"model":"tiny","x":[' + "[]," * (size // 6) + "1]}").encode("utf-16"),
        "no JSON": b"\x00\xff" * (size // 2),
    }


@pytest.mark.parametrize("model", ["tiny", "gone"])
def test_no_body_holds_up_the_loop(running: Stage, model: str) -> None:
    """``gone``: the body is sent to a fallback, with another model in it."""
    for name, body in bodies(LARGE if model == "tiny" else MIB, model.encode()).items():
        answer = running.ask(request(body))
        running.check(name)
        assert status(answer) in (200, 400, 404, 413), (name, answer)


def test_no_body_holds_up_the_loop_at_any_route(running: Stage) -> None:
    large = bodies(MIB)
    small = bodies(WHOLE_BYTES - 1000)
    for path in (*JSON_PATHS, *FORM_PATHS, f"{RESPONSES}/resp_1/cancel", "/p/p/v1/completions"):
        for name, body in (("lists", large["lists"]), ("escaped names", small["escaped names"])):
            answer = running.ask(request(body, path))
            running.check(f"{path}: {name}")
            assert status(answer) in (200, 400, 404, 413), (path, name, answer)


def form(head: bytes, parts: int = 1) -> bytes:
    return (b"--b\r\n" + head + b"\r\n\r\ntiny\r\n") * parts + b"--b--\r\n"


NAMED = b'Content-Disposition: form-data; name="model"'
FORMS = {
    "many lines": form(b"a:\r\n" * (LARGE // 4) + NAMED),
    "many parameters": form(NAMED + b"; a" * (MIB // 3)),
    "many parameters in each part": form(NAMED + b"; a" * 1000, 63),
    "semicolons in quotes": form(NAMED + b'; a="' + b";" * 100_000 + b'"', 63),
    "few semicolons in quotes": form(NAMED + b'; a="' + b"b" * 3900 + b";" * 14, 63),
    "many parts": form(NAMED, 50_000),
    "almost ends": form(NAMED + b"\r\n\r\n" + b"\r\n--c" * (MIB // 5)),
    "no end": b"--b\r\n" + NAMED + b"\r\n\r\n" + b"a" * LARGE,
}
TYPES = {
    "usual": "multipart/form-data; boundary=b",
    "many parameters": "multipart/form-data; boundary=b" + "; a" * 10_000,
    "semicolons in quotes": 'multipart/form-data; boundary=b; a="' + ";" * 30_000,
}


def test_no_form_holds_up_the_loop(running: Stage) -> None:
    for kind, content_type in TYPES.items():
        for name, body in FORMS.items() if kind == "usual" else [("one", form(NAMED))]:
            answer = running.ask(request(body, FORM_PATHS[0], kind=content_type))
            running.check(f"{kind}: {name}")
            assert status(answer) in (200, 400, 413, 431), (kind, name, answer)


LARGEST = 64 * MIB - 4096


def test_no_body_of_the_largest_size_holds_up_the_loop(running: Stage) -> None:
    image = b'"messages":[{"content":"\xc3\xa9"},{"url":"data:image/png;base64,%b"}]'
    image %= b"A" * (LARGEST - 100)
    copied = b'"messages":["%b"]' % (b"\xc3\xa9" + b"A" * (LARGEST // 2))
    named = b"--b\r\n" + NAMED + b"\r\n\r\ntiny\r\n"
    file = named.replace(b'"model"', b'"file"; filename="a"')
    sent = {
        "image": request(b'{"model":"tiny",%b}' % image),
        "image for a fallback": request(b'{%b,"model":"gone"}' % copied),
        **{
            f"form of {content!r}": request(
                named + file.replace(b"tiny", content * (LARGEST // len(content))) + b"--b--\r\n",
                FORM_PATHS[0],
                kind=TYPES["usual"],
            )
            for content in (b"\0", b"\r\n--")
        },
    }
    for name, whole in sent.items():
        assert status(running.ask(whole)) == 200, name
        running.check(name)


def without_data() -> bytes:
    """A deflate stream of tables for codes, each with one code that ends the block."""
    lengths = (1 if symbol in (18, 1) else 0 for symbol in CODE_ORDER)
    fields = [(0, 1), (2, 2), (0, 5), (0, 5), (14, 4), *((length, 3) for length in lengths)]
    fields += [(1, 1), (127, 7), (1, 1), (107, 7), (0, 3)]
    bits = "".join(f"{value:0{width}b}"[::-1] for value, width in fields)
    packed = (bits * 8)[::-1]
    return int(packed, 2).to_bytes(len(bits), "little")


CODE_ORDER = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1)


def compressed() -> dict[str, tuple[bytes, str, int]]:
    """Bodies with their codings, and the statuses that they get."""
    image = b'{"model":"tiny","x":"%b"}' % random.Random(1).randbytes(24 * MIB).hex().encode()
    return {
        "largest": (gzip.compress(image, 1), "gzip", 200),
        "bomb": (gzip.compress(bytes(256 * MIB), 1), "gzip", 413),
        "small bombs": (gzip.compress(bytes(90_000)) * 300, "gzip", 413),
        "too many members": (gzip.compress(b"", mtime=0) * (MIB // 20), "gzip", 413),
        "many members": (gzip.compress(b" ", mtime=0) * 4000, "gzip", 400),
        "tables without data": (without_data() * (8 * MIB // 90), "deflate", 400),
        "no gzip": (bytes(8 * MIB), "gzip", 400),
    }


def test_no_compressed_body_holds_up_the_loop(running: Stage) -> None:
    for name, (body, coding, expected) in compressed().items():
        answer = running.ask(request(body, "/v1/completions", f"Content-Encoding: {coding}"))
        running.check(name)
        assert status(answer) == expected, (name, answer)
        if name == "tables without data":
            assert b"it is truncated" in answer


def test_no_head_holds_up_the_loop(running: Stage) -> None:
    get = request(path="/v1/models", method="GET")
    many = [f"X-{number}: {'a' * 100}" for number in range(480)]
    codings = "Accept-Encoding: " + "a;q=1," * 5000
    heads = {
        "many headers": request(b'{"model":"tiny"}', "/v1/completions", *many),
        "many options": request(b'{"model":"tiny"}', "/v1/completions", "Connection: " + "a," * 15_000),
        "many protocols": request(b"", REALTIME, "Sec-WebSocket-Protocol: " + "a," * 15_000, method="GET"),
        "many codings": request(b'{"model":"tiny"}', "/v1/completions", codings),
        "many fields": request(path="/v1/models?" + "a=b&" * 4000, method="GET"),
        "many escapes": request(b'{"model":"tiny"}', "/v1/completions?" + "%61=1&" * 2600),
        "long path": request(path="/v1/models/" + "%2f" * 5000, method="GET"),
        "many requests at once": get.replace(b"Connection: close\r\n", b"") * 8000 + get,
        "many refusals at once": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20_000 + get,
    }  # fmt: skip
    for name, sent in heads.items():
        assert running.ask(sent)
        running.check(name)


def test_no_framing_holds_up_the_loop(running: Stage) -> None:
    head = request().replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    body = b'{"model":"tiny","prompt":"' + b"a" * 150_000 + b'"}'
    small = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    for name, chunks in {
        "small chunks": small,
        "extensions": small.replace(b"\r\n", b";a=b\r\n", 1),
    }.items():
        running.ask(head + chunks + b"0\r\n\r\n")
        running.check(name)


# Responses from engines


def answer_of(body: bytes, *lines: bytes, kind: bytes = b"application/json") -> bytes:
    fixed = (b"HTTP/1.1 200 OK", b"Content-Type: " + kind, b"Content-Length: %d" % len(body))
    return b"\r\n".join((*fixed, *lines, b"", b"")) + body


STREAM = b"text/event-stream"
GZIP = b"Content-Encoding: gzip"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWERS = {
    "usage without an end": answer_of(some(b'"usage":{', MIB, b"")),
    "usage": answer_of(some(b'"usage":{}', MIB, b"")),
    "lists": answer_of(b'{"x":[' + some(b"[]", MIB) + b"]}"),
    "ends over and over": answer_of(b'{"x":[' + some(b"{}", MIB)),
    "lists, 8 deep": answer_of(b'{"x":[' + some(b"[" * 8 + b"]" * 8, MIB) + b"]}"),
    "empty events": answer_of(b"\n\n" * (MIB // 2), kind=STREAM),
    "small events": answer_of(b"data: 1\n\n" * (MIB // 9), kind=STREAM),
    "large event": answer_of(b'data: {"response":[' + some(b"[]", MIB), kind=STREAM),
    "deep event": answer_of(b'data: {"response":[' + some(b"[" * 8 + b"]" * 8, MIB), kind=STREAM),
    "a bomb": answer_of(gzip.compress(b"\0" * (256 * MIB), 6)[: 2 * READ], GZIP),
    "many members": answer_of(gzip.compress(b"", mtime=0) * (MIB // 20), GZIP),
    "small chunks": CHUNKED + b"1\r\na\r\n" * (MIB // 6) + b"0\r\n\r\n",
    "many headers": answer_of(b"{}", *(b"X-%d: a" % number for number in range(480))),
    "many interim responses": b"HTTP/1.1 100 Continue\r\n\r\n" * (MIB // 25),
    "many responses": OK * (MIB // len(OK)),
}  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/completions", RESPONSES])
def test_no_answer_holds_up_the_loop(running: Stage, path: str) -> None:
    for name, answer in ANSWERS.items():
        assert status(running.ask(request(b'{"model":"tiny"}', path), answer)) in (200, 502), name
        running.check(name)


def test_no_websocket_holds_up_the_loop(running: Stage) -> None:
    offer = request(path=f"{REALTIME}?model=tiny", method="GET").replace(
        b"Connection: close",
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13",
    )
    switch = b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    frames = {
        "empty frames": b"\x81\x00" * (MIB // 2),
        "usage without an end": b"\x81\x7f" + MIB.to_bytes(8) + some(b'"usage":{', MIB, b""),
        "usage": b"\x81\x7f" + MIB.to_bytes(8) + some(b'"usage":{}', MIB, b""),
    }
    for name, sent in frames.items():
        answer = running.ask(offer, switch + sent)
        assert status(answer) == 101, name
        running.check(name)
