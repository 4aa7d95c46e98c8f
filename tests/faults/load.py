"""Load during the faults: sessions with a known outcome, and clients of an endpoint with two
replicas."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

from moorage.common.model.errors import MoorageError
from moorage.common.model.spec import EndpointSpec, Probe, SessionSpec
from moorage.sdk import Client, chat
from moorage.sdk.pipelines import has_ended

from .cluster import PROXIES, Cluster
from .cluster_sessions import ClusterScript, draw_cluster
from .features import EQUAL, TEMPLATE, draw_pipeline, template
from .site import GROUP

ENGINE = Path(__file__).parents[1] / "e2e" / "slow_engine.py"
# The time is when the host started the process, in clock ticks since boot: a program that reads the
# time itself does so when it gets the CPU, which may be seconds later.
RECORD_START = 'echo "$MOORAGE_KERNEL_ID $$ $(cut -d " " -f 22 /proc/$$/stat)" >> {file}; '
RECORD_END = 'echo "$MOORAGE_KERNEL_ID $(date +%s)" >> {file};'
SMALL = {"cpu": 0.1, "mem": "16MiB"}
FOREVER = "sleep 600"
# Kinds of sessions and how often each occurs. At a site there are also jobs.
KINDS = {
    "batch": 30, "retried": 10, "timeout": 8, "interactive": 20, "lifetime": 5, "gpu": 12, "templated": 6,
    "equal": 18, "cluster": 10,
}  # fmt: skip
REPLICAS = 2
SITE_MODEL = "site-chat"
# A request is held while the login node is away.
SITE_PATIENCE_S = 60.0
NOT_LISTENING = "Connect call failed"


@dataclass(frozen=True)
class Request:
    """A session as scripted. ``code``: its program's exit code, or None if it does not exit on its
    own. ``cluster``: None for a session with one kernel."""

    name: str
    kind: str
    code: int | None
    retries: int = 0
    cluster: ClusterScript | None = None


@dataclass(frozen=True)
class FailedStream:
    """``pieces``: how many pieces had been received."""

    proxy: str
    began: datetime
    ended: datetime
    pieces: int
    problem: str


@dataclass
class Load:
    """``requests`` by session name. ``acknowledged``: ids from 201 responses, with names.
    ``uncertain``: names of requests whose response was lost. ``pipelines``: the names of the
    acknowledged pipelines, by id. ``calls`` and ``chats``: the number of API calls and streams by
    result; ``site_chats``: the same for the model at the site. ``engine_gpus``: the GPUs of each
    replica."""

    cluster: Cluster
    seed: int
    per_s: float
    engine_gpus: int = 1
    requests: dict[str, Request] = field(default_factory=dict)
    acknowledged: dict[str, str] = field(default_factory=dict)
    uncertain: set[str] = field(default_factory=set)
    pipelines: dict[str, str] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    chats: Counter[str] = field(default_factory=Counter)
    site_chats: Counter[str] = field(default_factory=Counter)
    failed_at_site: list[FailedStream] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._tasks: set[asyncio.Task[None]] = set()
        self._clients: list[Client] = []
        self.started_kernels = self.cluster.home / "started-kernels"
        self.ended_kernels = self.cluster.home / "ended-kernels"
        self._record_start = RECORD_START.format(file=self.started_kernels)
        self._record_end = RECORD_END.format(file=self.ended_kernels)
        self._submitted = 0
        self.stop_at = 0.0

    async def create_endpoints(self) -> None:
        node = SMALL | {"mem": "64MiB", "cuda.device": self.engine_gpus}
        async with self.cluster.client() as client:
            await client.endpoints.create(self._model("chat", node))
            if self.cluster.site is not None:
                await client.endpoints.create(
                    self._model(SITE_MODEL, {"cpu": 1}, resource_group=GROUP)
                )
            options = {"resources": SMALL, "stop_grace_s": 1}
            await client.templates.put(TEMPLATE, template(self._record_start, options))

    def _model(self, name: str, resources: Mapping[str, Any], **options: Any) -> EndpointSpec:
        program = self._record_start + 'exec "$0" "$@"'
        return EndpointSpec(
            name=name,
            command=["/bin/sh", "-c", program, sys.executable, str(ENGINE), "{port}", "{host}"],
            probe=Probe(path="/health"),
            resources=dict(resources),
            replicas=REPLICAS,
            stop_grace_s=1,
            **options,
        )

    async def run(self, seconds: float) -> None:
        """Create and stop sessions and stream responses until the time is up. A component that is
        down fails only the calls that need it."""
        loop = asyncio.get_running_loop()
        self.stop_at = loop.time() + seconds
        chats = [asyncio.create_task(self._chat(url)) for url in self.cluster.openai_urls]

        if self.cluster.site is not None:
            for proxy, url in zip(PROXIES, self.cluster.openai_urls, strict=True):
                # a request that is held at the end is not waited for
                self._spawn(self._chat_at_site(proxy, url))

        async with AsyncExitStack() as stack:
            self._clients = [
                await stack.enter_async_context(self.cluster.client(manager=manager))
                for manager in range(len(self.cluster.urls))
            ]
            while loop.time() < self.stop_at:
                rare = self._rng.random() < 0.08
                self._spawn(self._submit_pipeline() if rare else self._create_session())
                await asyncio.sleep(self._rng.expovariate(self.per_s))

            for task in self._tasks:
                task.cancel()

            await asyncio.gather(*self._tasks, *chats, return_exceptions=True)

    def stop(self) -> None:
        self.stop_at = 0.0

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create_session(self) -> None:
        request, spec, stop_after_s = self._draw()
        client = self._rng.choice(self._clients)
        self.requests[request.name] = request
        try:
            if request.kind == "templated":
                given = {"seconds": float(spec.command[-2]), "code": request.code}
                view = await client.templates.start(TEMPLATE, given, {"name": request.name})
            else:
                view = await client.sessions.create(spec)
        except MoorageError as error:
            self.calls[
                f"create: {type(error).__name__} {getattr(error, 'status', '')}".strip()
            ] += 1
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

    async def _submit_pipeline(self) -> None:
        """Submitted until it is acknowledged, and retried if a step fails."""
        name = f"pipeline-{self._submitted}"
        rng = self._rng
        self._submitted += 1
        options = {"resources": SMALL, "stop_grace_s": 1}
        spec = draw_pipeline(rng, name, self._record_start, self._record_end, options=options)
        for client in cycle(self._clients):
            try:
                view = await client.pipelines.create(spec, idempotency_key=name)
                break
            except MoorageError as error:
                self.calls[
                    f"submit: {type(error).__name__} {getattr(error, 'status', '')}".strip()
                ] += 1
                await asyncio.sleep(0.5)

        self.calls["submit: 201"] += 1
        self.pipelines[view.id] = name
        for client in cycle(self._clients):
            await asyncio.sleep(2)
            try:
                if has_ended(await client.pipelines.get(view.id)):
                    await client.pipelines.retry(view.id)
                    self.calls["retry: 202"] += 1
                    return
            except MoorageError as error:
                self.calls[
                    f"retry: {type(error).__name__} {getattr(error, 'status', '')}".strip()
                ] += 1
                if getattr(error, "status", 0) == 409:
                    return

    async def _stop(self, ref: str) -> None:
        for client in cycle(self._clients):
            try:
                await client.sessions.stop(ref)
            except MoorageError:
                await asyncio.sleep(0.5)
            else:
                self.calls["stop: 200"] += 1
                return

    def _draw(self) -> tuple[Request, SessionSpec, float | None]:
        """The next session and when to stop it."""
        rng = self._rng
        name = f"load-{len(self.requests)}"
        kinds = KINDS | {"job": 4} if self.cluster.site else KINDS
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        run_s = min(15.0, 0.2 + rng.expovariate(1 / 4))
        code = rng.choice((0, 0, 0, 1, 3, 42))
        options: dict[str, Any] = {"resources": SMALL, "stop_grace_s": 1}
        stop_after_s = rng.uniform(0, 10) if kind == "interactive" or rng.random() < 0.1 else None

        if kind == "retried":
            code = rng.choice((1, 7))
            run_s = min(run_s, 3.0)
            options |= {"retries": 2, "retry_backoff_s": 1}

        if kind == "job":
            options |= {"resource_group": GROUP, "resources": {"cpu": 1}}
        if kind == "gpu":
            options["resources"] = SMALL | {"cuda.device": rng.choice((1, 1, 2))}
        if kind == "equal":
            run_s, code = rng.choice(EQUAL)
            options["reuse"] = rng.choice(("both", "live"))
        if kind == "timeout":
            options["timeout_s"] = 3
        if kind == "lifetime":
            options["max_lifetime_s"] = 4

        cluster = None
        if kind == "cluster":
            cluster = draw_cluster(rng, len(self.cluster.agents))
            sub_s = run_s / 2
            if cluster.sub_end == "failure":
                run_s = 600.0  # main1 is stopped
            if rng.random() < 0.3:
                options |= {"retries": 1, "retry_backoff_s": 1}

            options |= cluster.session_options(self._record_start, self._record_end, sub_s)

        scripted = kind in ("batch", "retried", "gpu", "templated", "equal", "cluster", "job")
        program = (
            f"{self._record_start} sleep {run_s:.2f}; {self._record_end} exit {code}"
            if scripted
            else self._record_start + FOREVER
        )
        options["type"] = "interactive" if kind in ("interactive", "lifetime") else "batch"
        told = [f"{run_s:.2f}", str(code)] if kind == "templated" else []
        spec = SessionSpec(name=name, command=["/bin/sh", "-c", program, *told], **options)
        request = Request(
            name,
            kind,
            code=code if scripted else None,
            retries=options.get("retries", 0),
            cluster=cluster,
        )

        return request, spec, stop_after_s

    async def _chat(self, url: str) -> None:
        """Stream responses. An aborted response is counted but is no violation: its replica may be
        gone."""
        loop = asyncio.get_running_loop()
        message: Any = [{"role": "user", "content": "go on"}]
        while loop.time() < self.stop_at:
            try:
                async with asyncio.timeout(20):
                    pieces = [
                        piece
                        async for piece in chat(
                            url, self.cluster.key, "chat", message, max_tokens=20
                        )
                    ]

                complete = "".join(pieces).split() == [str(n) for n in range(20)]
                self.chats["complete" if complete else "WRONG"] += 1
            except (MoorageError, OSError, TimeoutError) as error:
                self.chats[type(error).__name__] += 1
                await asyncio.sleep(0.5)

    async def _chat_at_site(self, proxy: str, url: str) -> None:
        """Stream responses from the model at the site; requests that cannot be served at once are
        held."""
        loop = asyncio.get_running_loop()
        message: Any = [{"role": "user", "content": "go on"}]
        while loop.time() < self.stop_at:
            began = datetime.now(UTC)
            pieces = list[str]()
            problem = ""
            try:
                async with asyncio.timeout(SITE_PATIENCE_S):
                    async for piece in chat(
                        url, self.cluster.key, SITE_MODEL, message, max_tokens=20
                    ):
                        pieces.append(piece)
            except (MoorageError, OSError, TimeoutError) as error:
                problem = f"{type(error).__name__} {error}".strip()

            complete = "".join(pieces).split() == [str(n) for n in range(20)]
            if NOT_LISTENING in problem:
                await asyncio.sleep(0.5)  # its proxy is down, which says nothing about the site
            elif problem:
                self.site_chats[problem.partition(" ")[0]] += 1
                self.failed_at_site.append(
                    FailedStream(
                        proxy, began, ended=datetime.now(UTC), pieces=len(pieces), problem=problem
                    )
                )
                await asyncio.sleep(0.5)
            else:
                self.site_chats["complete" if complete else "WRONG"] += 1
