"""Asks a starting kernel again and again whether it serves requests yet."""

from __future__ import annotations

import asyncio

import aiohttp

from moorage.agent.engines.base import Engine, Probe
from moorage.agent.runtimes.base import OnProgress, ignore_progress
from moorage.common.aio.clock import Clock

_FIRST_PAUSE_S = 0.01
_WARM_S = 1.0
_ANSWER_TIMEOUT = aiohttp.ClientTimeout(total=60, sock_connect=2)
_NO_SUCH_ROUTE = frozenset({404, 405, 501})


class Readiness:
    """``last`` says what the newest attempt found, for the error if it is never ready."""

    def __init__(self, engine: Engine, probes: tuple[Probe, ...], base: str) -> None:
        self._engine, self._probes, self._base = engine, probes, base
        self.last = "it was not asked yet"
        self._tell: OnProgress = ignore_progress

    async def wait(self, period_s: float, clock: Clock, tell: OnProgress = ignore_progress) -> None:
        """Return when a probe is answered well. Pauses grow from 10 ms to ``period_s``: what starts quickly
        is seen quickly, what starts slowly costs little. ``tell`` hears how far it is: it loads before it
        listens, and warms up before it answers well."""
        self._tell, pause = tell, min(_FIRST_PAUSE_S, period_s)
        # Asked directly, each time anew: no proxy of the environment, no kept connection.
        connector = aiohttp.TCPConnector(force_close=True, limit=0)
        async with aiohttp.ClientSession(connector=connector, trust_env=False) as http:
            while not await self._ask(http):
                await asyncio.sleep(pause * clock.jitter(0.1))
                pause = min(period_s, pause * 1.3)

    async def _ask(self, http: aiohttp.ClientSession) -> bool:
        for probe in self._probes:
            asked = f"{probe.method} {probe.path}"
            # Whoever does not listen says so at once.
            slow = asyncio.get_running_loop().call_later(
                _WARM_S, self._tell, f"warming up: {asked} is being answered"
            )
            try:
                async with http.request(
                    probe.method,
                    self._base + probe.path,
                    data=probe.body,
                    headers=probe.headers,
                    timeout=_ANSWER_TIMEOUT,
                    allow_redirects=False,
                ) as answer:
                    body = await answer.content.read(4096)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                self.last = f"{asked}: {str(error) or type(error).__name__}"
                if isinstance(error, aiohttp.ClientConnectorError):
                    self._tell("loading: it does not listen yet")
                return False
            finally:
                slow.cancel()
            if self._engine.ready(answer.status, body):
                return True
            said = body[:200].decode(errors="replace").replace("\0", "").strip()
            self.last = f"{asked} answered {answer.status} {said}".strip()
            if answer.status not in _NO_SUCH_ROUTE:
                self._tell(f"warming up: {self.last}")
                return False
        return False
