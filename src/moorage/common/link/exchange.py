"""Both ends of the agent link as pure bookkeeping: what to send next, and what was received so far.

The first message of a stream is whole; later ones are deltas while both ends agree. Each class belongs to one
stream: a new stream gets new ones.
"""

from __future__ import annotations

from moorage.common.link.deltas import Delta, Truth
from moorage.common.link.messages import Observation, Orders, OrdersDelta, Report, ReportDelta
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import KernelSpec


class ReportsOut:
    """The agent's end of reports."""

    def __init__(self) -> None:
        self._sent: Truth[KernelId, Observation] = Truth()
        self._last: Report | None = None

    def want_whole(self) -> None:
        """The manager asks for the whole: the next report is."""
        self._last = None

    def next(self, report: Report) -> Report | ReportDelta:
        kernels = {k.kernel_id: k for k in report.kernels}
        last, self._last = self._last, report
        if last is None or last.incarnation != report.incarnation:
            self._sent.replace(kernels)
            return report
        return ReportDelta(
            report.incarnation,
            report.orders_generation,
            self._sent.advance(kernels),
            report.info if report.info != last.info else None,
            report.draining,
            report.orders_wanted,
        )


class ReportsIn:
    """The manager's end of reports."""

    def __init__(self) -> None:
        self._seen: Truth[KernelId, Observation] = Truth()
        self._last: Report | None = None

    def take(self, message: Report | ReportDelta) -> Report | None:
        """The whole truth after this message; None: we do not have it, and must ask for the whole."""
        if isinstance(message, Report):
            self._seen.replace({k.kernel_id: k for k in message.kernels})
            self._last = message
            return message
        last = self._last
        if last is None or last.incarnation != message.incarnation or not self._seen.apply(message.kernels):
            self._last = None
            return None
        self._last = Report(
            message.info or last.info,
            message.incarnation,
            message.orders_generation,
            tuple(self._seen.items().values()),
            message.draining,
            message.orders_wanted,
            last.stream,
        )
        return self._last


class OrdersOut:
    """The manager's end of orders."""

    def __init__(self) -> None:
        self._sent: Truth[KernelId, str] = Truth()
        self._last: Orders | None = None

    def is_news(self, kernels: tuple[KernelSpec, ...]) -> bool:
        return self._last is None or self._last.kernels != kernels

    def want_whole(self) -> None:
        """The agent asks for the whole: the next orders are, even if nothing changed."""
        self._last = None

    def next(self, orders: Orders) -> Orders | OrdersDelta:
        last, self._last = self._last, orders
        ids = dict.fromkeys((k.kernel_id for k in orders.kernels), "")
        if last is None:
            self._sent.replace(ids)
            return orders
        delta = self._sent.advance(ids)
        added = tuple(k for k in orders.kernels if k.kernel_id in delta.changed)
        return OrdersDelta(orders.generation, last.generation, added, delta.gone, delta.digest)


class OrdersIn:
    """The agent's end of orders."""

    def __init__(self) -> None:
        self._seen: Truth[KernelId, str] = Truth()
        self._specs: dict[KernelId, KernelSpec] = {}
        self._generation: int | None = None

    def take(self, message: Orders | OrdersDelta) -> Orders | None:
        """The whole orders after this message; None: we do not have them, and must ask for them whole."""
        if isinstance(message, Orders):
            self._specs = {k.kernel_id: k for k in message.kernels}
            self._seen.replace(dict.fromkeys(self._specs, ""))
            self._generation = message.generation
            return message
        if message.base != self._generation:
            self._generation = None
            return None
        added = {k.kernel_id: k for k in message.added}
        agreed = self._seen.apply(Delta(dict.fromkeys(added, ""), message.withdrawn, message.digest))
        for kernel_id in message.withdrawn:
            self._specs.pop(kernel_id, None)
        self._specs |= added
        self._generation = message.generation if agreed else None
        return Orders(message.generation, tuple(self._specs.values())) if agreed else None
