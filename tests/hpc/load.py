"""Constant load on a model, and a verdict on each request.

A request fails unless its answer is complete. It may fail only if nothing could have saved it: its
stream had already begun when a component on its path was killed, or the proxy to which it was sent
was down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import aiohttp

# A held request waits this long for its answer.
_PATIENCE_S = 180.0


@dataclass
class Request:
    began: float
    first_at: float = 0.0
    ended: float = 0.0
    problem: str = ""


@dataclass
class Load:
    """``requests``: the requests that have ended."""

    requests: list[Request] = field(default_factory=list)
    _kills: list[tuple[float, float]] = field(default_factory=list)
    _outages: list[tuple[float, float]] = field(default_factory=list)

    @contextmanager
    def cut(self) -> Iterator[None]:
        """While active, a component through which answers pass is killed."""
        before = time.monotonic()
        yield
        self._kills.append((before, time.monotonic()))

    @contextmanager
    def outage(self) -> Iterator[None]:
        """While active, the only proxy is killed; it serves again by the end."""
        before = time.monotonic()
        yield
        self._outages.append((before, time.monotonic()))

    def failed(self) -> list[Request]:
        return [one for one in self.requests if one.problem and not self._is_excused(one)]

    def _is_excused(self, one: Request) -> bool:
        begun = one.first_at and any(
            one.first_at <= until and one.ended >= at for at, until in self._kills
        )
        return bool(begun) or any(
            one.began <= until and one.ended >= at for at, until in self._outages
        )

    def summary(self) -> str:
        cut = sum(bool(one.problem) for one in self.requests) - len(self.failed())
        slowest = max((one.ended - one.began for one in self.requests), default=0.0)
        return (
            f"{len(self.requests)} requests, {len(self.failed())} failed, {cut} cut off by a kill, "
            f"the slowest took {slowest:.1f} s"
        )

    async def ask(self, http: aiohttp.ClientSession, url: str, model: str, words: int) -> None:
        one = Request(time.monotonic())
        body = {"model": model, "max_tokens": words, "stream": True,
                "messages": [{"role": "user", "content": "hi"}]}  # fmt: skip
        try:
            async with http.post(f"{url}/chat/completions", json=body) as answer:
                text = b""
                async for piece in answer.content.iter_any():
                    one.first_at = one.first_at or time.monotonic()
                    text += piece

            if answer.status != 200 or not text.endswith(b"data: [DONE]\n\n"):
                one.problem = f"{answer.status} {text[-300:]!r}"
        except (aiohttp.ClientError, TimeoutError) as error:
            one.problem = repr(error)

        one.ended = time.monotonic()
        self.requests.append(one)


@asynccontextmanager
async def constant_load(
    url: str,
    key: dict[str, str],
    model: str,
    rate: float,
    *,
    words: int = 10,
    long_words: int = 0,
    strict: bool = True,
) -> AsyncIterator[Load]:
    """``rate`` requests a second, each a stream of ``words`` words, and every second also one of
    ``long_words`` words. ``strict``: at the end every request must have succeeded, except those
    that nothing could have saved."""
    load = Load()
    over = asyncio.Event()
    running = set[asyncio.Task[None]]()

    async def clients() -> None:
        timeout = aiohttp.ClientTimeout(total=_PATIENCE_S)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(headers=key, timeout=timeout, connector=connector) as http:
            began = time.monotonic()
            sent = 0
            while not over.is_set():
                is_long = long_words and sent % max(1, round(rate)) == 0
                asking = load.ask(http, url, model, long_words if is_long else words)
                running.add(asyncio.create_task(asking))
                sent += 1
                await asyncio.sleep(max(0.0, began + sent / rate - time.monotonic()))

            await asyncio.gather(*running)

    asking = asyncio.create_task(clients())
    try:
        yield load
    finally:
        over.set()
        await asking
        print(load.summary(), flush=True)

    assert not (strict and load.failed()), load.failed()[:5]
