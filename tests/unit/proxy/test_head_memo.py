"""The asyncio plane's head memo: it has no visible effect, whatever changes between two
requests."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace

import hypothesis.strategies as st
from hypothesis import given
from tests.examples import examples
from tests.unit.proxy.plane_without_sockets import SocketlessPlane

from moorage.common.link.messages import (
    KeyGrant,
    ModelRoute,
    ProjectGrant,
    RequestLimits,
    RouteFallback,
    RouteTable,
    Target,
)
from moorage.common.model.ids import KernelId, SessionId

NOW = 1_767_225_600  # the starting time of a manual clock


def target(port: int, **fields: object) -> Target:
    made = Target(
        SessionId(f"s{port}"),
        KernelId(f"k{port}"),
        host="127.0.0.1",
        port=port,
        key=f"key-{port}",
        engine="vllm",
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def grant(secret: str, **fields: object) -> KeyGrant:
    digest = hashlib.sha256(secret.encode()).hexdigest()
    made = KeyGrant(digest, project="p", id=f"id-{secret}", owner="ann")
    return replace(made, **fields)  # type: ignore[arg-type]


FEW = RequestLimits(requests_per_minute=3)
TINY = ModelRoute("tiny", 7, (target(1),), "p")
ROUTES = (
    TINY,
    replace(TINY, targets=(target(1, key="another"),)),
    replace(TINY, targets=(target(1, draining=True),)),
    replace(TINY, targets=(target(1, engine="llamacpp"),)),
    replace(TINY, targets=(target(1, accepts_priority=True),), limits=FEW),
    replace(TINY, project="q"),
    replace(
        TINY, targets=(target(1, adapters=("lora",)), target(2)), adapters=("lora",), canary=50
    ),
    replace(
        TINY,
        targets=(target(1), target(2, canary=True), target(3)),
        canary=50,
        prefix_affinity=True,
    ),
    replace(TINY, targets=(), fallbacks=(RouteFallback("other"),)),
    replace(TINY, name="other", targets=(target(4),), shared_with=("*",)),
    replace(TINY, name="other", targets=(target(4),), project="q"),
)
KEYS = (
    grant("a"),
    grant("a", limits=FEW),
    grant("a", project="q"),
    grant("a", limits_models=True, models=("other",)),
    grant("a", priority=90),
    grant("a", expires_at=NOW + 30),
    grant("b", admin=True),
)
PROJECTS = (ProjectGrant("p", FEW), ProjectGrant("p", RequestLimits(tokens_per_minute=900)))
HEADS = (
    ("POST /v1/chat/completions", "Authorization: Bearer a", "Content-Type: application/json"),
    ("POST /v1/chat/completions", "Content-Type: application/json", "Authorization: Bearer a"),
    ("POST /v1/chat/completions", "Authorization: Bearer a", "X-Moorage-Session: one"),
    ("POST /v1/chat/completions", "Authorization: Bearer b"),
    ("POST /v1/chat/completions",),
    ("POST /p/p/v1/chat/completions", "Authorization: Bearer a"),
    ("POST /v1/score", "Authorization: Bearer a"),
    ("POST /v1/messages", "X-Api-Key: a", "Anthropic-Version: 2023-06-01"),
    ("POST /v1/nothing", "Authorization: Bearer a"),
    ("POST /v1/completions", "Authorization: Bearer a", "Traceparent: 00-1-2-00"),
    ("POST /v1/completions", "Authorization: Bearer a", "X-More: 1"),
    ("POST /v1/completions", "Authorization: Bearer a", "Content-Encoding: gzip"),
)
BODIES = tuple(
    json.dumps(document).encode()
    for document in (
        {"model": "tiny", "messages": []},
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "How deep?"}],
            "max_tokens": 500,
        },
        {"model": "tiny", "priority": 1},
        {"model": "other"},
        {"model": "lora"},
        {"model": "nope"},
        {"model": 7},
    )
)
USAGE = b'{"usage":{"prompt_tokens":40,"completion_tokens":300}}'
ANSWERS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    % (len(USAGE), USAGE),
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-More: 1\r\n\r\n{}",
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"6\r\ndata: \r\n0\r\n\r\n",
)


@dataclass(frozen=True)
class Ask:
    head: tuple[str, ...]
    body: bytes
    answer: bytes

    def do(self, plane: SocketlessPlane) -> list[bytes]:
        first, *lines = self.head
        lines = [
            f"{first} HTTP/1.1",
            "Host: localhost",
            *lines,
            f"Content-Length: {len(self.body)}",
            "",
            "",
        ]
        return plane.ask("\r\n".join(lines).encode() + self.body, lambda: self.answer)


@dataclass(frozen=True)
class Change:
    """A change to the table, or with ``is_whole`` a different table, in the same generation, as
    with credential changes."""

    routes: tuple[ModelRoute, ...] = ()
    keys: tuple[KeyGrant, ...] = ()
    projects: tuple[ProjectGrant, ...] = ()
    removed: tuple[str, str, str] = ("", "", "")
    is_whole: bool = False

    def do(self, plane: SocketlessPlane) -> None:
        held = plane.router.table
        assert held is not None
        if self.is_whole:
            new = RouteTable(held.generation, self.routes, self.keys, projects=self.projects)
        else:
            model, key, project = ((name,) if name else () for name in self.removed)
            new = RouteTable(
                held.generation + bool(self.routes or model),
                self.routes,
                self.keys,
                base=held.generation,
                removed_models=model,
                removed_keys=key,
                removed_projects=project,
                projects=self.projects,
            )

        plane.router.update_table(new)


@dataclass(frozen=True)
class Wait:
    seconds: float

    def do(self, plane: SocketlessPlane) -> None:
        plane.clock.advance(self.seconds)


@dataclass(frozen=True)
class Link:
    """The link to the manager breaks or is restored."""

    is_up: bool

    def do(self, plane: SocketlessPlane) -> None:
        if self.is_up:
            plane.router.credentials.connected()
        else:
            plane.router.credentials.disconnected(plane.clock.monotonic())


# Most requests are like the first ones.
asks = st.builds(
    Ask,
    st.sampled_from(HEADS[:1] * 6 + HEADS[1:]),
    st.sampled_from(BODIES[:2] * 4 + BODIES[2:]),
    st.sampled_from(ANSWERS[:2] * 4 + ANSWERS[2:]),
)
routes, keys = (st.tuples(st.sampled_from(values)) for values in (ROUTES, KEYS))
projects = st.tuples(st.sampled_from(PROJECTS))
REMOVED = (("tiny", "", ""), ("other", "", ""), ("", KEYS[0].sha256, ""), ("", "", "p"))
changes = st.one_of(
    st.builds(Change, routes),
    st.builds(Change, keys=keys),
    st.builds(Change, projects=projects),
    st.builds(Change, removed=st.sampled_from(REMOVED)),
    st.builds(Change, routes, keys, projects, is_whole=st.just(True)),
    st.builds(Wait, st.sampled_from([0.5, 20.0, 61.0, 400.0])),
    st.builds(Link, st.booleans()),
)


@examples(100)
@given(st.lists(asks, min_size=1, max_size=4), st.lists(changes, min_size=2, max_size=8), keys)
def test_remembered_heads_never_show(
    asked: list[Ask], changed: list[Change | Wait | Link], granted: tuple[KeyGrant, ...]
) -> None:
    """Repeat the same requests after each change."""
    begin = RouteTable(1, (TINY, ROUTES[-2]), (*granted, KEYS[-1]))
    remembering, forgetful = (
        SocketlessPlane(begin, remembers=remembers) for remembers in (True, False)
    )
    for change in (Wait(0), *changed):
        change.do(remembering)
        change.do(forgetful)
        for ask in (*asked, asked[0]):
            assert ask.do(remembering) == ask.do(forgetful)

    assert remembering.usage.take() == forgetful.usage.take()
    assert not remembering.router.in_flight
