"""Load during the faults: sessions with a known end, and clients of an endpoint with two replicas."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from moorage.common.model.errors import MoorageError
from moorage.common.model.spec import EndpointSpec, Probe, SessionSpec
from moorage.sdk import Client, chat

from .cluster import Cluster

ENGINE = Path(__file__).parents[1] / "e2e" / "slow_engine.py"
RECORD_START = 'echo "$MOORAGE_KERNEL_ID $$" >> {file}; '
SMALL = {"cpu": 0.1, "mem": "16MiB"}
FOREVER = "sleep 600"


@dataclass(frozen=True)
class Request:
    """A session as scripted. ``code``: exit code of its program; None if it does not exit on its own."""

    name: str
    kind: str
    code: int | None
    retries: int = 0


@dataclass
class Load:
    """``requests`` by session name. ``acknowledged``: ids from 201 responses, with names. ``uncertain``:
    names of requests whose response was lost. ``calls`` and ``chats``: number of API calls and streams by
    result."""

    cluster: Cluster
    seed: int
    per_s: float
    requests: dict[str, Request] = field(default_factory=dict)
    acknowledged: dict[str, str] = field(default_factory=dict)
    uncertain: set[str] = field(default_factory=set)
    calls: Counter[str] = field(default_factory=Counter)
    chats: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._tasks: set[asyncio.Task[None]] = set()
        self._clients: list[Client] = []
        self.started_kernels = self.cluster.home / "started-kernels"
        self._record_start = RECORD_START.format(file=self.started_kernels)

    async def create_endpoint(self) -> None:
        program = self._record_start + 'exec "$0" "$@"'
        spec = EndpointSpec(
            name="chat",
            command=["/bin/sh", "-c", program, sys.executable, str(ENGINE), "{port}", "{host}"],
            probe=Probe(path="/health"),
            resources={"cpu": 0.1, "mem": "64MiB", "cuda.device": 1},
            replicas=2,
            stop_grace_s=1,
        )
        async with self.cluster.client() as client:
            await client.create_endpoint(spec)

    async def run(self, seconds: float) -> None:
        """Create and stop sessions and stream responses until the time is up. A component that is down fails
        only the calls that need it."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        chats = [asyncio.create_task(self._chat(url, end)) for url in self.cluster.openai_urls]
        async with AsyncExitStack() as stack:
            self._clients = [
                await stack.enter_async_context(self.cluster.client(manager=manager))
                for manager in range(len(self.cluster.urls))
            ]
            while loop.time() < end:
                self._spawn(self._create_session())
                await asyncio.sleep(self._rng.expovariate(self.per_s))
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, *chats, return_exceptions=True)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create_session(self) -> None:
        request, spec, stop_after_s = self._draw()
        client = self._rng.choice(self._clients)
        self.requests[request.name] = request
        try:
            view = await client.create_session(spec)
        except MoorageError as error:
            self.calls[f"create: {type(error).__name__} {getattr(error, 'status', '')}".strip()] += 1
            self.uncertain.add(request.name)
            return
        except asyncio.CancelledError:
            self.uncertain.add(request.name)
            raise
        self.calls["create: 201"] += 1
        self.acknowledged[view.id] = request.name
        if stop_after_s is not None:
            await asyncio.sleep(stop_after_s)
            await self._stop(view.id)

    async def _stop(self, ref: str) -> None:
        for client in cycle(self._clients):
            try:
                await client.stop_session(ref)
            except MoorageError:
                await asyncio.sleep(0.5)
            else:
                self.calls["stop: 200"] += 1
                return

    def _draw(self) -> tuple[Request, SessionSpec, float | None]:
        """The next session, and when to stop it."""
        rng, name = self._rng, f"load-{len(self.requests)}"
        kind = rng.choices(
            ("batch", "retried", "timeout", "interactive", "lifetime", "gpu"), (45, 10, 8, 20, 5, 12)
        )[0]
        run_s = min(15.0, 0.2 + rng.expovariate(1 / 4))
        code = rng.choice((0, 0, 0, 1, 3, 42))
        options: dict[str, Any] = {"resources": SMALL, "stop_grace_s": 1}
        stop_after_s = rng.uniform(0, 10) if kind == "interactive" or rng.random() < 0.1 else None
        if kind == "retried":
            code, run_s = rng.choice((1, 7)), min(run_s, 3.0)
            options |= {"retries": 2, "retry_backoff_s": 1}
        if kind == "gpu":
            options["resources"] = SMALL | {"cuda.device": rng.choice((1, 1, 2))}
        if kind == "timeout":
            options["timeout_s"] = 3
        if kind == "lifetime":
            options["max_lifetime_s"] = 4
        scripted = kind in ("batch", "retried", "gpu")
        program = (
            f"{self._record_start} sleep {run_s:.2f}; exit {code}"
            if scripted
            else self._record_start + FOREVER
        )
        options["type"] = "interactive" if kind in ("interactive", "lifetime") else "batch"
        spec = SessionSpec(name=name, command=["/bin/sh", "-c", program], **options)
        return Request(name, kind, code if scripted else None, options.get("retries", 0)), spec, stop_after_s

    async def _chat(self, url: str, end: float) -> None:
        """Stream responses. An aborted response is counted but is no violation: its replica may be gone."""
        loop = asyncio.get_running_loop()
        message: Any = [{"role": "user", "content": "go on"}]
        while loop.time() < end:
            try:
                async with asyncio.timeout(20):
                    pieces = [
                        piece async for piece in chat(url, self.cluster.key, "chat", message, max_tokens=20)
                    ]
                complete = "".join(pieces).split() == [str(n) for n in range(20)]
                self.chats["complete" if complete else "WRONG"] += 1
            except (MoorageError, OSError, TimeoutError) as error:
                self.chats[type(error).__name__] += 1
                await asyncio.sleep(0.5)
