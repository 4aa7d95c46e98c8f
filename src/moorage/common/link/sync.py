"""Incremental state synchronization of reports and orders over one stream of the agent link. Pure.

The first message of a stream carries the full state; later ones are deltas for as long as both ends agree.
Each object belongs to one stream: a new stream gets new ones.
"""

from __future__ import annotations

from collections.abc import Iterable

from moorage.common.link import codec
from moorage.common.link.deltas import SetDigest
from moorage.common.link.messages import Observation, Orders, OrdersDelta, Report, ReportDelta
from moorage.common.link.pb import agent_pb2
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import KernelSpec


class ReportSender:
    """The agent's end of reports. ``deltas``: the manager accepts deltas."""

    def __init__(self, *, deltas: bool = False) -> None:
        self.deltas = deltas
        self._sent: dict[KernelId, Observation] = {}
        self._digest = SetDigest()
        self._last: Report | None = None

    def force_full(self) -> None:
        """Make the next message a full report, as the manager has asked."""
        self._last = None

    def next_message(self, report: Report) -> agent_pb2.Report:
        last, self._last = self._last, report
        sent, self._sent = self._sent, {k.kernel_id: k for k in report.kernels}
        message: Report | ReportDelta = report
        if self.deltas and last is not None and last.incarnation == report.incarnation:
            message = ReportDelta(
                report.incarnation,
                report.orders_generation,
                tuple(k for k in report.kernels if (old := sent.get(k.kernel_id)) is not k and old != k),
                frozenset(sent.keys() - self._sent.keys()),
                report.info if report.info != last.info else None,
                report.draining,
                report.orders_wanted,
                report.sent_at,
            )
        wire = codec.report_to_wire(message)
        _follow(self._digest, message, wire)
        if wire.delta:
            wire.content_digest = self._digest.value
        return wire


class ReportReceiver:
    """The manager's end of reports."""

    def __init__(self) -> None:
        self._digest = SetDigest()
        self._incarnation: str | None = None  # None: a full report is needed

    def reports(self, kernel_id: KernelId) -> bool:
        """Return whether the agent has this kernel, by the messages received so far."""
        return kernel_id in self._digest

    def receive(self, wire: agent_pb2.Report) -> Report | ReportDelta | None:
        """Decode a message. None: the delta does not match, so ask for a full report."""
        message = codec.report_from_wire(wire)
        if isinstance(message, ReportDelta) and message.incarnation != self._incarnation:
            self._incarnation = None
            return None
        _follow(self._digest, message, wire)
        # The previous release sends another digest, which cannot be verified here.
        drifted = wire.HasField("content_digest") and wire.content_digest != self._digest.value
        self._incarnation = None if drifted else message.incarnation
        return None if drifted else message


def _follow(digest: SetDigest, message: Report | ReportDelta, wire: agent_pb2.Report) -> None:
    if isinstance(message, Report):
        digest.clear()
    contents = ((k.kernel_id, content) for k, content in zip(message.kernels, wire.kernels, strict=True))
    digest.change(contents, message.removed if isinstance(message, ReportDelta) else ())


class OrdersSender:
    """The manager's end of orders."""

    def __init__(self) -> None:
        self._digest = SetDigest()
        self._last: Orders | None = None

    def has_changes(self, kernels: tuple[KernelSpec, ...]) -> bool:
        """Return whether orders for ``kernels`` differ from the last ones."""
        return self._last is None or self._last.kernels != kernels

    def force_full(self) -> None:
        """Make the next message full orders, as the agent has asked, even if nothing has changed."""
        self._last = None

    def next_message(self, orders: Orders) -> Orders | OrdersDelta:
        last, self._last = self._last, orders
        if last is None:
            self._digest.clear()
        ids = {k.kernel_id for k in orders.kernels}
        withdrawn = frozenset(map(KernelId, self._digest.ids() - ids))
        added = tuple(k for k in orders.kernels if k.kernel_id not in self._digest)
        self._digest.change(_order_contents(added), withdrawn)
        if last is None:
            return orders
        return OrdersDelta(orders.generation, last.generation, added, withdrawn, self._digest.value)


class OrdersReceiver:
    """The agent's end of orders."""

    def __init__(self) -> None:
        self._digest = SetDigest()
        self._specs: dict[KernelId, KernelSpec] = {}
        self._generation: int | None = None

    def apply(self, message: Orders | OrdersDelta) -> Orders | None:
        """The full orders after this message. None: the delta does not match, so ask for full orders."""
        if isinstance(message, Orders):
            self._specs = {k.kernel_id: k for k in message.kernels}
            self._digest.clear()
            self._digest.change(_order_contents(message.kernels))
            self._generation = message.generation
            return message
        if message.base != self._generation:
            self._generation = None
            return None
        self._digest.change(_order_contents(message.added), message.withdrawn)
        for kernel_id in message.withdrawn:
            self._specs.pop(kernel_id, None)
        self._specs |= {k.kernel_id: k for k in message.added}
        matches = self._digest.value == message.digest
        self._generation = message.generation if matches else None
        return Orders(message.generation, tuple(self._specs.values())) if matches else None


def _order_contents(kernels: Iterable[KernelSpec]) -> Iterable[tuple[str, bytes]]:
    """A kernel's spec never changes, so its id stands for it. The suffix is part of the protocol."""
    return ((k.kernel_id, f"{k.kernel_id}\0''".encode()) for k in kernels)
