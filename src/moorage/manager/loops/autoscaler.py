"""Autoscaler: samples the load of autoscaled endpoints, and carries out what ``serving.autoscale``
decides.

It examines endpoints that are new, whose load has changed, or whose next decision is due. A new
leader has no record of earlier load, so it does not scale anything down until it has observed the
load for long enough.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.ids import EndpointId
from moorage.manager.identity.scope import Scope
from moorage.manager.loops.leader import Leader
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.serving.autoscale import autoscale
from moorage.manager.serving.snapshots import LoadSample
from moorage.manager.store import Store
from moorage.manager.store.endpoints.loads import ScaledEndpoint

log = structlog.get_logger("moorage.autoscale")
_SCOPE = Scope.system("autoscaler")
INTERVAL_S = 2.0
AT_ONCE = 100
# Interval at which an endpoint is examined if nothing changes, because values that nothing reports,
# such as a report's age, may have changed. The second value is the number of endpoints per run,
# longest-waiting first; with more endpoints, the interval is longer.
LOOK_S = 30.0
SWEPT = 8
# A sample closer than this to the previous one replaces it.
_RESOLUTION_S = 1.0


@dataclass
class _Watched:
    """What is remembered of one endpoint: its samples, oldest first, and its last request counters.
    ``looked_at``: time of the last sample, in monotonic seconds."""

    looked_at: float = 0.0
    samples: list[LoadSample] = field(default_factory=list)
    counted: tuple[datetime, Mapping[str, int]] | None = None

    def add(self, endpoint: ScaledEndpoint) -> None:
        load = endpoint.load
        if (
            self.counted is not None
            and (passed_s := (load.at - self.counted[0]).total_seconds()) > 0
        ):
            before = self.counted[1]
            new = sum(max(0, n - before.get(key, 0)) for key, n in endpoint.requests.items())
            load = replace(load, request_rate=new / passed_s)

        if self.counted is None or (load.at - self.counted[0]).total_seconds() >= _RESOLUTION_S:
            self.counted = load.at, endpoint.requests

        if (
            len(self.samples) > 1
            and (load.at - self.samples[-2].at).total_seconds() < _RESOLUTION_S
        ):
            self.samples.pop()

        self.samples.append(load)
        since = load.at - timedelta(seconds=endpoint.scaling.policy.down_delay_s)
        while len(self.samples) > 1 and self.samples[1].at <= since:
            self.samples.pop(0)


class Autoscaler:
    def __init__(self, store: Store, leader: Leader, metrics: ManagerMetrics, clock: Clock) -> None:
        self._store = store
        self._leader = leader
        self._metrics = metrics
        self._clock = clock
        self._watched: dict[EndpointId, _Watched] = {}
        self._look_at: dict[EndpointId, datetime] = {}
        self._changed: set[EndpointId] = set()
        self._since: datetime | None = None
        self._term: int | None = None
        self.loop = Loop("autoscale", self.run_once, interval_s=INTERVAL_S, clock=clock)
        store.notifier.on_endpoints(self._endpoints_changed)

    def _endpoints_changed(self, endpoints: Collection[EndpointId] | None) -> None:
        if endpoints is None:
            self._since = None  # examine all
        else:
            self._changed.update(endpoints)
        self.loop.nudge()

    async def run_once(self) -> None:
        term = self._leader.term
        if term != self._term:
            self._term = term
            self._since = None
            self._watched = {}
            self._look_at = {}

        if term is None:
            self._changed.clear()
            return

        now = self._leader.deadlines.now()
        changed = self._changed
        self._changed = set()
        if self._since is None:
            changed.update(await self._store.loads.autoscaled(_SCOPE))
            self._since = now

        found, self._since = await self._store.loads.changed(_SCOPE, self._since)
        changed.update(found, self._due(now))
        remaining = sorted(changed)
        while remaining and self._leader.term == term:
            await self._look(remaining[:AT_ONCE], term)
            del remaining[:AT_ONCE]

    def _due(self, now: datetime) -> list[EndpointId]:
        planned = [endpoint_id for endpoint_id, at in self._look_at.items() if at <= now]
        oldest = islice(self._watched.items(), SWEPT)
        late = self._clock.monotonic() - LOOK_S
        return planned + [
            endpoint_id for endpoint_id, watched in oldest if watched.looked_at <= late
        ]

    async def _look(self, among: list[EndpointId], term: int) -> None:
        endpoints = await self._store.loads.of_endpoints(_SCOPE, among)
        for gone in set(among).difference(endpoint.endpoint_id for endpoint in endpoints):
            self._watched.pop(gone, None)
            self._look_at.pop(gone, None)
        for endpoint in endpoints:
            await self._scale(endpoint, term)

    async def _scale(self, endpoint: ScaledEndpoint, term: int) -> None:
        watched = self._watched.pop(endpoint.endpoint_id, None) or _Watched()
        watched.looked_at = self._clock.monotonic()
        self._watched[endpoint.endpoint_id] = watched
        watched.add(endpoint)
        now = endpoint.load.at
        load = watched.samples[-1]
        decision = autoscale(endpoint.scaling, watched.samples, now)
        self._look_at.pop(endpoint.endpoint_id, None)
        if decision.look_at is not None:
            self._look_at[endpoint.endpoint_id] = decision.look_at
        if decision.replicas == endpoint.scaling.wanted:
            return

        inputs = {
            name: value
            for name, value in asdict(load).items()
            if name != "at" and value is not None
        }
        if await self._store.loads.scale(
            _SCOPE, endpoint, decision=decision, inputs=inputs, term=term
        ):
            self._metrics.scaled(decision.rule)
            change = f"{endpoint.scaling.wanted} to {decision.replicas}"
            log.info(
                "endpoint scaled",
                endpoint=endpoint.name,
                replicas=change,
                rule=decision.rule,
                why=decision.detail,
            )
