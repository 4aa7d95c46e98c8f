"""Incremental state synchronization of reports and orders over one stream of the agent link. Pure.

The first message of a stream carries the full state; later ones are deltas as long as both ends
agree, and their cost is proportional to the change. Each object belongs to one stream; a new stream
gets new objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from moorage.common.link import codec
from moorage.common.link.deltas import SetDigest
from moorage.common.link.messages import AgentInfo, Orders, OrdersDelta, Report, ReportDelta
from moorage.common.link.pb import agent_pb2
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import KernelSpec


class ReportSender:
    """The agent's end of reports. ``deltas``: whether the manager accepts deltas."""

    def __init__(self, *, deltas: bool = False) -> None:
        self.deltas = deltas
        self._digest = SetDigest()
        self._last: AgentInfo | None = None  # if None, the next report must be full
        self._incarnation = ""

    def allow_deltas(self, allowed: bool) -> None:
        self.deltas = allowed

    @property
    def needs_full(self) -> bool:
        """Whether the next message must be made from a full report."""
        return not self.deltas or self._last is None

    def force_full(self) -> None:
        """Make the next message a full report, as the manager has requested."""
        self._last = None

    def next_message(self, report: Report | ReportDelta) -> agent_pb2.Report:
        """``report``: the full state, or the possible changes since the last message. Unchanged
        kernels, and removed ones that were never reported, are omitted."""
        if (
            isinstance(report, Report)
            and not self.needs_full
            and report.incarnation == self._incarnation
        ):
            report = self._delta_to(report)

        if isinstance(report, Report):
            self._digest.clear()
            self._last = report.info
            self._incarnation = report.incarnation
            wire = codec.report_to_wire(report)
            self._digest.change(
                zip((k.kernel_id for k in report.kernels), wire.kernels, strict=True)
            )

            return wire

        assert not self.needs_full
        info = None if report.info == self._last else report.info
        self._last = report.info or self._last
        contents = [(k, codec.observation_to_wire(k)) for k in report.kernels]
        changed = [
            (k, content) for k, content in contents if not self._digest.has(k.kernel_id, content)
        ]
        removed = frozenset(k for k in report.removed if k in self._digest)
        wire = codec.report_to_wire(replace(report, kernels=(), removed=removed, info=info))
        wire.kernels.extend(content for _, content in changed)
        self._digest.change(((k.kernel_id, content) for k, content in changed), removed)
        wire.content_digest = self._digest.value

        return wire

    def _delta_to(self, report: Report) -> ReportDelta:
        return ReportDelta(
            report.incarnation,
            report.orders_generation,
            kernels=report.kernels,
            removed=frozenset(
                map(KernelId, self._digest.ids() - {k.kernel_id for k in report.kernels})
            ),
            info=report.info,
            draining=report.draining,
            orders_wanted=report.orders_wanted,
            sent_at=report.sent_at,
        )


class ReportReceiver:
    """The manager's end of reports."""

    def __init__(self) -> None:
        self._digest = SetDigest()
        self._incarnation: str | None = None  # if None, a full report is needed

    def reports(self, kernel_id: KernelId) -> bool:
        """Return whether the agent has this kernel, according to the messages received so far."""
        return kernel_id in self._digest

    def receive(self, wire: agent_pb2.Report) -> Report | ReportDelta | None:
        """Decode a message. None means that the delta does not match; the caller must request a
        full report."""
        message = codec.report_from_wire(wire)
        return message if self.accept(wire, message) else None

    def accept(self, wire: agent_pb2.Report, message: Report | ReportDelta) -> bool:
        """Apply a decoded message. Returns False if the delta does not match."""
        if isinstance(message, ReportDelta) and message.incarnation != self._incarnation:
            self._incarnation = None
            return False
        if isinstance(message, Report):
            self._digest.clear()

        contents = (
            (k.kernel_id, content) for k, content in zip(message.kernels, wire.kernels, strict=True)
        )
        self._digest.change(contents, message.removed if isinstance(message, ReportDelta) else ())

        # The previous release sends a different digest, which cannot be verified here.
        drifted = wire.HasField("content_digest") and wire.content_digest != self._digest.value
        self._incarnation = None if drifted else message.incarnation
        return not drifted


class OrdersSender:
    """The manager's end of orders."""

    def __init__(self) -> None:
        self._digest = SetDigest()
        # the generation sent last; if None, the next orders must be full
        self._last: int | None = None
        # The variable parts that were sent, unless they are the initial ones.
        self._varied: dict[KernelId, tuple[int, bool]] = {}

    @property
    def needs_full(self) -> bool:
        return self._last is None

    def force_full(self) -> None:
        """Make the next message full orders, as the agent has requested, even if nothing has
        changed."""
        self._last = None

    def next_message(
        self,
        generation: int,
        kernels: Mapping[KernelId, KernelSpec],
        changed: Collection[KernelId] | None = None,
    ) -> Orders | OrdersDelta:
        """``kernels``: all kernels that should exist. ``changed``: at least those added, withdrawn
        or to be reloaded or suspended since the last message; None means that any may have
        changed."""
        base = self._last
        self._last = generation
        if base is None:
            self._digest.clear()
            self._digest.change(_order_contents(kernels))
            self._varied = {
                k: kernel.varied for k, kernel in kernels.items() if kernel.varied != _FIRST
            }
            return Orders(generation, tuple(kernels.values()))

        if changed is None:
            changed = {*kernels, *map(KernelId, self._digest.ids())}

        added = tuple(kernels[k] for k in changed if k in kernels and self._differs(kernels[k]))
        withdrawn = frozenset(k for k in changed if k not in kernels and k in self._digest)
        self._digest.change(_order_contents(k.kernel_id for k in added), withdrawn)
        self._varied |= {kernel.kernel_id: kernel.varied for kernel in added}
        for kernel_id in withdrawn:
            self._varied.pop(kernel_id, None)

        return OrdersDelta(
            generation, base, added=added, withdrawn=withdrawn, digest=self._digest.value
        )

    def _differs(self, spec: KernelSpec) -> bool:
        known = spec.kernel_id in self._digest
        return not known or self._varied.get(spec.kernel_id, _FIRST) != spec.varied


_FIRST = (0, False)


class OrdersReceiver:
    """The agent's end of orders."""

    def __init__(self) -> None:
        self._digest = SetDigest()
        self._generation: int | None = None

    def accept(self, message: Orders | OrdersDelta) -> bool:
        """Whether the message follows the messages received before. If it does not, the caller must
        request full orders; deltas are no longer accepted."""
        if isinstance(message, Orders):
            self._digest.clear()
            self._digest.change(_order_contents(k.kernel_id for k in message.kernels))
        elif message.base != self._generation:
            self._generation = None
            return False
        else:
            self._digest.change(
                _order_contents(k.kernel_id for k in message.added), message.withdrawn
            )

        matches = isinstance(message, Orders) or self._digest.value == message.digest
        self._generation = message.generation if matches else None
        return matches

    def reject(self) -> None:
        """Note that an accepted message was not applied, so that no delta can follow it."""
        self._generation = None


def _order_contents(kernel_ids: Iterable[KernelId]) -> Iterable[tuple[str, bytes]]:
    """Content of an order.

    The kernel's id represents its specification, which never changes except for the reload
    generation. If a delta with a new reload generation is lost, the next delta has the wrong base,
    and full orders are requested. The suffix is part of the protocol."""
    return ((k, f"{k}\0''".encode()) for k in kernel_ids)
