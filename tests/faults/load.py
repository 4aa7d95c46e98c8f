"""What is asked of the platform meanwhile: sessions with a known end, and an endpoint with two replicas."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moorage.common.model.errors import MoorageError
from moorage.common.model.spec import EndpointSpec, Probe, SessionSpec
from moorage.sdk import Client, chat

from .cluster import Cluster

ENGINE = Path(__file__).parents[1] / "e2e" / "slow_engine.py"
LINE = 'echo "$MOORAGE_KERNEL_ID $$" >> {file}; '
SMALL = {"cpu": 0.1, "mem": "16MiB"}
FOREVER = "sleep 600"


@dataclass(frozen=True)
class Asked:
    """A session as scripted. ``code``: of its program, None if it does not end by itself."""

    name: str
    kind: str
    code: int | None
    retries: int = 0


@dataclass
class Load:
    """``acknowledged``: ids by 201; ``doubtful``: names of creates whose answer was lost."""

    cluster: Cluster
    seed: int
    per_s: float
    asked: dict[str, Asked] = field(default_factory=dict)
    acknowledged: dict[str, str] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)
    calls: Counter[str] = field(default_factory=Counter)
    chats: Counter[str] = field(default_factory=Counter)
    most_live: int = 0

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._later: set[asyncio.Task[None]] = set()
        self.lines = self.cluster.home / "kernels-that-ran"
        self._line = LINE.format(file=self.lines)

    async def serve(self) -> None:
        program = self._line + 'exec "$0" "$@"'
        spec = EndpointSpec(
            name="words",
            command=["/bin/sh", "-c", program, sys.executable, str(ENGINE), "{port}", "{host}"],
            probe=Probe(path="/health"),
            resources={"cpu": 0.1, "mem": "64MiB", "cuda.device": 1},
            replicas=2,
            stop_grace_s=1,
        )
        async with self.cluster.client() as client:
            await client.create_endpoint(spec)

    async def run(self, seconds: float) -> None:
        """Create, stop and ask until the time is up; whatever is down meanwhile costs that call alone."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        talking = [asyncio.create_task(self._talk(end)) for _ in range(2)]
        async with self.cluster.client() as client:
            while loop.time() < end:
                self._spawn(self._one(client))
                await asyncio.sleep(self._dice.expovariate(self.per_s))
            for task in self._later:
                task.cancel()
            await asyncio.gather(*self._later, *talking, return_exceptions=True)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _one(self, client: Client) -> None:
        asked, spec, stop_after = self._next()
        self.asked[asked.name] = asked
        try:
            view = await client.create_session(spec)
        except MoorageError as error:
            self.calls[f"create: {type(error).__name__} {getattr(error, 'status', '')}".strip()] += 1
            self.doubtful.add(asked.name)
            return
        except asyncio.CancelledError:
            self.doubtful.add(asked.name)
            raise
        self.calls["create: 201"] += 1
        self.acknowledged[view.id] = asked.name
        if stop_after is not None:
            await asyncio.sleep(stop_after)
            await self._stop(client, view.id)

    async def _stop(self, client: Client, ref: str) -> None:
        while True:
            try:
                await client.stop_session(ref)
            except MoorageError:
                await asyncio.sleep(0.5)
            else:
                self.calls["stop: 200"] += 1
                return

    def _next(self) -> tuple[Asked, SessionSpec, float | None]:
        dice, name = self._dice, f"load-{len(self.asked)}"
        kind = dice.choices(
            ("batch", "retried", "timeout", "interactive", "lifetime", "gpu"), (45, 10, 8, 20, 5, 12)
        )[0]
        length = min(15.0, 0.2 + dice.expovariate(1 / 4))
        code = dice.choice((0, 0, 0, 1, 3, 42))
        more: dict[str, Any] = {"resources": SMALL, "stop_grace_s": 1}
        stop_after = dice.uniform(0, 10) if kind == "interactive" or dice.random() < 0.1 else None
        if kind == "retried":
            code, length = dice.choice((1, 7)), min(length, 3.0)
            more |= {"retries": 2, "retry_backoff_s": 1}
        if kind == "gpu":
            more["resources"] = SMALL | {"cuda.device": dice.choice((1, 1, 2))}
        if kind == "timeout":
            more["timeout_s"] = 3
        if kind == "lifetime":
            more["max_lifetime_s"] = 4
        scripted = kind in ("batch", "retried", "gpu")
        program = f"{self._line} sleep {length:.2f}; exit {code}" if scripted else self._line + FOREVER
        more["type"] = "interactive" if kind in ("interactive", "lifetime") else "batch"
        spec = SessionSpec(name=name, command=["/bin/sh", "-c", program], **more)
        return Asked(name, kind, code if scripted else None, more.get("retries", 0)), spec, stop_after

    async def _talk(self, end: float) -> None:
        """A client that streams; a broken answer is counted, not a violation: its replica may be gone."""
        loop = asyncio.get_running_loop()
        message: Any = [{"role": "user", "content": "go on"}]
        while loop.time() < end:
            try:
                async with asyncio.timeout(20):
                    words = [
                        p
                        async for p in chat(
                            self.cluster.openai_url, self.cluster.key, "words", message, max_tokens=20
                        )
                    ]
                whole = "".join(words).split() == [str(n) for n in range(20)]
                self.chats["whole" if whole else "WRONG"] += 1
            except (MoorageError, OSError, TimeoutError) as error:
                self.chats[type(error).__name__] += 1
                await asyncio.sleep(0.5)
