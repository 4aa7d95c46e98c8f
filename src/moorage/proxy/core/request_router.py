"""All that the data plane asks: is this request let in, which replica gets it, what came of it.

No IO and no waiting in here, so a data plane of another make (another server, a native relay) asks the
same questions and gets the same answers. One event loop owns it; it is not safe across threads.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import TypeVar

from moorage.common.aio.clock import Clock
from moorage.common.config.settings import ProxySettings
from moorage.common.link.messages import RouteTable, Target
from moorage.common.model.ids import KernelId
from moorage.proxy.core.admission import Answer, Forward, NeedBody, Rules, admit_body, admit_head, admit_model
from moorage.proxy.core.balancer import Dice, Ejections, pick
from moorage.proxy.core.error_response import Refuse, no_table
from moorage.proxy.core.retry import Failure
from moorage.proxy.core.routes import Stale, Table, replace
from moorage.proxy.metrics import NO_MODEL, Metrics

K = TypeVar("K", bound=str)


class Decider:
    """Owns the table, the in-flight counts, the ejections and the metrics. ``on_table`` is called with each
    table that is taken."""

    def __init__(self, settings: ProxySettings, metrics: Metrics, *, clock: Clock, dice: Dice) -> None:
        self.settings, self.metrics, self.clock = settings, metrics, clock
        self.table: Table | None = None
        self.on_table: Callable[[Table], None] = lambda _: None
        self._rules = Rules(needs_key=settings.auth == "keys", max_body_bytes=settings.max_body_bytes)
        self._dice = dice
        self._ejections = Ejections()
        self._busy: dict[KernelId, int] = {}
        self._busy_by_model: dict[str, int] = {}

    @property
    def in_flight(self) -> Mapping[KernelId, int]:
        """Requests now at each replica; replicas with none are left out."""
        return self._busy

    def adopt(self, new: RouteTable) -> Table | Stale:
        """Use ``new`` from now on, unless it is older than the table held."""
        table = replace(self.table, new)
        if isinstance(table, Table):
            if self.table is not None:
                self.metrics.forget(self.table.models.keys() - table.models.keys())
            self.table = table
            self._ejections.keep_only(table.kernels)
            self.metrics.table_generation.set(table.generation)
            self.on_table(table)
        return table

    def head(
        self, method: str, path: str, headers: Mapping[str, str], size: int | None
    ) -> Refuse | Answer | NeedBody:
        now = self.clock.now().timestamp()
        return admit_head(method, path, headers, size, self.table, self._rules, now)

    def body(self, path: str, body: bytes) -> Refuse | Forward:
        return no_table() if self.table is None else admit_body(path, body, self.table)

    def model(self, name: str) -> Refuse | None:
        """Whether a replica of it is ready."""
        return no_table() if self.table is None else admit_model(name, self.table)

    def pick(self, model: str, tried: Container[KernelId]) -> Target | None:
        """A replica of ``model`` that is not in ``tried``; None when there is none to try."""
        route = self.table.model(model) if self.table is not None else None
        if route is None:
            return None
        targets = [t for t in route.targets if t.kernel_id not in tried] if tried else route.targets
        return pick(targets, self._busy, self._ejections.until, self.clock.monotonic(), self._dice)

    def failed(self, model: str, target: Target, failure: Failure) -> None:
        """Note a failed attempt. Only a replica that cannot be reached rests."""
        self.metrics.upstream_failed(self._label(model), failure)
        if failure is Failure.CONNECT and self.table is not None and target.kernel_id in self.table.kernels:
            self._ejections.failed(target.kernel_id, self.clock.monotonic())

    def reached(self, target: Target) -> None:
        """Note that a replica answered, whatever it said."""
        self._ejections.answered(target.kernel_id)

    def lease(self, model: str) -> Lease:
        return Lease(self, model)

    def answered(self, model: str, code: int, duration_s: float) -> None:
        """Note the end of a request. ``model``: "" if it named none that may be told."""
        self.metrics.answered(self._label(model), code, duration_s)

    def _label(self, model: str) -> str:
        return model if self.table is not None and self.table.model(model) is not None else NO_MODEL

    def count(self, model: str, kernel_id: KernelId, step: int) -> None:
        """Move the in-flight counts by ``step``; ``Lease`` is the only caller."""
        _add(self._busy, kernel_id, step)
        total = _add(self._busy_by_model, model, step)
        if self._label(model) == model:
            self.metrics.in_flight(model, total)


class Lease:
    """One request's place at one replica at a time. ``release`` in a ``finally``."""

    __slots__ = ("_decider", "_held", "_model")

    def __init__(self, decider: Decider, model: str) -> None:
        self._decider, self._model = decider, model
        self._held: KernelId | None = None

    def move(self, target: Target) -> None:
        self.release()
        self._held = target.kernel_id
        self._decider.count(self._model, target.kernel_id, 1)

    def release(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._decider.count(self._model, held, -1)


def _add(counts: dict[K, int], key: K, step: int) -> int:
    total = counts.get(key, 0) + step
    if total:
        counts[key] = total
    else:
        del counts[key]
    return total
