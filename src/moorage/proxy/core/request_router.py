"""Request router: the decisions that a data plane needs, and their state. Pure.

It admits requests, picks replicas and records outcomes. It does no IO and receives the time as an
argument, so any data plane (another HTTP server, a native relay) gets the same decisions. It
belongs to one event loop and is not thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import TypeVar

from moorage.common.config.settings import ProxySettings
from moorage.common.http.cors import Cors
from moorage.common.link.messages import ModelRoute, RouteTable, Target
from moorage.common.link.proxy_messages import EngineRequests
from moorage.common.model.ids import KernelId
from moorage.common.telemetry.spans import TraceSink
from moorage.proxy.core import admission
from moorage.proxy.core.admission import AdmissionPolicy, BodyRequired, Forward, LocalResponse
from moorage.proxy.core.affinity import MAX_LOAD, pick_affine
from moorage.proxy.core.answering import COUNTED, FAILED, Answering
from moorage.proxy.core.apis import split_project
from moorage.proxy.core.app_traffic import AppTraffic
from moorage.proxy.core.balancer import Ejections, RandRange, pick_target
from moorage.proxy.core.body_limit import BodyLimit
from moorage.proxy.core.body_memory import BodyMemory
from moorage.proxy.core.canary import share
from moorage.proxy.core.engine_room import EngineRoom
from moorage.proxy.core.error_response import (
    ErrorResponse,
    draining,
    invalid_key,
    no_table,
    stale_credentials,
)
from moorage.proxy.core.fallback import FallbackChain, Hop
from moorage.proxy.core.health import HEALTH
from moorage.proxy.core.limits.limiter import Ask, Limiter, RequestReservation, Unlimited
from moorage.proxy.core.metrics import NO_MODEL, ProxyMetrics
from moorage.proxy.core.model_names import ModelNames
from moorage.proxy.core.request_body import LargeReader
from moorage.proxy.core.response_homes import Home, ResponseHomes, bytes_needed, owner_of
from moorage.proxy.core.result_news import ANSWERED, GONE, ResultNews
from moorage.proxy.core.result_news import FAILED as FAILED_THERE
from moorage.proxy.core.retry import Failure
from moorage.proxy.core.routes import IndexedTable, StaleTable, newest_table
from moorage.proxy.core.stored_response import named_home
from moorage.proxy.core.table_age import TableAge
from moorage.proxy.core.waiting import WaitingRoom

K = TypeVar("K", bound=str)
_MOST_LOADS = 1024
"""Loads of engines without a route that are kept."""


class RequestRouter:
    """Owns the route table, the in-flight counts, the ejections, the waiting requests and the
    metrics.

    ``limiter``, ``homes``, ``results``: shared by the workers of a proxy; by default, there is one
    worker without limits. ``version``: of the proxy. ``credentials_revision`` changes with the
    keys, and when an agent is revoked. Until it changes, decisions about heads remain valid and
    requests can continue. ``last_request``: the time of a model's last request, in monotonic
    seconds. ``table_wait_s``: how long a request waits for routes that may be on their way. Times
    named ``now`` are monotonic seconds; times named ``unix_now`` are seconds since the epoch.
    """

    def __init__(
        self,
        settings: ProxySettings,
        metrics: ProxyMetrics,
        *,
        randrange: RandRange,
        table_wait_s: float = 1.0,
        tracer: TraceSink | None = None,
        limiter: Limiter | None = None,
        homes: ResponseHomes | None = None,
        results: ResultNews | None = None,
        version: str = "",
    ) -> None:
        self.settings = settings
        self.metrics = metrics
        self._table_wait_s = table_wait_s
        self.table: IndexedTable | None = None
        self.tracer = tracer
        self._table_watchers: list[Callable[[IndexedTable], None]] = []
        self.credentials_revision = 0
        self.limiter: Limiter = Unlimited() if limiter is None else limiter
        self.homes = (
            ResponseHomes(memoryview(bytearray(bytes_needed(16)))) if homes is None else homes
        )
        self.cors = Cors(settings.cors_origins)
        self._is_draining = False
        self.waiting = WaitingRoom(settings.max_held_requests, settings.max_held_bytes)
        self.bodies = BodyMemory(settings.max_total_body_bytes)
        self.apps = AppTraffic()
        self.last_request: dict[str, float] = {}
        self._engine_loads: dict[KernelId, EngineRequests] = {}
        self._policy = AdmissionPolicy(
            requires_key=settings.auth == "keys",
            max_body_bytes=settings.max_body_bytes,
            version=version,
            names=ModelNames(settings.default_model, settings.model_aliases),
            loads=self._engine_loads,
        )
        self.routes_age = TableAge(0)
        self.credentials = TableAge(settings.credentials_max_age_s)
        self.randrange = randrange
        self._ejections = Ejections()
        self.answering = Answering()
        self.room = EngineRoom()
        self.results = ResultNews() if results is None else results
        self._in_flight: dict[KernelId, int] = {}
        self._in_flight_by_model: dict[str, int] = {}
        metrics.show_requests(self._in_flight_by_model, self.waiting.counts)

    @property
    def in_flight(self) -> Mapping[KernelId, int]:
        """Requests in flight at each replica. Replicas without any are absent."""
        return self._in_flight

    @property
    def in_flight_by_model(self) -> Mapping[str, int]:
        """Requests in flight at the replicas of each model. Models without any are absent."""
        return self._in_flight_by_model

    @property
    def held(self) -> Mapping[str, int]:
        """The number of requests waiting for a replica of each model."""
        return self.waiting.counts()

    def watch_tables(self, watcher: Callable[[IndexedTable], None]) -> None:
        """From now on, call ``watcher`` with each accepted table."""
        self._table_watchers.append(watcher)

    def update_table(self, new: RouteTable) -> IndexedTable | StaleTable:
        """Use ``new`` from now on, unless it is older than the table in use."""
        held = self.table
        table = newest_table(held, new)
        if isinstance(table, IndexedTable):
            gone: Collection[str] = ()
            if held is table:
                gone = [name for name in new.removed_models if name not in table.models]
            elif held is not None:
                gone = held.models.keys() - table.models.keys()

            self.metrics.remove_models(gone)
            for name in gone:
                self.last_request.pop(name, None)

            self.table = table
            if not new.base or new.keys or new.removed_keys or new.revoked_agents:
                self.credentials_revision += 1

            self._ejections.keep_only(table.kernels)
            self.answering.keep_only(table.kernels)
            self.room.keep_only(table.kernels)
            self.metrics.table_generation.set(table.generation)
            for watcher in self._table_watchers:
                watcher(table)

        return table

    def take_engine_loads(self, loads: Iterable[EngineRequests]) -> None:
        """Show these loads with the models. Those of replicas that are gone are kept for a while,
        because loads and routes arrive separately."""
        known = self._engine_loads
        known |= {load.kernel_id: load for load in loads}
        kernels = {} if self.table is None else self.table.kernels
        if len(known) > 2 * len(kernels) + _MOST_LOADS:
            for kernel_id in known.keys() - kernels.keys():
                del known[kernel_id]

    def forget(self) -> None:
        """Forget everything, because this proxy was revoked. Open requests end, and no more are
        admitted."""
        if (held := self.table) is None:
            return

        whole = held.whole()
        agents = {"", *(app.peer_id for app in whole.apps)}
        agents.update(target.peer_id for route in whole.models for target in route.targets)

        # Clients see their replicas as lost. All other requests end with their keys.
        self.update_table(RouteTable(held.generation, (), whole.keys, revoked_agents=tuple(agents)))
        self.update_table(RouteTable(held.generation, (), ()))
        self.table = None

    def drain(self) -> None:
        """Report to load balancers that the proxy is stopping. Requests are still admitted."""
        self._is_draining = True

    def admit_head(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        size: int | None,
        *,
        unix_now: float,
        now: float,
        query: str = "",
    ) -> ErrorResponse | LocalResponse | BodyRequired:
        if self._policy.requires_key and (error := self.check_credentials(now)):
            return error
        if self._is_draining and split_project(path)[1] in HEALTH:
            return draining()

        return admission.admit_head(
            method,
            path,
            headers=headers,
            size=size,
            table=self.table,
            policy=self._policy,
            unix_now=unix_now,
            query=query,
        )

    def admit_again(self, head: BodyRequired, unix_now: float, now: float) -> ErrorResponse | None:
        """The error for a head that is no longer admitted; None if credentials of the same revision
        admit it."""
        if not self._policy.requires_key:
            return None
        if error := self.check_credentials(now):
            return error
        key = head.key
        is_expired = key is not None and 0 < key.expires_at <= unix_now
        return invalid_key(given=True) if is_expired else None

    def check_credentials(self, now: float) -> ErrorResponse | None:
        """The error if credentials are no longer accepted, otherwise None."""
        if not self.credentials.is_exceeded(now):
            return None
        return stale_credentials(self.credentials.age_s(now))

    def limit_by_beginning(
        self, head: BodyRequired, begin: Callable[[], bytes]
    ) -> BodyLimit | None:
        """The limit of the endpoint that the first bytes of a body name, if it applies. ``begin``:
        returns them."""
        if self.table is None:
            return None
        return admission.limit_by_beginning(head, begin, self.table, self._policy.names)

    def admit_body(
        self, head: BodyRequired, body: bytes, now: float, large: LargeReader | None = None
    ) -> ErrorResponse | Forward:
        table = self.table
        if table is None:
            return no_table()
        if head.response_id:
            return admission.admit_stored(head, self._find_home(head.response_id, head, now), table)

        forward = admission.admit_body(head, body, table, large, names=self._policy.names)
        if (
            isinstance(forward, ErrorResponse)
            or (previous := admission.previous_response(forward)) is None
        ):
            return forward

        if isinstance(previous, ErrorResponse):
            return previous

        return admission.follow(forward, previous, self._find_home(previous, head, now))

    def _find_home(self, response_id: str, head: BodyRequired, now: float) -> Home | None:
        """The home of a stored response; None if the caller has no response with this id."""
        assert self.table is not None
        owner = owner_of(head.key)
        return self.homes.find(response_id, owner, now) or named_home(
            response_id, owner, self.table
        )

    def reserve(self, ask: Ask, now: float) -> RequestReservation | ErrorResponse | None:
        """Ask the limiter to grant a request whose model was found by ``admit_body``."""
        self.last_request[ask.permit.endpoint] = now
        return self.limiter.reserve(ask, now)

    def check_model(self, name: str) -> ErrorResponse | None:
        """The error if the model has no ready replica, otherwise None."""
        return no_table() if self.table is None else admission.check_model(name, self.table)

    def can_hold(self, model: str) -> bool:
        """Whether requests wait for a model without a replica, because one is starting."""
        route = self.table.model(model) if self.table is not None else None
        return route is not None and route.holds

    def is_full(self, model: str) -> bool:
        """Whether the replicas of a model have no room for more concurrent requests."""
        route = self.table.model(model) if self.room.bounds and self.table is not None else None
        return route is not None and self.room.bounds_any(route.targets)

    def hold_s(self, model: str) -> float:
        """How long a request can wait for a model without a replica, or without one that has
        room."""
        waits = self.can_hold(model) or self.is_full(model)
        return max(self._table_wait_s, self.settings.max_hold_s if waits else 0.0)

    def expected_s(self, model: str, unix_now: float, waited_s: float = 0.0) -> int:
        """The manager's estimate of the time until one of a model's replicas is ready; 0 if unknown
        or exceeded. ``waited_s``: time since the request that starts the first replica."""
        route = self.table.model(model) if self.table is not None else None
        if route is None:
            return 0
        remaining_s = route.ready_at - unix_now if route.ready_at else route.expected_s - waited_s
        return max(0, round(remaining_s))

    def target_at(self, home: Home, tried: Container[KernelId]) -> Target | None:
        """The replica that stores a response, unless it is in ``tried`` or has ended."""
        route = self.table.model(home.model) if self.table is not None else None
        targets = () if route is None or home.kernel_id in tried else route.targets
        return next((target for target in targets if target.kernel_id == home.kernel_id), None)

    def pick_target(
        self, model: str, tried: Container[KernelId], now: float, affinity: int = 0
    ) -> Target | None:
        """A replica of ``model`` that is not in ``tried``; None if none is left. ``affinity``: the
        key by which it is picked; 0 means by load alone."""
        route = self.table.model(model) if self.table is not None else None
        return None if route is None else self.pick_of(route, tried, now, affinity)

    def pick_of(
        self, route: ModelRoute, tried: Container[KernelId], now: float, affinity: int
    ) -> Target | None:
        """The result of ``pick_target`` for a route in the table."""
        targets: Sequence[Target] = route.targets
        if self.room.bounds:
            targets = self.room.open_targets(route.targets, self._in_flight, now)
        if len(targets) == 1 and not tried:
            return None if targets[0].draining else targets[0]

        self._learn()
        if tried:
            targets = [t for t in targets if t.kernel_id not in tried]
        if route.canary:
            targets = share(targets, route.canary, affinity or self.randrange(100))

        if affinity:
            max_load = route.max_load or MAX_LOAD
            ejected = self._ejections.until
            target = pick_affine(
                targets,
                affinity,
                max_load=max_load,
                in_flight=self._in_flight,
                ejected=ejected,
                now=now,
            )
            if target is not None:
                return target

        return pick_target(
            targets,
            self._in_flight,
            ejected=self._ejections.until,
            now=now,
            randrange=self.randrange,
        )

    def next_fallback(self, chain: FallbackChain, now: float) -> Hop | None:
        """The first remaining fallback that can serve now."""
        table = self.table
        return (
            None
            if table is None
            else chain.next(table.model, lambda name: self.pick_target(name, (), now))
        )

    def record_failure(
        self, model: str, target: Target, key: str, failure: Failure, *, now: float
    ) -> None:
        """Record a failed attempt of a request with ``key``, empty for none. A replica is ejected
        if it cannot be reached, will soon be unreachable, or fails for everybody."""
        self.metrics.record_upstream_failure(self._label(model), failure)
        if failure in COUNTED and self.table is not None and target.kernel_id in self.table.kernels:
            is_gone = failure is Failure.CONNECT or failure is Failure.ENGINE_DEAD
            self._note(GONE if is_gone else FAILED_THERE, target.kernel_id, key, now)

    def record_status(
        self, target: Target, key: str, status: int, now: float, *, is_error: bool = False
    ) -> None:
        """Record that a replica responded to a request with ``key``. ``is_error``: the response is
        a stream that starts with an error."""
        kernel_id = target.kernel_id
        if status < 400 and not is_error:
            self._learn()
            had_failed = self.answering.answered(kernel_id, now)
            if self.room.bounds:
                self.room.answered(kernel_id, now)
            if self._ejections.until:
                had_failed = self._ejections.record_response(kernel_id) or had_failed
            if had_failed:
                self.results.tell(ANSWERED, kernel_id, "", now)
        elif status in FAILED and self.table is not None and kernel_id in self.table.kernels:
            if not self._note(FAILED_THERE, kernel_id, key, now):
                self._ejections.record_response(kernel_id)
        elif self.answering.failing_since(kernel_id) is None:
            self._ejections.record_response(kernel_id)

    def _note(self, kind: int, kernel_id: KernelId, key: str, now: float) -> bool:
        """Note a failed request with ``key``. Returns whether the replica is avoided because of
        it."""
        self._learn()
        self.results.tell(kind, kernel_id, key, now)
        return self._count(kind, kernel_id, key, now)

    def _count(self, kind: int, kernel_id: KernelId, key: str, at: float) -> bool:
        fails_everybody = self.answering.failed(kernel_id, key, at)
        if fails_everybody or kind == GONE:
            self._ejections.record_failure(kernel_id, at)
            return True
        return False

    def _learn(self) -> None:
        """Apply the results of other workers."""
        for kind, kernel_id, key, at in self.results.read():
            if kind == ANSWERED:
                self.answering.answered(kernel_id, at)
                self._ejections.record_response(kernel_id)
            elif self.table is not None and kernel_id in self.table.kernels:
                self._count(kind, kernel_id, key, at)

    def record_no_room(self, target: Target, now: float) -> None:
        """Record that a replica's engine had no room for a request, which is not a sign of bad
        health."""
        if self.table is not None and target.kernel_id in self.table.kernels:
            self.room.refused(target.kernel_id, self._in_flight.get(target.kernel_id, 0), now)

    def record_request(self, model: str, code: int, duration_s: float) -> None:
        """Record the end of a request. ``model``: empty if the request was not admitted."""
        self.metrics.record_request(self._label(model), code, duration_s)

    def begin_at(self, model: str, kernel_id: KernelId) -> None:
        """Count a request in flight at a replica. Only ``RequestFlow`` calls this and
        ``end_at``."""
        counts = self._in_flight
        by_model = self._in_flight_by_model
        counts[kernel_id] = counts.get(kernel_id, 0) + 1
        by_model[model] = by_model.get(model, 0) + 1

    def end_at(self, model: str, kernel_id: KernelId) -> None:
        _subtract_one(self._in_flight, kernel_id)
        _subtract_one(self._in_flight_by_model, model)

    def _label(self, model: str) -> str:
        table = self.table
        if table is None or not (model in table.models or model in table.adapters):
            return NO_MODEL
        return model


def _subtract_one(counts: dict[K, int], key: K) -> None:
    """Subtract one from a count; missing keys mean zero."""
    rest = counts[key] - 1
    if rest:
        counts[key] = rest
    else:
        del counts[key]
