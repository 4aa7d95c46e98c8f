"""A kernel's readiness check: probes over HTTP until the kernel serves requests, and afterwards
checks whether it still does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from moorage.agent.engines.base import Engine, ReadinessProbe
from moorage.agent.engines.metrics import (
    MODELS,
    PATH,
    EngineMetrics,
    parse_max_model_len,
    parse_metrics,
)
from moorage.agent.kernel.program_client import NoAnswer, ProgramClient
from moorage.agent.runtimes.base import OnProgress, ignore_progress
from moorage.common.aio.clock import Clock

_FIRST_PAUSE_S = 0.01
_WARM_UP_AFTER_S = 1.0
# Longest pause between two probes while a kernel at a site loads.
_SITE_PAUSE_S = 5.0
# Interval at which progress is read from the log of a kernel that takes longer to load.
_READ_LOG_S = 1.0
_PROBE_TIMEOUT_S = 60.0
_PROBE_BYTES = 4096
# Limits for checking a ready kernel: the duration of a check, and the size of the metrics.
CHECK_TIMEOUT_S = 10.0
_METRICS_BYTES = 4 * 1024 * 1024
UNREACHABLE = EngineMetrics(0, 0, None, 0.0)
_NO_SUCH_ROUTE = frozenset({404, 405, 501})


class ReadinessCheck:
    """A readiness check. ``last_result`` describes the latest attempt, for the error of a kernel
    that is never ready. ``read_log``: reads the end of the kernel's log, which may show the
    engine's progress. ``interval_s``: the minimum time between two checks of a ready kernel."""

    def __init__(
        self,
        engine: Engine,
        probes: tuple[ReadinessProbe, ...],
        base_url: str,
        read_log: Callable[[], Awaitable[str]] | None = None,
        *,
        interval_s: float = 0.0,
    ) -> None:
        self.interval_s = interval_s
        self._engine = engine
        self._probes = probes
        self._base_url = base_url
        self._read_log = read_log
        self._stage = ""
        self.last_result = "not probed yet"
        self._on_progress: OnProgress = ignore_progress

    async def wait(
        self, period_s: float, clock: Clock, on_progress: OnProgress = ignore_progress
    ) -> None:
        """Return when a probe succeeds. Pauses grow from 10 ms to ``period_s``, so that a fast
        start is noticed early and a slow start costs few probes. ``on_progress`` is called while
        the server loads (it does not listen yet) and while it warms up (it listens, but no probe
        succeeds)."""
        if self.interval_s:  # each probe is a call to the site
            period_s = max(period_s, min(self.interval_s, _SITE_PAUSE_S))

        pause = min(_FIRST_PAUSE_S, period_s)
        self._on_progress = on_progress
        read_at = clock.monotonic()
        async with ProgramClient() as client:
            while not await self._probe(client, self._probes):
                if self._read_log is not None and clock.monotonic() - read_at >= _READ_LOG_S:
                    self._stage = self._engine.progress(await self._read_log())
                    read_at = clock.monotonic()

                await asyncio.sleep(pause * clock.jitter(0.1))
                pause = min(period_s, pause * 1.3)

    @property
    def has_health_route(self) -> bool:
        return bool(self._engine.health_path)

    async def probe_once(self) -> bool | None:
        """Whether the kernel currently serves requests; None if there was no answer in time."""
        return await self._probe_in_time(self._probes)

    async def probe_quietly(self) -> bool | None:
        """Whether the engine says that it works, without a line in its log, or the outcome of
        ``probe_once`` if it has no such route; None if there was no answer in time."""
        headers = self._probes[0].headers if self._probes else {}
        probe = ReadinessProbe("GET", self._engine.health_path, headers=headers)
        return await self._probe_in_time((probe, *self._probes))

    async def _probe_in_time(self, probes: tuple[ReadinessProbe, ...]) -> bool | None:
        self._on_progress = ignore_progress
        async with ProgramClient() as client:
            try:
                async with asyncio.timeout(CHECK_TIMEOUT_S):
                    return await self._probe(client, probes)
            except TimeoutError:
                self.last_result = f"no answer within {CHECK_TIMEOUT_S:g} s"
                return None

    async def read_metrics(self) -> EngineMetrics | None:
        """The engine's own counters: zeros while it cannot be reached, None if it has none."""
        status, body = await self._get(PATH)
        if status in _NO_SUCH_ROUTE:
            return None
        return parse_metrics(body.decode(errors="replace")) if status == 200 else UNREACHABLE

    async def read_max_model_len(self) -> int | None:
        """The maximum number of tokens of a prompt and its answer together; None if the engine does
        not report it."""
        status, body = await self._get(MODELS)
        return parse_max_model_len(body) if status == 200 else None

    async def _get(self, path: str) -> tuple[int, bytes]:
        """The status and the body; (0, b"") if the engine cannot be reached."""
        headers = self._probes[0].headers if self._probes else {}
        try:
            async with ProgramClient() as client:
                answer = await client.ask(
                    "GET",
                    self._base_url + path,
                    headers=headers,
                    most_bytes=_METRICS_BYTES,
                    timeout_s=CHECK_TIMEOUT_S,
                )
        except NoAnswer:
            return 0, b""

        return answer.status, answer.body

    async def _probe(self, client: ProgramClient, probes: tuple[ReadinessProbe, ...]) -> bool:
        for probe in probes:
            name = f"{probe.method} {probe.path}"
            # A refused connection is reported immediately, whereas a slow answer means that the
            # server is listening.
            slow = asyncio.get_running_loop().call_later(
                _WARM_UP_AFTER_S, self._on_progress, f"warming up: waiting for the answer to {name}"
            )
            try:
                answer = await client.ask(
                    probe.method,
                    self._base_url + probe.path,
                    headers=probe.headers,
                    data=probe.body,
                    most_bytes=_PROBE_BYTES,
                    timeout_s=_PROBE_TIMEOUT_S,
                    whole=False,
                )
            except NoAnswer as error:
                self.last_result = f"{name}: {error}"
                if not error.is_listening:
                    self._on_progress(self._stage or "loading: it does not listen yet")

                return False
            finally:
                slow.cancel()

            if self._engine.ready(answer.status, answer.body):
                return True

            text = answer.body[:200].decode(errors="replace").replace("\0", "").strip()
            self.last_result = f"{name} answered {answer.status} {text}".strip()
            if answer.status not in _NO_SUCH_ROUTE:
                self._on_progress(self._stage or f"warming up: {self.last_result}")
                return False

        return False
