"""Incremental state synchronization of reports and orders over one stream of the agent link. Pure.

The first message of a stream carries the full state; later ones are deltas for as long as both ends agree.
Each object belongs to one stream: a new stream gets new ones.
"""

from __future__ import annotations

from moorage.common.link.deltas import Delta, SyncSet
from moorage.common.link.messages import Observation, Orders, OrdersDelta, Report, ReportDelta
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import KernelSpec


class ReportSender:
    """The agent's end of reports."""

    def __init__(self) -> None:
        self._sent: SyncSet[KernelId, Observation] = SyncSet()
        self._last: Report | None = None

    def force_full(self) -> None:
        """Make the next message a full report, as the manager has asked."""
        self._last = None

    def next_message(self, report: Report) -> Report | ReportDelta:
        kernels = {k.kernel_id: k for k in report.kernels}
        last, self._last = self._last, report
        if last is None or last.incarnation != report.incarnation:
            self._sent.replace(kernels)
            return report
        return ReportDelta(
            report.incarnation,
            report.orders_generation,
            self._sent.update(kernels),
            report.info if report.info != last.info else None,
            report.draining,
            report.orders_wanted,
        )


class ReportReceiver:
    """The manager's end of reports."""

    def __init__(self) -> None:
        self._received: SyncSet[KernelId, Observation] = SyncSet()
        self._last: Report | None = None

    def apply(self, message: Report | ReportDelta) -> Report | None:
        """The full report after this message. None: the delta does not match, so ask for a full report."""
        if isinstance(message, Report):
            self._received.replace({k.kernel_id: k for k in message.kernels})
            self._last = message
            return message
        last = self._last
        if (
            last is None
            or last.incarnation != message.incarnation
            or not self._received.apply(message.kernels)
        ):
            self._last = None
            return None
        self._last = Report(
            message.info or last.info,
            message.incarnation,
            message.orders_generation,
            tuple(self._received.items().values()),
            message.draining,
            message.orders_wanted,
            last.stream,
        )
        return self._last


class OrdersSender:
    """The manager's end of orders."""

    def __init__(self) -> None:
        self._sent: SyncSet[KernelId, str] = SyncSet()
        self._last: Orders | None = None

    def has_changes(self, kernels: tuple[KernelSpec, ...]) -> bool:
        """Return whether orders for ``kernels`` differ from the last ones."""
        return self._last is None or self._last.kernels != kernels

    def force_full(self) -> None:
        """Make the next message full orders, as the agent has asked, even if nothing has changed."""
        self._last = None

    def next_message(self, orders: Orders) -> Orders | OrdersDelta:
        last, self._last = self._last, orders
        # A kernel's spec never changes, so its id stands for it in the digest.
        ids = dict.fromkeys((k.kernel_id for k in orders.kernels), "")
        if last is None:
            self._sent.replace(ids)
            return orders
        delta = self._sent.update(ids)
        added = tuple(k for k in orders.kernels if k.kernel_id in delta.changed)
        return OrdersDelta(orders.generation, last.generation, added, delta.removed, delta.digest)


class OrdersReceiver:
    """The agent's end of orders."""

    def __init__(self) -> None:
        self._received: SyncSet[KernelId, str] = SyncSet()
        self._specs: dict[KernelId, KernelSpec] = {}
        self._generation: int | None = None

    def apply(self, message: Orders | OrdersDelta) -> Orders | None:
        """The full orders after this message. None: the delta does not match, so ask for full orders."""
        if isinstance(message, Orders):
            self._specs = {k.kernel_id: k for k in message.kernels}
            self._received.replace(dict.fromkeys(self._specs, ""))
            self._generation = message.generation
            return message
        if message.base != self._generation:
            self._generation = None
            return None
        added = {k.kernel_id: k for k in message.added}
        delta = Delta(dict.fromkeys(added, ""), message.withdrawn, message.digest)
        matches = self._received.apply(delta)
        for kernel_id in message.withdrawn:
            self._specs.pop(kernel_id, None)
        self._specs |= added
        self._generation = message.generation if matches else None
        return Orders(message.generation, tuple(self._specs.values())) if matches else None
