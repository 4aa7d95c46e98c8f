"""Stored responses: requested from the replica that created them, and never for another project."""

from __future__ import annotations

import hashlib
import json

import pytest
from flow_playbook import describe
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from moorage.common.config.settings import ProxySettings
from moorage.common.link.messages import KeyGrant, ModelRoute, RouteTable, Target
from moorage.common.model.ids import KernelId, SessionId
from moorage.proxy.core.admission import BodyRequired
from moorage.proxy.core.commands import StartResponse
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.flow import RequestFlow
from moorage.proxy.core.limits.ledger import Ledger, cells_needed
from moorage.proxy.core.limits.reservation import RequestLimiter
from moorage.proxy.core.metrics import ProxyMetrics
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.core.response_homes import (
    KEPT_S,
    Home,
    ResponseHomes,
    ResponseReader,
    bytes_needed,
    owner_of,
)
from moorage.proxy.core.retry import Failure
from moorage.proxy.core.usage_book import UsageBook

RESPONSES = "/v1/responses"
USAGE = {"input_tokens": 5, "output_tokens": 7}


def homes(sets: int = 2) -> ResponseHomes:
    return ResponseHomes(memoryview(bytearray(bytes_needed(sets))))


def home(kernel: str = "k1", *, is_counted: bool = True) -> Home:
    return Home("tiny", KernelId(kernel), is_counted)


def test_response_is_found_by_its_owner_until_it_is_forgotten() -> None:
    table = homes()
    table.remember("resp_1", "project p", home(), 10.0)
    assert table.find("resp_1", "project p", 11.0) == home()
    assert table.find("resp_1", "project q", 11.0) is None
    assert table.find("resp_2", "project p", 11.0) is None
    assert table.find("resp_1", "project p", 10.0 + KEPT_S) is None


def test_id_that_two_owners_have_is_nobodys() -> None:
    """Some engines let a client choose the id, so it could choose one that belongs to another
    project."""
    table = homes()
    table.remember("resp_1", "project p", home(), 1.0)
    table.remember("resp_1", "project q", home("k2"), 2.0)
    table.remember("resp_1", "project p", home(), 3.0)
    assert table.find("resp_1", "project p", 4.0) is None
    assert table.find("resp_1", "project q", 4.0) is None


def test_number_is_bounded_and_the_oldest_goes_first() -> None:
    table = homes(sets=1)
    for number in range(9):
        table.remember(f"resp_{number}", "all", home(), 1.0 + number)
    assert [n for n in range(9) if table.find(f"resp_{n}", "all", 10.0) is None] == [0]


def test_names_that_do_not_fit_are_not_remembered() -> None:
    table = homes()
    table.remember("resp_1", "all", Home("m" * 300, KernelId("k1"), True), 1.0)
    assert table.find("resp_1", "all", 2.0) is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c", "\ud800"]),
            st.sampled_from(["p", "q"]),
            st.integers(0, 3),
        ),
        max_size=30,
    )
)
def test_nobody_finds_what_another_owner_made(made: list[tuple[str, str, int]]) -> None:
    table = homes(sets=1)
    owners = dict[str, set[str]]()
    for now, (name, owner, number) in enumerate(made):
        table.remember(name, owner, home(f"k{number}"), float(now + 1))
        owners.setdefault(name, set()).add(owner)
    for name in ("a", "b", "c"):
        for owner in ("p", "q"):
            assert (table.find(name, owner, 50.0) is not None) == (owners.get(name) == {owner})


def test_owner_is_the_project_or_the_key_itself() -> None:
    assert owner_of(KeyGrant("1", project="p")) == owner_of(KeyGrant("2", project="p", admin=True))
    assert owner_of(KeyGrant("1", project="p")) != owner_of(KeyGrant("1", project="q"))
    assert owner_of(KeyGrant("1")) != owner_of(KeyGrant("2"))
    assert owner_of(KeyGrant("p")) != owner_of(KeyGrant("2", project="p"))


MADE = b'{"id":"resp_1","status":"completed","metadata":{"id":"resp_2"}}'
EVENTS = (
    b'event: response.created\ndata: {"type":"response.created","response":{"id":"resp_1",'
    b'"status":"in_progress"}}\n\n'
)


@pytest.mark.parametrize(
    ("answer", "is_stream", "expected"),
    [
        (MADE, False, [("resp_1", True)]),
        (
            b' {"metadata":{"id":"resp_2"},"status":"queued","id":"resp_1"}\n',
            False,
            [("resp_1", False)],
        ),
        (b'{"id":7}', False, []),
        (b'{"error":{"message":"}"}}', False, []),
        (b"[]}", False, []),
        (EVENTS, True, [("resp_1", False)]),
        (EVENTS.replace(b"\n", b"\r\n"), True, [("resp_1", False)]),
        (b": ping\n\n" + EVENTS + EVENTS, True, [("resp_1", False)]),
        (b'data: {"id":"resp_2"}\n\n' + EVENTS, True, [("resp_1", False)]),
        (EVENTS[:-1], True, []),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_id_in_an_answer(
    answer: bytes, is_stream: bool, expected: list[tuple[str, bool]], size: int
) -> None:
    found: list[tuple[str, bool]] = []
    reader = ResponseReader(lambda name, ended: found.append((name, ended)), is_stream=is_stream)
    pieces = [answer[at : at + size] for at in range(0, len(answer), size)]
    assert b"".join(reader.feed(piece) for piece in pieces) == answer
    assert found == expected


@pytest.mark.parametrize(
    ("answer", "is_stream", "is_read"),
    [
        (b'{"x":[' + b"[1,2],{}," * 100_000 + b'1],"id":"resp_1"}', False, True),
        (b'{"x":[' + b"[[[[[[[[1]]]]]]]]," * 10_000 + b'1],"id":"resp_1"}', False, False),
        (b"\n" * 900 + EVENTS, True, True),
        (b"\n" * 1100 + EVENTS, True, False),
        (b"data: 1\n\n" * 600 + EVENTS, True, False),
        (
            b'data: {"response":[' + b"[[[[[[[[1]]]]]]]]," * 10_000 + b"1]}\n\n" + EVENTS,
            True,
            False,
        ),
        (b'data: {"response":{"id":"resp_1","x":"' + b"a" * 300_000 + b'"}}\n\n', True, True),
        (b'{"x":"' + b"a" * (5 << 20) + b'","id":"resp_1"}', False, False),
    ],
)
def test_answer_that_would_take_long_to_read_is_not_read(
    answer: bytes, is_stream: bool, is_read: bool
) -> None:
    found: list[str] = []
    reader = ResponseReader(lambda name, ended: found.append(name), is_stream=is_stream)
    for begin in range(0, len(answer), 65_536):
        reader.feed(answer[begin : begin + 65_536])
    assert found == (["resp_1"] if is_read else [])


@given(st.binary(max_size=80) | st.just(MADE), st.booleans())
def test_any_answer_passes(answer: bytes, is_stream: bool) -> None:
    reader = ResponseReader(lambda name, ended: None, is_stream=is_stream)
    assert reader.feed(answer) + reader.feed(b"") == answer


# The request flow


def grant(secret: str, project: str) -> KeyGrant:
    return KeyGrant(hashlib.sha256(secret.encode()).hexdigest(), project=project)


def targets(names: str, engine: str = "custom") -> tuple[Target, ...]:
    return tuple(
        Target(
            SessionId("s"),
            KernelId(name.strip("-")),
            host="h",
            port=1,
            key="key",
            engine=engine,
            draining=name.startswith("-"),
        )
        for name in names.split()
    )


class Proxy:
    """The flow of each request, with commands as words."""

    def __init__(self, replicas: str, engine: str = "custom") -> None:
        self.router = RequestRouter(ProxySettings(), ProxyMetrics(), randrange=lambda _: 0)
        self.usage = UsageBook()
        self.now = 5.0
        self.generation = 0
        self.engine = engine
        ledger = Ledger([0] * cells_needed(1))
        self.router.limiter = RequestLimiter(ledger, lambda _: None, self.usage, lambda: self.now)
        self.routes(replicas)

    def routes(self, replicas: str) -> None:
        self.generation += 1
        models = (
            ModelRoute("tiny", 1, targets(replicas, self.engine), "", ("*",), holds=True),
            ModelRoute("other", 1, targets("o", self.engine), "", ("*",)),
        )
        keys = (grant("mine", "p"), grant("ours", "p"), grant("theirs", "q"))
        self.router.update_table(RouteTable(self.generation, models, keys))

    def begin(
        self, method: str, path: str, document: object = None, key: str = "mine"
    ) -> tuple[str, RequestFlow]:
        flow = RequestFlow(self.router, "id", self.now)
        body = b"" if document is None else json.dumps(document).encode()
        fields = CIMultiDict(Authorization=f"Bearer {key}")
        command = flow.head(method, path, fields, len(body), now=self.now, unix_now=0.0)
        if isinstance(flow.admitted, BodyRequired):
            command = flow.body(body, self.now)
        return describe(command), flow

    def ask(
        self,
        method: str,
        path: str,
        document: object = None,
        *,
        answer: object = None,
        stream: bytes = b"",
        key: str = "mine",
    ) -> str:
        """The replica that receives a request and returns ``answer``, or the error if no replica
        receives it."""
        command, flow = self.begin(method, path, document, key)
        if not command.startswith("send"):
            return command

        kind = "text/event-stream" if stream else "application/json"
        start = flow.upstream_head(200, kind, self.now)
        assert isinstance(start, StartResponse)
        if start.observe is not None:
            start.observe(stream or json.dumps(answer or {}).encode())
            start.observe(b"")

        flow.upstream_end(self.now)
        return command.removeprefix("send ")

    def make(self, response_id: str, **fields: object) -> str:
        document = {"model": "tiny", "input": "x"} | fields
        return self.ask(
            "POST", RESPONSES, document, answer={"id": response_id, "status": "completed"}
        )


@pytest.mark.parametrize(
    ("method", "rest"), [("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")]
)
def test_stored_response_is_asked_of_its_replica(method: str, rest: str) -> None:
    proxy = Proxy("a b c")
    proxy.make("resp_1")
    proxy.routes("c b a")
    assert proxy.ask(method, f"{RESPONSES}/resp_1{rest}") == "a"
    assert proxy.ask(method, f"/p/p{RESPONSES}/resp_1{rest}", key="ours") == "a"
    proxy.routes("b -a")
    assert proxy.ask(method, f"{RESPONSES}/resp_1{rest}") == "a", (
        "a replica that drains has it still"
    )
    for path, key in ((f"resp_1{rest}", "theirs"), (f"resp_2{rest}", "mine")):
        assert proxy.ask(method, f"{RESPONSES}/{path}", key=key) == "404 response_not_found"

    proxy.routes("b c")
    assert proxy.ask(method, f"{RESPONSES}/resp_1{rest}") == "404 response_not_found"
    assert not proxy.router.in_flight


def test_answer_for_strangers_does_not_tell_what_exists() -> None:
    proxy = Proxy("a")
    proxy.make("resp_1")
    _, stranger = proxy.begin("GET", f"{RESPONSES}/resp_1", key="theirs")
    messages = []
    for key, name in (("theirs", "resp_1"), ("mine", "resp_3")):
        flow = RequestFlow(proxy.router, "id", 0.0)
        flow.head(
            "GET",
            f"{RESPONSES}/{name}",
            CIMultiDict(Authorization=f"Bearer {key}"),
            0,
            now=0.0,
            unix_now=0.0,
        )
        error = flow.body(b"", 0.0)
        assert isinstance(error, ErrorResponse)
        messages.append(error.message.replace(name, "X"))

    assert messages[0] == messages[1]
    assert stranger.target is None


def test_response_that_follows_another_goes_to_its_replica() -> None:
    proxy = Proxy("a b")
    proxy.make("resp_1")
    proxy.routes("b a")
    assert proxy.make("resp_2") == "b"
    assert proxy.make("resp_3", previous_response_id="resp_1") == "a"
    document = {"model": "tiny", "previous_response_id": "resp_1"}
    unknown = "400 previous_response_not_found"
    assert proxy.ask("POST", RESPONSES, document, key="theirs") == unknown
    assert proxy.make("resp_4", previous_response_id="resp_9") == unknown
    assert proxy.make("resp_4", previous_response_id=7) == unknown
    assert proxy.make("resp_4", previous_response_id="resp_1", model="other") == unknown
    proxy.routes("b")
    assert proxy.make("resp_4", previous_response_id="resp_1") == unknown
    assert proxy.make("resp_4", previous_response_id=None) == "b"


def test_second_previous_response_cannot_hide() -> None:
    proxy = Proxy("a")
    proxy.make("resp_1")
    for name in ("previous_response_id", "\\u0070revious_response_id"):
        flow = RequestFlow(proxy.router, "id", 0.0)
        body = b'{"%b":"resp_9","model":"tiny","previous_response_id":"resp_1"}' % name.encode()
        flow.head(
            "POST",
            RESPONSES,
            CIMultiDict(Authorization="Bearer mine"),
            len(body),
            now=0.0,
            unix_now=0.0,
        )
        assert describe(flow.body(body, 0.0)) == "400 None"


def test_no_other_replica_is_tried() -> None:
    proxy = Proxy("a b")
    proxy.make("resp_1")
    for failure, then in ((Failure.CONNECT, "502 upstream_error"), (Failure.DISCONNECT, "send a")):
        _, flow = proxy.begin("GET", f"{RESPONSES}/resp_1")
        assert describe(flow.upstream_failed(failure, proxy.now)) == then
        flow.client_gone(proxy.now)
    _, flow = proxy.begin("GET", f"{RESPONSES}/resp_1")
    assert describe(flow.upstream_head(503, "", proxy.now)) == "start"
    flow.upstream_end(proxy.now)


def test_only_what_the_engine_stores_is_remembered() -> None:
    proxy = Proxy("a")
    proxy.make("resp_1", store=False)
    assert proxy.ask("GET", f"{RESPONSES}/resp_1") == "404 response_not_found"
    document = {"model": "tiny", "stream": True}
    assert proxy.ask("POST", RESPONSES, document, stream=EVENTS) == "a"
    assert proxy.ask("GET", f"{RESPONSES}/resp_1") == "a"


@pytest.mark.parametrize(
    ("engine", "method", "rest", "has"),
    [
        ("vllm", "GET", "", True),
        ("vllm", "POST", "/cancel", True),
        ("vllm", "DELETE", "", False),
        ("vllm", "GET", "/input_items", False),
        ("llamacpp", "GET", "", False),
    ],
)
def test_engine_without_the_api_is_named(engine: str, method: str, rest: str, has: bool) -> None:
    proxy = Proxy("a", engine)
    proxy.make("resp_1")
    assert proxy.ask(method, f"{RESPONSES}/resp_1{rest}") == ("a" if has else "404 unknown_url")


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", f"{RESPONSES}/resp_1", "405 method_not_allowed"),
        ("GET", f"{RESPONSES}/resp_1/cancel", "405 method_not_allowed"),
        ("GET", f"{RESPONSES}/resp_1/other", "404 unknown_url"),
        ("GET", f"{RESPONSES}/a%2Fb", "404 unknown_url"),
        ("GET", f"{RESPONSES}/..", "404 unknown_url"),
        ("GET", f"{RESPONSES}/{'x' * 129}", "404 unknown_url"),
        ("GET", f"{RESPONSES}/", "404 unknown_url"),
    ],
)
def test_addresses(method: str, path: str, expected: str) -> None:
    assert Proxy("a").ask(method, path) == expected


def tokens(proxy: Proxy) -> tuple[int, int]:
    taken = list(proxy.usage.take().values())
    return sum(amounts.tokens_in for amounts in taken), sum(amounts.tokens_out for amounts in taken)


def test_tokens_of_a_response_are_counted_once() -> None:
    proxy = Proxy("a")
    answer = {"id": "resp_1", "status": "completed", "usage": USAGE}
    proxy.ask("POST", RESPONSES, {"model": "tiny"}, answer=answer)
    assert tokens(proxy) == (5, 7)
    proxy.ask("GET", f"{RESPONSES}/resp_1", answer=answer)
    assert tokens(proxy) == (0, 0)


def test_tokens_of_a_response_in_the_background_are_counted_when_it_has_ended() -> None:
    proxy = Proxy("a")
    queued = {"id": "resp_1", "status": "queued"}
    ended = {"id": "resp_1", "status": "completed"}
    proxy.ask("POST", RESPONSES, {"model": "tiny", "background": True}, answer=queued)
    tokens(proxy)

    for answer, expected in (
        (queued, (0, 0)),
        (ended | {"usage": USAGE}, (5, 7)),
        (ended | {"usage": USAGE}, (0, 0)),
    ):
        proxy.ask("GET", f"{RESPONSES}/resp_1", answer=answer)
        assert tokens(proxy) == expected
