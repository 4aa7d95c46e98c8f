"""The agent's own Prometheus metrics: its devices, what its kernels use, and how it is itself.

Made when they are asked for, from what was measured last: what has ended leaves no series behind. Their
number is bounded by what runs on one node; the manager's metrics have the sums.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from moorage import __version__
from moorage.agent.devices.usage import UsageSampler
from moorage.common.link.messages import SlotOffer
from moorage.common.model.addresses import split_address
from moorage.common.model.errors import StartupError
from moorage.common.model.ids import KernelId
from moorage.common.model.status import ObservedState

# Of each kernel: the field, what the metric is called, by what it is divided, and what it says.
_USES = (
    ("cpu", "kernel_processors", 1000, "Processors that a kernel uses."),
    ("memory", "kernel_memory_bytes", 1, "Memory that a kernel uses."),
    ("gpu", "kernel_busy_devices", 1000, "DeviceManager that a kernel keeps busy."),
    ("gpu_memory", "kernel_device_memory_bytes", 1, "Memory of devices that a kernel uses."),
    ("rx", "kernel_received_bytes_per_second", 1, "What a kernel receives."),
    ("tx", "kernel_sent_bytes_per_second", 1, "What a kernel sends."),
)
_DEVICES = (
    ("memory_used", "device_memory_used_bytes", 1, "Memory of a device in use, by anybody."),
    ("utilization", "device_busy_ratio", 1000, "How busy a device is."),
    ("temperature", "device_celsius", 1, "Temperature of a device."),
    ("power", "device_watts", 1000, "Power that a device draws."),
)
Kernels = Mapping[KernelId, tuple[str, ObservedState]]


class AgentMetrics(Collector):
    """``kernels``: each with the name of its session and its state. ``sampler``: None where nothing is
    measured."""

    def __init__(
        self,
        *,
        sampler: UsageSampler | None,
        offers: Callable[[], Iterable[SlotOffer]],
        kernels: Callable[[], Kernels],
        connected: Callable[[], bool],
    ) -> None:
        self._sampler, self._offers, self._kernels, self._connected = sampler, offers, kernels, connected
        self._registry = CollectorRegistry()
        ProcessCollector(namespace="moorage_agent", registry=self._registry)
        self._registry.register(self)

    def text(self) -> bytes:
        """Prometheus text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        about = _gauge("info", "This agent.", ["version"])
        about.add_metric([__version__], 1)
        connected = _gauge("connected", "Whether a manager has given it orders.", [])
        connected.add_metric([], int(self._connected()))
        states = _gauge("kernels", "Kernels that it has.", ["state"])
        kernels = self._kernels()
        for state in ObservedState:
            states.add_metric([state.value], sum(seen is state for _, seen in kernels.values()))
        return [about, connected, states, *self._of_devices(), *self._of_kernels(kernels), *self._own()]

    def _of_devices(self) -> Iterable[Metric]:
        offers = [offer for offer in self._offers() if offer.device_id]
        healthy = _gauge("device_healthy", "1: it is offered; 0: it is fenced.", ["device", "slot"])
        memory = _gauge("device_memory_bytes", "Memory that a device has.", ["device"])
        for offer in offers:
            healthy.add_metric([offer.device_id, offer.slot], int(offer.healthy))
            memory.add_metric([offer.device_id], offer.memory_bytes)
        yield from (healthy, memory)
        seen = self._sampler.latest.devices if self._sampler is not None else {}
        for field, name, scale, words in _DEVICES:
            family = _gauge(name, words, ["device"])
            for device_id, gpu in seen.items():
                if (value := getattr(gpu, field)) is not None:
                    family.add_metric([device_id], value / scale)
            yield family

    def _of_kernels(self, kernels: Kernels) -> Iterable[Metric]:
        uses = self._sampler.latest.kernels if self._sampler is not None else {}
        for field, name, scale, words in _USES:
            family = _gauge(name, words, ["kernel", "session"])
            for kernel_id, use in uses.items():
                value = getattr(use, field)
                if value is not None and kernel_id in kernels:
                    family.add_metric([kernel_id, kernels[kernel_id][0]], value / scale)
            yield family

    def _own(self) -> Iterable[Metric]:
        if self._sampler is None:
            return
        cpu, memory = self._sampler.latest.node
        for name, value, words in (
            ("node_processors", cpu / 1000, "Processors in use on the whole node."),
            ("node_memory_bytes", memory, "Memory in use on the whole node."),
        ):
            family = _gauge(name, words, [])
            family.add_metric([], value)
            yield family
        dropped = CounterMetricFamily(
            "moorage_agent_stats_dropped", "Measurements that no manager took.", labels=[]
        )
        dropped.add_metric([], self._sampler.dropped)
        yield dropped


def _gauge(name: str, words: str, labels: list[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"moorage_agent_{name}", words, labels=labels)


@asynccontextmanager
async def served(address: str, text: Callable[[], bytes]) -> AsyncIterator[str]:
    """``/metrics`` and ``/livez`` on ``address``; gives the real one, if port 0 was asked for. Raises
    ``StartupError``."""

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(body=text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def livez(request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/livez", livez)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        host, port = split_address(address)
        try:
            await web.TCPSite(runner, host, port, reuse_port=False).start()
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
                raise
            raise StartupError(
                f"agent.metrics_listen = {address} cannot be listened on: {os.strerror(error.errno)}",
                next_step="stop what listens there, or set MOORAGE_AGENT__METRICS_LISTEN to another address",
            ) from error
        yield f"{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
