"""Tunnel keeper: the way to the engine of one job, opened, probed, healed and kept alive.

HEAppE has one tunnel for each task and user, and hands out a dead one as if it were alive. So the engine's
health is asked through it. What does not answer is closed and requested again; that does not always heal, and
then the job has to be replaced (``broken``). Silence of HEAppE itself says nothing about the tunnel.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import structlog

from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.errors import HeappeFailed, Problem, stream_failure
from moorage.agent.runtimes.heappe.framing import HEALTH_PATH, RELAY_PATH, failure_in, is_relay
from moorage.agent.runtimes.heappe.wire import Tunnel
from moorage.common.aio.clock import Clock

log = structlog.get_logger("moorage.agent.heappe")
# Any call that uses the connection of the job's account keeps it from being reaped after 30 minutes.
KEEP_ALIVE_S = 480.0
FAILURES, HEALS = 2, 3
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 5.0, 120.0
_PROBE_S = 15.0
# The tunnel is gone, or its listener does not answer. The engine never saw the request.
_DEAD = frozenset({Problem.NO_TUNNEL, Problem.TUNNEL})


@dataclass(frozen=True, slots=True)
class Target:
    """Where a job listens. ``key``: of the relay in the job, "" if an engine listens there itself."""

    node: str
    port: int
    key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Way:
    """An open tunnel. ``framed``: the relay in the job answers, and carries status and headers."""

    tunnel: Tunnel
    key: str = field(repr=False)
    framed: bool


class TunnelKeeper:
    """``answered_at`` and ``silent_at``: the last time that the engine was reached, and that it was not, on
    the monotonic clock. ``problem``: what is wrong now, "" for nothing."""

    def __init__(self, client: HeappeClient, task_id: int, target: Target, clock: Clock) -> None:
        self._client, self._task_id, self._target, self._clock = client, task_id, target, clock
        self._lock = asyncio.Lock()
        self._way: Way | None = None
        self._failures = self._heals = 0
        self._paused_until = self._kept_at = float("-inf")
        self.answered_at: float | None = None
        self.silent_at: float | None = None
        self.problem = ""

    @property
    def broken(self) -> bool:
        """Closing and requesting the tunnel has not healed it."""
        return self._heals >= HEALS

    async def way(self) -> Way:
        """The way to the engine; opens the tunnel if there is none. Raises ``HeappeFailed``."""
        if self._way is not None:
            return self._way
        async with self._lock:
            if self._way is None:
                if self._clock.monotonic() < self._paused_until:
                    raise HeappeFailed(Problem.TUNNEL, self.problem or "it is being opened again")
                self._way = await self._open()
            return self._way

    def answered(self) -> None:
        """The engine has answered a request."""
        self.answered_at = self._clock.monotonic()
        self._failures = self._heals = 0
        self.problem = ""

    async def renew(self, used: Way, why: str) -> None:
        """Close the tunnel and open it again, unless somebody has done so meanwhile. Raises
        ``HeappeFailed``."""
        async with self._lock:
            if self._way is not used:
                return
            self._way = None
            self._heals += 1
            self._pause()
            log.warning("opening a tunnel again", task=self._task_id, why=why)
            await self._close(used.tunnel)
            self._way = await self._open()

    async def check(self, period_s: float) -> None:
        """Probe the engine unless it has answered lately, and heal the tunnel. Raises nothing."""
        now = self._clock.monotonic()
        if self.answered_at is not None and now - self.answered_at < period_s:
            await self._keep_alive(now)
            return
        try:
            async with asyncio.timeout(3 * _PROBE_S):
                way = await self.way()
                alive = await self._probe(way)
            if alive:
                self.answered()
                await self._keep_alive(now)
            else:
                await self._missed(way, "the engine does not answer", healable=self.answered_at is not None)
        except HeappeFailed as error:
            self.problem = error.message
            if error.problem in _DEAD and self._way is not None:
                await self._missed(self._way, error.message, healable=True)
        except TimeoutError:
            self.problem = "the probe of the engine takes too long"

    async def close(self) -> None:
        """Close the tunnel, so that its port is free for others."""
        way, self._way = self._way, None
        if way is not None:
            await self._close(way.tunnel)

    async def _missed(self, way: Way, why: str, *, healable: bool) -> None:
        """``healable``: an engine that never answered may just be loading."""
        self.silent_at, self.problem = self._clock.monotonic(), why
        self._failures += 1
        if not healable or self._failures < FAILURES or self.broken:
            return
        if self._clock.monotonic() < self._paused_until:
            return
        self._failures = 0
        try:
            await self.renew(way, why)
        except HeappeFailed as error:
            self.problem = error.message

    async def _open(self) -> Way:
        """A tunnel to the target. The server returns an old one whatever port is asked for."""
        target = self._target
        try:
            tunnel = await self._client.request_tunnel(self._task_id, target.node, target.port)
            if (tunnel.node_ip, tunnel.node_port) != (target.node, target.port):
                await self._close(tunnel)
                tunnel = await self._client.request_tunnel(self._task_id, target.node, target.port)
            if (tunnel.node_ip, tunnel.node_port) != (target.node, target.port):
                detail = f"the tunnel leads to {tunnel.node_ip}:{tunnel.node_port}"
                raise HeappeFailed(Problem.TUNNEL, detail)
        except HeappeFailed as error:
            self.problem = error.message
            self._pause()
            raise
        return Way(tunnel, target.key, framed=bool(target.key))

    async def _close(self, tunnel: Tunnel) -> None:
        try:
            await self._client.close_tunnel(tunnel)
        except HeappeFailed as error:
            # An empty 500 if it is gone already; 502 for ever if another user has closed it.
            log.info("a tunnel was not closed", task=self._task_id, why=error.message)

    async def _probe(self, way: Way) -> bool:
        """Whether the engine, or the relay in the job, answers. Raises ``HeappeFailed`` if the tunnel is dead
        or the server does not say."""
        try:
            page = await self._client.get(way.tunnel, HEALTH_PATH if way.framed else "/health")
        except HeappeFailed as error:
            if error.problem is not Problem.UPSTREAM:
                raise
            if error.detail.strip() not in ("", "''"):
                return True  # it answered something else than 200
            return await self._listens(way)
        return is_relay(page) if way.framed else True

    async def _listens(self, way: Way) -> bool:
        """Tell a dead tunnel from an engine that does not listen: only the stream call says which."""
        path = RELAY_PATH if way.framed else "/health"
        async with self._client.stream(way.tunnel, path, {"Content-Type": "text/plain"}, "") as content:
            text = (await content.read(2000)).decode(errors="replace")
        said = failure_in(text)
        if said is None:
            return True
        error = stream_failure(said)
        if error.problem is not Problem.UPSTREAM:
            raise error
        return said.startswith("ResponseNotOk")

    async def _keep_alive(self, now: float) -> None:
        if now - self._kept_at < KEEP_ALIVE_S:
            return
        self._kept_at = now
        try:
            await self._client.node_ips(self._task_id)
        except HeappeFailed as error:
            log.info("a tunnel was not kept alive", task=self._task_id, why=error.message)

    def _pause(self) -> None:
        pause_s = min(_FIRST_PAUSE_S * 2.0 ** min(self._heals, 10), _LONGEST_PAUSE_S)
        self._paused_until = self._clock.monotonic() + pause_s * self._clock.jitter(0.2)
