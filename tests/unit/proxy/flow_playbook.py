"""A playbook for the request flow: a flow and its surroundings, with events and commands written as
words."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import Any

from multidict import CIMultiDict
from prometheus_client.parser import text_string_to_metric_families

from moorage.common.config.settings import ProxySettings
from moorage.common.link.messages import KeyGrant, ModelRoute, RouteFallback, RouteTable, Target
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.telemetry import TraceSink
from moorage.proxy.core.admission import LocalResponse
from moorage.proxy.core.commands import Break, ReadBody, Send, StartResponse, WaitForReplica
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.flow import resume_held
from moorage.proxy.core.limits.limiter import Ask, Observer
from moorage.proxy.core.metrics import ProxyMetrics
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.core.retry import Failure
from moorage.proxy.core.traced_flow import begin_flow

CHAT = "/v1/chat/completions"
BODY = b'{"model":"tiny"}'
KEY = KeyGrant(
    "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683", user="ann", project="p"
)  # "key"
FAILURES = {
    "refused": Failure.CONNECT,
    "lost": Failure.DISCONNECT,
    "silent": Failure.IDLE_TIMEOUT,
    "broken": Failure.INTERRUPTED,
}


PROVIDER = Target(
    SessionId(""),
    KernelId("outside"),
    host="api.example.com",
    port=443,
    key="their-key",
    engine="provider",
    tls=True,
    prefix="/api",
)


def target(name: str) -> Target:
    """An API whose name begins with ``v`` reads a priority."""
    reads = name.startswith("v")
    return Target(
        SessionId("s"),
        KernelId(name),
        host="127.0.0.1",
        port=1,
        key="engine-key",
        engine="custom",
        accepts_priority=reads,
    )


def table(generation: int, names: str) -> RouteTable:
    """Routes with the model ``tiny``. ``names``: the model's replicas, ``-`` for none, or
    ``loading`` for none yet. If ``kept`` precedes them, they belong to an endpoint, which replaces
    them. A ``|`` is followed by the model's fallbacks: a model ``NAME=REPLICAS``, which belongs to
    another project if the name is ``theirs``, or a ``provider``."""
    own, *given = names.split("|")
    fallbacks: list[RouteFallback] = []
    models: list[ModelRoute] = []
    for text in given:
        name, _, targets = text.strip().partition("=")
        fallbacks.append(RouteFallback(name, PROVIDER if name == "provider" else None))
        if name != "provider":
            project = "q" if name == "theirs" else "p"
            models.append(ModelRoute(name, 7, tuple(map(target, targets.split())), project))

    first, *others = own.split()
    replicas = others if first in ("-", "loading", "kept") else (first, *others)
    route = ModelRoute(
        "tiny",
        7,
        tuple(map(target, replicas)),
        "p",
        holds=first in ("loading", "kept"),
        expected_s=12,
        fallbacks=tuple(fallbacks),
        fallback_after_s=5,
    )
    return RouteTable(generation, (route, *models), (KEY,))


@dataclass
class Granted:
    """A reservation that records its calls."""

    headers: tuple[tuple[str, str], ...] = (("x-ratelimit-limit-requests", "10"),)
    priority: int = 0
    prioritizes: bool = False
    observer: Observer | None = None
    settled: list[int] = field(default_factory=list)
    session_id: str | None = None

    def observe(self, status: int, content_type: str, coding: str = "") -> Observer | None:
        return self.observer

    def settle(self, status: int, now: float, session_id: str = "") -> None:
        self.settled.append(status)
        self.session_id = session_id


class Counting:
    """A limiter that grants ``room`` requests, each with a reservation."""

    def __init__(self, room: int = 1, priority: int = 0) -> None:
        self.room = room
        self.priority = priority
        self.asks = list[Ask]()
        self.grants = list[Granted]()

    def reserve(self, ask: Ask, now: float) -> Granted | ErrorResponse:
        self.asks.append(ask)
        if len(self.grants) >= self.room:
            return ErrorResponse(429, "rate_limit_error", "rate_limit_exceeded", "too many")
        self.grants.append(Granted(priority=self.priority, prioritizes=self.priority > 0))
        return self.grants[-1]


class Playbook:
    """A flow and its surroundings, with events and commands written as words."""

    def __init__(
        self,
        replicas: str,
        limiter: Counting | None = None,
        *,
        tracer: TraceSink | None = None,
        **options: Any,
    ) -> None:
        settings = ProxySettings(max_hold_s=60, **options)
        self.router = RequestRouter(settings, ProxyMetrics(), randrange=lambda _: 0)
        self.router.update_table(table(1, replicas))
        self.router.tracer = tracer
        if limiter is not None:
            self.router.limiter = limiter

        self.now = 100.0
        self.flow = begin_flow(self.router, "id-1", self.now)
        self.resumed: list[str] = []
        self.flow.resume = lambda command: self.resumed.append(describe(command))

    def another(self) -> Playbook:
        """Another request on the same proxy at the same time."""
        other = copy(self)
        other.flow = begin_flow(self.router, "id-2", self.now)
        other.resumed = []
        other.flow.resume = lambda command: other.resumed.append(describe(command))
        return other

    def event(self, words: str) -> str:
        """The command that answers an event."""
        name, _, rest = words.partition(" ")
        flow = self.flow
        match name:
            case "after":
                self.now += float(rest)
                return ""
            case "request" | "telling":
                fields = CIMultiDict({"Authorization": f"Bearer {rest or 'key'}"})
                if name == "telling":
                    fields["X-Moorage-Progress"] = "1"

                return describe(
                    flow.head("POST", CHAT, fields, len(BODY), now=self.now, unix_now=0.0)
                )
            case "body":
                return describe(flow.body(rest.encode() or BODY, self.now))
            case "response":
                status, _, kind = rest.partition(" ")
                return describe(
                    flow.upstream_head(int(status), kind or "application/json", self.now)
                )
            case "says":
                status, _, text = rest.partition(" ")
                return describe(flow.upstream_head(int(status), "", self.now, text.encode()))
            case "end":
                flow.upstream_end(self.now)
                return ""
            case "cut":
                return describe(
                    flow.upstream_lost(Failure.INTERRUPTED, rest.encode() or None, self.now)
                )
            case "timer":
                return describe(flow.timer(self.now))
            case "routes":
                held = self.router.table
                assert held is not None
                self.router.update_table(table(held.generation + 1, rest))
                resume_held(self.router, self.now)

                return self.resumed.pop() if self.resumed else ""
            case "leaves":
                flow.client_gone(self.now)
                return ""
            case _:
                return describe(flow.upstream_failed(FAILURES[name], self.now))

    def requests(self) -> dict[tuple[str, str], float]:
        """Recorded requests by model and status."""
        families = text_string_to_metric_families(self.router.metrics.text().decode())
        return {
            (sample.labels["model"], sample.labels["code"]): sample.value
            for family in families
            if family.name == "moorage_proxy_requests"
            for sample in family.samples
            if sample.name.endswith("_total")
        }


def describe(command: object) -> str:
    match command:
        case ReadBody():
            return "read"
        case Send():
            return f"send {command.target.kernel_id}"
        case WaitForReplica(until, comment):
            return f"hold {until - 100:g} {comment.decode().strip()}".strip()
        case StartResponse():
            return "start"
        case Break(None):
            return "break"
        case Break(b""):
            return "finish"
        case Break():
            return "error event"
        case LocalResponse():
            return "200"
        case ErrorResponse():
            return f"{command.status} {command.code}"

    return repr(command)
