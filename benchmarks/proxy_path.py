"""The proxy's request path without sockets: microseconds of CPU per request, depending on what the
request needs.

    python benchmarks/proxy_path.py [CASE ...] PYTHONPATH=build/compiled/packages python
    benchmarks/proxy_path.py     # what `tools/compiled` has built

The asyncio plane's connections get the bytes of a chat and its answer from here, and their output
is discarded. Cases take turns; the result of each is the minimum over its turns, which other work
on the machine hardly changes.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import random
import time
from dataclasses import replace
from typing import Any, cast

import uvloop

from measuring import machine, machine_line
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import ProxySettings
from moorage.common.link.messages import (
    KeyGrant,
    ModelRoute,
    RequestLimits,
    RouteFallback,
    RouteTable,
    Target,
)
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.telemetry.otlp import SpanQueue
from moorage.common.telemetry.spans import Sampler
from moorage.common.telemetry.tracer import Tracer
from moorage.proxy import Timeouts
from moorage.proxy.control.shared_limits import SharedMemory
from moorage.proxy.core import flow
from moorage.proxy.core.limits.reservation import RequestLimiter
from moorage.proxy.core.metrics import ProxyMetrics
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.core.usage_book import UsageBook
from moorage.proxy.planes.asyncio import AsyncioPlane
from moorage.proxy.planes.asyncio.client import ClientConnection
from moorage.proxy.planes.asyncio.upstream import UpstreamConnection
from proxy_load import request
from proxy_peers import CHAT
from proxy_upstream import JSON

KEY = "sk-bench"
TURN = 500  # requests
LIMITS = RequestLimits(10**9, 10**12, 10**6)
TARGETS = tuple(
    Target(
        SessionId(f"session-{n}"),
        KernelId(f"kernel-{n}"),
        host="127.0.0.1",
        port=9000 + n,
        key="replica-key",
        engine="vllm",
    )
    for n in range(4)
)
ONE = ModelRoute("bench", 1, TARGETS[:1], "p")
FOUR = replace(ONE, targets=TARGETS)
CANARY = replace(FOUR, targets=(*TARGETS[:3], replace(TARGETS[3], canary=True)), canary=25)
CHAT_HEAD = request(CHAT, KEY)
SESSION_HEAD = CHAT_HEAD.replace(b"\r\n\r\n", b"\r\nX-Moorage-Session: harbour\r\n\r\n", 1)
# The model of a request, and the request.
CASES: dict[str, tuple[ModelRoute, bytes]] = {
    "one replica": (ONE, CHAT_HEAD),
    "limits of the model": (replace(ONE, limits=LIMITS), CHAT_HEAD),
    "four replicas": (FOUR, CHAT_HEAD),
    "four, a fallback": (
        replace(FOUR, fallbacks=(RouteFallback("other"),), fallback_after_s=5),
        CHAT_HEAD,
    ),
    "four, prefix affinity": (replace(FOUR, prefix_affinity=True, max_load=1.25), CHAT_HEAD),
    "four, a session": (FOUR, SESSION_HEAD),
    "four, a canary": (CANARY, CHAT_HEAD),
    "one, traced": (ONE, CHAT_HEAD),
    "one, a trace that is not sampled": (ONE, CHAT_HEAD),
    "one, unknown head": (
        ONE,
        CHAT_HEAD.replace(b"\r\n\r\n", b"\r\nTraceparent: 00-1-2-00\r\n\r\n", 1),
    ),
}

SAMPLERS: dict[str, Sampler] = {
    "one, traced": "always_on",
    "one, a trace that is not sampled": "parentbased_always_off",
}


class Nowhere:
    """A transport that discards everything written to it."""

    def __init__(self) -> None:
        self.write_count = 0

    def write(self, data: bytes) -> None:
        self.write_count += 1

    def get_extra_info(self, name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass

    close = abort


class Path:
    """A plane with one client connection, and an idle connection to each replica."""

    def __init__(self, route: ModelRoute, ask: bytes, sampler: Sampler | None = None) -> None:
        """``sampler``: the sampler for its traces, which no collector receives; None for no
        traces."""
        clock = SystemClock()
        settings = ProxySettings()
        metrics = ProxyMetrics()
        self.router = RequestRouter(settings, metrics, randrange=random.Random(1).randrange)
        if sampler is not None:
            queue = SpanQueue("http://127.0.0.1:9/v1/traces", {}, {})
            self.router.tracer = Tracer(queue, clock, sampler=sampler)

        self.router.limiter = RequestLimiter(
            SharedMemory().ledger, lambda _: None, UsageBook(), clock.monotonic
        )
        key = KeyGrant(hashlib.sha256(KEY.encode()).hexdigest(), id="k", owner="ann", project="p")
        self.router.update_table(RouteTable(1, (route, replace(ONE, name="other")), (key,)))
        self.plane = AsyncioPlane(self.router, settings, clock, Timeouts())
        self._ask = ask
        self._route = route

    async def start(self) -> None:
        await self.plane.start("127.0.0.1", 0)
        self._client = ClientConnection(self.plane)
        self._sent = Nowhere()
        self._client.connection_made(cast(Any, self._sent))
        self._replicas: dict[str, tuple[UpstreamConnection, Nowhere]] = {}
        for target in self._route.targets:
            connection = UpstreamConnection(self.plane.upstreams, (target.host, target.port))
            sent = Nowhere()
            connection.connection_made(cast(Any, sent))
            self.plane.upstreams.put(connection)
            self._replicas[target.kernel_id] = connection, sent

        self.turn()
        assert self._sent.write_count == TURN

    def turn(self) -> None:
        in_flight = self.router.in_flight
        replicas = self._replicas
        ask = self._ask
        client = self._client
        for _ in range(TURN):
            client.data_received(ask)
            (kernel_id,) = in_flight
            replicas[kernel_id][0].data_received(JSON)

    async def stop(self) -> None:
        self._client.connection_lost(None)
        await self.plane.stop(0)


async def measure(names: list[str], rounds: int) -> dict[str, float]:
    paths = {name: Path(*CASES[name], SAMPLERS.get(name)) for name in names}
    least = dict.fromkeys(names, float("inf"))
    for path in paths.values():
        await path.start()

    for _ in range(rounds):
        for name in random.sample(names, len(names)):
            began = time.thread_time()
            paths[name].turn()
            least[name] = min(least[name], 1e6 * (time.thread_time() - began) / TURN)

        await asyncio.sleep(0)

    for path in paths.values():
        await path.stop()

    return least


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of: {', '.join(CASES)}")
    parser.add_argument(
        "--rounds", type=int, default=40, help=f"turns of {TURN} requests of each case (40)"
    )
    options = parser.parse_args()
    least = uvloop.run(measure(options.cases or list(CASES), options.rounds))
    for name, us in least.items():
        print(f"| {name} | {us:.2f} |")

    is_compiled = not str(flow.__file__).endswith(".py")
    print(f"{'compiled' if is_compiled else 'interpreted'}; {machine_line(machine())}")


if __name__ == "__main__":
    main()
