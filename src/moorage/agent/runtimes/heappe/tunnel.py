"""Tunnel keeper: opens, probes, repairs and keeps alive the tunnel to the engine of one job.

HEAppE has one tunnel for each task and user, and returns a dead tunnel as if it were alive. The
engine's health is therefore queried through it. A tunnel that does not answer is closed and
requested again, one attempt at a time, paced for all requests and probes together. If this does not
repair it, the job must be replaced (``broken``). If HEAppE itself is silent, this does not mean
anything for the tunnel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp
import structlog

from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.errors import HeappeFailed, SiteFault, stream_failure
from moorage.agent.runtimes.heappe.framing import (
    HEALTH_PATH,
    RELAY_PATH,
    ending,
    failure_in,
    is_relay,
)
from moorage.agent.runtimes.heappe.reach import DEAD, EngineReach
from moorage.agent.runtimes.heappe.wire import Tunnel
from moorage.common.aio.clock import Clock

log = structlog.get_logger("moorage.agent.heappe")
# Any call that uses the connection of the job's account prevents its removal after 30 minutes.
KEEP_ALIVE_S = 480.0
# Failed probes before a tunnel is reopened because of them. A request does not wait for a second
# probe.
FAILURES = 2
UNREACHABLE_TIMEOUT_S = 1800.0
_PROBE_S = 15.0


@dataclass(frozen=True, slots=True)
class TunnelTarget:
    """Where a job listens. ``key``: the key of the relay in the job; empty if the engine itself
    listens there."""

    node: str
    port: int
    key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Way:
    """An open tunnel. ``framed``: the relay in the job answers, and passes on the status and
    headers."""

    tunnel: Tunnel
    key: str = field(repr=False)
    framed: bool


class Paced(HeappeFailed):
    """The tunnel will be reopened a little later. This error repeats the last failure and is not a
    new one."""


class TunnelKeeper:
    """The keeper. ``timeout_s``: how long a tunnel may be dead before the job is given up.
    ``renewals``: limits concurrent renewals for all of the site's jobs. ``on_change`` is called
    when the tunnel may be gone or back. ``problem``: the current problem; empty if there is
    none."""

    def __init__(
        self,
        client: HeappeClient,
        task_id: int,
        target: TunnelTarget,
        clock: Clock,
        *,
        timeout_s: float = UNREACHABLE_TIMEOUT_S,
        renewals: asyncio.Semaphore | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._task_id = task_id
        self._target = target
        self._clock = clock
        self._timeout_s = timeout_s
        self._on_change = on_change
        self._lock = asyncio.Lock()
        self._renewals = renewals or asyncio.Semaphore(1)
        self._way: Way | None = None
        self._failures = 0  # failed probes
        self._kept_at = float("-inf")
        self.reach = EngineReach()
        self.problem = ""

    @property
    def broken(self) -> bool:
        """Whether closing the tunnel and requesting it again has failed to repair it in time."""
        return self.reach.is_given_up(self._clock.monotonic(), self._timeout_s)

    @property
    def gone_since(self) -> float | None:
        """Since when a previously reached engine has been out of reach, monotonic; None if it is
        not."""
        return self.reach.gone_since(self._clock.monotonic())

    async def way(self) -> Way:
        """Return the way to the engine, after opening the tunnel if there is none. Raises
        ``HeappeFailed``."""
        if self._way is not None:
            return self._way
        async with self._lock:
            if self._way is None:
                self._pace()
                self._way = await self._open()
            return self._way

    def answered(self) -> None:
        """Record that the engine has answered a request."""
        was_missed = self.reach.missed_at is not None
        self.reach.answered(self._clock.monotonic())
        self._failures = 0
        self.problem = ""
        if was_missed:
            self._on_change()

    def missed(self, error: HeappeFailed) -> None:
        """Record that a request or a probe did not reach the engine."""
        if isinstance(error, Paced):
            return
        self.problem = error.message
        self.reach.missed(self._clock.monotonic(), error)
        if self.reach.missed_at is not None:
            self._on_change()

    async def renew(self, used: Way, why: str) -> None:
        """Close and reopen the tunnel, unless another caller has just done so. Raises
        ``HeappeFailed``."""
        async with self._lock:
            if self._way is not used:
                return

            self._pace()
            async with self._renewals:
                log.warning("opening a tunnel again", task=self._task_id, why=why)
                self._way = None
                await self._close(used.tunnel)
                self._way = await self._open()

    async def check(self, period_s: float) -> None:
        """Probe the engine unless it has answered recently, and repair the tunnel. Never raises."""
        now = self._clock.monotonic()
        if self.reach.answered_at is not None and now - self.reach.answered_at < period_s:
            await self._keep_alive(now)
            return

        way = self._way
        try:
            async with asyncio.timeout(3 * _PROBE_S):
                way = await self.way()
                is_alive = await self._probe(way)

            if is_alive:
                self.answered()
                await self._keep_alive(now)
            else:
                self.reach.silent(self._clock.monotonic())
                self.problem = "the engine does not answer"

                # An engine that has never answered may still be loading.
                if self.reach.answered_at is not None:
                    await self._heal(way, self.problem)
        except HeappeFailed as error:
            self.missed(error)
            if error.problem in DEAD and way is not None:
                await self._heal(way, error.message)
        except TimeoutError:
            self.missed(
                HeappeFailed(SiteFault.UNREACHABLE, "the probe of the engine takes too long")
            )

    async def end_program(self) -> bool:
        """Ask our program in the job to end. Returns False if it cannot be asked or does not
        answer."""
        way = self._way
        if way is None or not way.framed:
            return False

        plain_text = {"Content-Type": "text/plain"}
        try:
            async with (
                asyncio.timeout(_PROBE_S),
                self._client.stream(way.tunnel, RELAY_PATH, plain_text, ending(way.key)) as content,
            ):
                return (await content.read(2000)).strip() == b"{}"
        except (HeappeFailed, TimeoutError, aiohttp.ClientError, OSError):
            return False

    async def close(self) -> None:
        """Close the tunnel, so that its port becomes free for others."""
        way = self._way
        self._way = None
        if way is not None:
            await self._close(way.tunnel)

    async def _heal(self, way: Way, why: str) -> None:
        self._failures += 1
        if self._failures < FAILURES or self.broken:
            return
        try:
            await self.renew(way, why)
        except HeappeFailed as error:
            self.missed(error)
        else:
            self._failures = 0

    def _pace(self) -> None:
        """Allow one attempt at a time for all users of the tunnel. Raises ``Paced`` until the next
        one is due."""
        now = self._clock.monotonic()
        last = self.reach.failure
        if not self.reach.may_renew(now):
            said = last or HeappeFailed(SiteFault.TUNNEL, "it is being reopened")
            raise Paced(said.problem, said.detail, call=said.call, status=said.status, unsent=True)
        self.reach.renewing(now, self._clock.jitter(0.2))

    async def _open(self) -> Way:
        """Open a tunnel to the target. The server returns an existing one regardless of the
        requested port."""
        target = self._target
        tunnel = await self._client.request_tunnel(self._task_id, target.node, target.port)
        if (tunnel.node_ip, tunnel.node_port) != (target.node, target.port):
            await self._close(tunnel)
            tunnel = await self._client.request_tunnel(self._task_id, target.node, target.port)

        if (tunnel.node_ip, tunnel.node_port) != (target.node, target.port):
            raise HeappeFailed(
                SiteFault.TUNNEL, f"the tunnel leads to {tunnel.node_ip}:{tunnel.node_port}"
            )

        return Way(tunnel, target.key, framed=bool(target.key))

    async def _close(self, tunnel: Tunnel) -> None:
        try:
            await self._client.close_tunnel(tunnel)
        except HeappeFailed as error:
            # An empty 500 if it is already gone; a permanent 502 if another user has closed it.
            log.info("a tunnel was not closed", task=self._task_id, why=error.message)

    async def _probe(self, way: Way) -> bool:
        """Whether the engine, or the relay in the job, answers. Raises ``HeappeFailed`` if the
        tunnel is dead or the server does not report it."""
        try:
            page = await self._client.get(way.tunnel, HEALTH_PATH if way.framed else "/health")
        except HeappeFailed as error:
            if error.problem is not SiteFault.UPSTREAM:
                raise
            if error.detail.strip() not in ("", "''"):
                return True  # it answered something other than 200

            return await self._listens(way)

        return is_relay(page) if way.framed else True

    async def _listens(self, way: Way) -> bool:
        """Distinguish a dead tunnel from an engine that is not listening, which only the stream
        call shows."""
        path = RELAY_PATH if way.framed else "/health"
        async with self._client.stream(
            way.tunnel, path, {"Content-Type": "text/plain"}, ""
        ) as content:
            text = (await content.read(2000)).decode(errors="replace")

        said = failure_in(text)
        if said is None:
            return True

        error = stream_failure(said)
        if error.problem is not SiteFault.UPSTREAM:
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
