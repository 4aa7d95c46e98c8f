"""Asks a starting kernel again and again whether it serves requests yet."""

from __future__ import annotations

import asyncio

import aiohttp

from fairlead.agent.engines.base import Engine, Probe
from fairlead.common.clock import Clock

_FIRST_PAUSE_S = 0.01
_ANSWER_TIMEOUT = aiohttp.ClientTimeout(total=60, sock_connect=2)
_NO_SUCH_ROUTE = frozenset({404, 405, 501})


class Readiness:
    """``last`` says what the newest attempt found, for the error if it is never ready."""

    def __init__(
        self, http: aiohttp.ClientSession, engine: Engine, probes: tuple[Probe, ...], base: str
    ) -> None:
        self._http, self._engine, self._probes, self._base = http, engine, probes, base
        self.last = "it was not asked yet"

    async def wait(self, period_s: float, clock: Clock) -> None:
        """Return when a probe is answered well. Pauses grow from 10 ms to ``period_s``: what starts quickly
        is seen quickly, what starts slowly costs little."""
        pause = min(_FIRST_PAUSE_S, period_s)
        while not await self._ask():
            await asyncio.sleep(pause * clock.jitter(0.1))
            pause = min(period_s, pause * 1.3)

    async def _ask(self) -> bool:
        for probe in self._probes:
            try:
                async with self._http.request(
                    probe.method,
                    self._base + probe.path,
                    data=probe.body,
                    headers=probe.headers,
                    timeout=_ANSWER_TIMEOUT,
                    allow_redirects=False,
                ) as answer:
                    body = await answer.content.read(4096)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                self.last = f"{probe.method} {probe.path}: {str(error) or type(error).__name__}"
                return False
            if self._engine.ready(answer.status, body):
                return True
            said = body[:200].decode(errors="replace").replace("\0", "").strip()
            self.last = f"{probe.method} {probe.path} answered {answer.status} {said}".strip()
            if answer.status not in _NO_SUCH_ROUTE:
                return False
        return False
