"""Request router: the decisions that a data plane asks for, and the state behind them. Pure.

It admits requests, picks replicas and records outcomes. It does no IO and takes the time as an argument, so
any data plane (another HTTP server, a native relay) gets the same decisions. One event loop owns it; it is
not thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import TypeVar

from moorage.common.config.settings import ProxySettings
from moorage.common.link.messages import RouteTable, Target
from moorage.common.model.ids import KernelId
from moorage.proxy.core import admission
from moorage.proxy.core.admission import AdmissionPolicy, BodyRequired, Forward, LocalResponse
from moorage.proxy.core.balancer import Ejections, RandRange, pick_target
from moorage.proxy.core.credentials_age import CredentialsAge
from moorage.proxy.core.error_response import ErrorResponse, no_table, stale_credentials
from moorage.proxy.core.retry import Failure
from moorage.proxy.core.routes import IndexedTable, StaleTable, newest_table
from moorage.proxy.metrics import NO_MODEL, Metrics

K = TypeVar("K", bound=str)


class RequestRouter:
    """Owns the route table, the in-flight counts, the ejections and the metrics.

    Calls ``on_table`` with each table that it accepts. Times named ``now`` are monotonic seconds, times named
    ``unix_now`` are seconds since the epoch.
    """

    def __init__(self, settings: ProxySettings, metrics: Metrics, *, randrange: RandRange) -> None:
        self.settings, self.metrics = settings, metrics
        self.table: IndexedTable | None = None
        self.on_table: Callable[[IndexedTable], None] = lambda _: None
        self._policy = AdmissionPolicy(
            requires_key=settings.auth == "keys", max_body_bytes=settings.max_body_bytes
        )
        self.credentials = CredentialsAge(settings.credentials_max_age_s)
        self._randrange = randrange
        self._ejections = Ejections()
        self._in_flight: dict[KernelId, int] = {}
        self._in_flight_by_model: dict[str, int] = {}

    @property
    def in_flight(self) -> Mapping[KernelId, int]:
        """Requests in flight at each replica. Replicas without any are absent."""
        return self._in_flight

    def update_table(self, new: RouteTable) -> IndexedTable | StaleTable:
        """Use ``new`` from now on, unless it is older than the table in use."""
        held = self.table
        table = newest_table(held, new)
        if isinstance(table, IndexedTable):
            if held is table:
                self.metrics.remove_models(name for name in new.removed_models if name not in table.models)
            elif held is not None:
                self.metrics.remove_models(held.models.keys() - table.models.keys())
            self.table = table
            self._ejections.keep_only(table.kernels)
            self.metrics.table_generation.set(table.generation)
            self.on_table(table)
        return table

    def admit_head(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        size: int | None,
        unix_now: float,
        now: float,
    ) -> ErrorResponse | LocalResponse | BodyRequired:
        if self._policy.requires_key and (error := self.check_credentials(now)):
            return error
        return admission.admit_head(method, path, headers, size, self.table, self._policy, unix_now)

    def check_credentials(self, now: float) -> ErrorResponse | None:
        """None while credentials are honoured."""
        if not self.credentials.is_exceeded(now):
            return None
        return stale_credentials(self.credentials.age_s(now))

    def admit_body(self, head: BodyRequired, body: bytes) -> ErrorResponse | Forward:
        table = self.table
        return no_table() if table is None else admission.admit_body(head.path, body, table, head.key)

    def check_model(self, name: str) -> ErrorResponse | None:
        """None if the model has a ready replica."""
        return no_table() if self.table is None else admission.check_model(name, self.table)

    def pick_target(self, model: str, tried: Container[KernelId], now: float) -> Target | None:
        """A replica of ``model`` that is not in ``tried``. None if there is none left."""
        route = self.table.model(model) if self.table is not None else None
        if route is None:
            return None
        targets = [t for t in route.targets if t.kernel_id not in tried] if tried else route.targets
        return pick_target(targets, self._in_flight, self._ejections.until, now, self._randrange)

    def record_failure(self, model: str, target: Target, failure: Failure, now: float) -> None:
        """Record a failed attempt. Only a replica that cannot be reached is ejected."""
        self.metrics.record_upstream_failure(self._label(model), failure)
        if failure is Failure.CONNECT and self.table is not None and target.kernel_id in self.table.kernels:
            self._ejections.record_failure(target.kernel_id, now)

    def record_response(self, target: Target) -> None:
        """Record that a replica responded, with any status."""
        self._ejections.record_response(target.kernel_id)

    def record_request(self, model: str, code: int, duration_s: float) -> None:
        """Record the end of a request. ``model``: "" if it was not admitted."""
        self.metrics.record_request(self._label(model), code, duration_s)

    def add_in_flight(self, model: str, kernel_id: KernelId, delta: int) -> None:
        """Change the in-flight counts by ``delta``. ``Assignment`` is the only caller."""
        _add(self._in_flight, kernel_id, delta)
        total = _add(self._in_flight_by_model, model, delta)
        if self._label(model) == model:
            self.metrics.set_in_flight(model, total)

    def _label(self, model: str) -> str:
        return model if self.table is not None and self.table.model(model) is not None else NO_MODEL


class Assignment:
    """Assignment of one request to one replica at a time, in the in-flight counts.

    Call ``release`` in a ``finally``; it may be called more than once.
    """

    __slots__ = ("_kernel_id", "_model", "_router")

    def __init__(self, router: RequestRouter, model: str) -> None:
        self._router, self._model = router, model
        self._kernel_id: KernelId | None = None

    def assign(self, target: Target) -> None:
        """Assign the request to ``target``, and no longer to the replica before it."""
        self.release()
        self._kernel_id = target.kernel_id
        self._router.add_in_flight(self._model, target.kernel_id, 1)

    def release(self) -> None:
        if self._kernel_id is not None:
            kernel_id, self._kernel_id = self._kernel_id, None
            self._router.add_in_flight(self._model, kernel_id, -1)


def _add(counts: dict[K, int], key: K, delta: int) -> int:
    """Add ``delta``, drop the key at zero, and return the new count."""
    total = counts.get(key, 0) + delta
    if total:
        counts[key] = total
    else:
        del counts[key]
    return total
