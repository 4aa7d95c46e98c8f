"""Load writer: writes the load that proxies report, once a second in one statement, or immediately
if a model must be woken or a draining replica has finished.

For each proxy, only the newest state is kept, not a queue of reports; anything lost is in the next
complete report. A name belongs to one process at a time; Postgres decides which, across all
managers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.link.proxy_messages import LoadReport
from moorage.common.model.errors import StoreUnavailable
from moorage.manager.store import Store

log = structlog.get_logger("moorage.load")
EVERY_S = 1.0
FORGOTTEN_S = 3600.0
# Maximum number of reports that wait for the next write, far more than there are proxies.
_PROXIES = 1000


class LoadWriter:
    """``saw_traffic`` is called with the sessions whose apps had traffic. ``on_refused`` is called
    with the name and the incarnation of a report that was not written, and with the address of the
    process that owns the name."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        saw_traffic: Callable[[Collection[str]], None] = lambda _: None,
        on_refused: Callable[[str, str, str], None] = lambda *_: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._saw_traffic = saw_traffic
        self._on_refused = on_refused
        self._newest: dict[str, LoadReport] = {}

        # Sessions with requests, by proxy and model, to notice when the last request ends.
        self._busy: dict[tuple[str, str], frozenset[str]] = {}
        self._ended: dict[str, str] = {}  # names whose link has ended, with the incarnation
        self._forgot_at = clock.monotonic()
        self.loop = Loop("load", self.run_once, interval_s=EVERY_S, clock=clock)

    def record_load(self, report: LoadReport) -> None:
        """Record the load from a report; never blocks."""
        if report.apps:
            self._saw_traffic(report.apps)

        before = self._newest.get(report.proxy_id)
        if before is not None and not report.whole and before.incarnation == report.incarnation:
            models = {model.model: model for model in (*before.models, *report.models)}
            report = replace(report, models=tuple(models.values()), whole=before.whole)
        if before is not None or len(self._newest) < _PROXIES:
            self._newest[report.proxy_id] = report
        if self._is_urgent(report):
            self.loop.nudge()

    async def claim(self, report: LoadReport, address: str) -> str | None:
        """Write the first report of a link from ``address`` immediately. Returns the address of the
        process that owns the name, or None if this process owns it.

        Raises ``StoreUnavailable``."""
        await self._release()
        refused = await self._store.loads.put([report], {report.proxy_id: address})
        return refused.get(report.proxy_id)

    def proxy_gone(self, proxy_id: str, incarnation: str) -> None:
        """Note that the link has ended. The last report stays until it is too old, because the
        proxy may by now be connected to another manager."""
        self._busy = {key: busy for key, busy in self._busy.items() if key[0] != proxy_id}
        self._ended[proxy_id] = incarnation
        self.loop.nudge()

    def _is_urgent(self, report: LoadReport) -> bool:
        """Whether a request is waiting, or a replica no longer has requests and may therefore be
        draining."""
        urgent = False
        for load in report.models:
            key = (report.proxy_id, load.model)
            busy = frozenset(replica.session_id for replica in load.replicas)
            urgent |= load.waiting > 0 or bool(self._busy.get(key, frozenset()) - busy)
            self._busy[key] = busy
        return urgent

    async def _release(self) -> None:
        ended = self._ended
        self._ended = {}
        if ended:
            try:
                await self._store.loads.release(ended)
            except StoreUnavailable:
                self._ended = ended | self._ended
                raise

    async def run_once(self) -> None:
        reports = self._newest
        self._newest = {}
        if reports:
            try:
                refused = await self._store.loads.put(list(reports.values()))
            except StoreUnavailable:
                for proxy_id, report in reports.items():
                    newer = self._newest.pop(proxy_id, None)
                    self._newest[proxy_id] = report
                    if newer is not None:
                        self.record_load(newer)

                raise

            for proxy_id, address in refused.items():
                self._on_refused(proxy_id, reports[proxy_id].incarnation, address)

        await self._release()  # after the last reports of these links
        now = self._clock.monotonic()
        if now - self._forgot_at >= FORGOTTEN_S:
            self._forgot_at = now
            await self._store.loads.forget(FORGOTTEN_S)
