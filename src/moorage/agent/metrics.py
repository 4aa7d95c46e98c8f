"""Prometheus metrics of the agent: its devices, its kernels' usage, and its own process.

They are rendered on request from the latest samples, so an ended kernel leaves no series behind.
Their number is bounded by the kernels on one node. The manager exports the sums.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sized
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from moorage.agent.devices.usage import UsageSampler
from moorage.common.aio.daemon_metrics import daemon_registry
from moorage.common.aio.supervisor import problems
from moorage.common.link.messages import SlotOffer
from moorage.common.model.addresses import split_address
from moorage.common.model.errors import StartupError
from moorage.common.model.ids import KernelId
from moorage.common.model.status import ObservedState

# The sample's field, the metric's name, divisor, description.
_KERNEL_METRICS = (
    ("cpu", "kernel_processors", 1000, "CPUs in use by a kernel."),
    ("memory", "kernel_memory_bytes", 1, "Memory in use by a kernel."),
    (
        "gpu",
        "kernel_busy_devices",
        1000,
        "Devices kept busy by a kernel, as a sum of their busy ratios.",
    ),
    ("gpu_memory", "kernel_device_memory_bytes", 1, "Device memory in use by a kernel."),
    ("rx", "kernel_received_bytes_per_second", 1, "Network receive rate of a kernel."),
    ("tx", "kernel_sent_bytes_per_second", 1, "Network transmit rate of a kernel."),
)
_DEVICE_METRICS = (
    ("memory_used", "device_memory_used_bytes", 1, "Device memory in use, by any process."),
    ("utilization", "device_busy_ratio", 1000, "Busy ratio of a device, 0 to 1."),
    ("temperature", "device_celsius", 1, "Temperature of a device."),
    ("power", "device_watts", 1000, "Power draw of a device."),
)
Kernels = Mapping[KernelId, tuple[str, ObservedState]]


class AgentMetrics(Collector):
    """The metrics of an agent. ``kernels`` returns the session name and state of each kernel.
    ``sampler`` is None if nothing is sampled."""

    def __init__(
        self,
        *,
        sampler: UsageSampler | None,
        offers: Callable[[], Iterable[SlotOffer]],
        kernels: Callable[[], Kernels],
        connected: Callable[[], bool],
        doubtful_jobs: Callable[[], Sized] = tuple,
    ) -> None:
        self._sampler = sampler
        self._offers = offers
        self._kernels = kernels
        self._connected = connected
        self._doubtful_jobs = doubtful_jobs

    def collect(self) -> Iterable[Metric]:
        states = _gauge("kernels", "Kernels of this agent, by state.", ["state"])
        kernels = self._kernels()
        for state in ObservedState:
            states.add_metric(
                [state.value], sum(current is state for _, current in kernels.values())
            )

        doubtful = _gauge(
            "doubtful_jobs", "Jobs for which a site may bill without a known kernel.", []
        )
        doubtful.add_metric([], len(self._doubtful_jobs()))
        return [
            _connected(self._connected()),
            states,
            doubtful,
            *self._device_metrics(),
            *self._kernel_metrics(kernels),
            *self._node_metrics(),
        ]

    def _device_metrics(self) -> Iterable[Metric]:
        offers = [offer for offer in self._offers() if offer.device_id]
        healthy = _gauge(
            "device_healthy", "1 if the device is offered, 0 if it is fenced.", ["device", "slot"]
        )
        memory = _gauge("device_memory_bytes", "Memory size of a device.", ["device"])
        for offer in offers:
            healthy.add_metric([offer.device_id, offer.slot], int(offer.healthy))
            memory.add_metric([offer.device_id], offer.memory_bytes)

        yield from (healthy, memory)
        samples = self._sampler.latest.devices if self._sampler is not None else {}
        for field, name, divisor, description in _DEVICE_METRICS:
            family = _gauge(name, description, ["device"])
            for device_id, measurement in samples.items():
                if (value := getattr(measurement, field)) is not None:
                    family.add_metric([device_id], value / divisor)

            yield family

        slowed = _gauge(
            "device_slowed",
            "1 for each cause that currently lowers the clocks of a device.",
            ["device", "by"],
        )
        for device_id, measurement in samples.items():
            for reason in measurement.slowed_by:
                slowed.add_metric([device_id, reason], 1)

        yield slowed

    def _kernel_metrics(self, kernels: Kernels) -> Iterable[Metric]:
        samples = self._sampler.latest.kernels if self._sampler is not None else {}
        for field, name, divisor, description in _KERNEL_METRICS:
            family = _gauge(name, description, ["kernel", "session"])
            for kernel_id, sample in samples.items():
                value = getattr(sample, field)
                if value is not None and kernel_id in kernels:
                    family.add_metric([kernel_id, kernels[kernel_id][0]], value / divisor)
            yield family

    def _node_metrics(self) -> Iterable[Metric]:
        if self._sampler is None:
            return

        cpu, memory = self._sampler.latest.node
        for name, value, description in (
            ("node_processors", cpu / 1000, "CPUs in use on the whole node."),
            ("node_memory_bytes", memory, "Memory in use on the whole node."),
        ):
            family = _gauge(name, description, [])
            family.add_metric([], value)
            yield family

        dropped = CounterMetricFamily(
            "moorage_agent_stats_dropped",
            "Usage samples dropped because no manager accepted them.",
            labels=[],
        )
        dropped.add_metric([], self._sampler.dropped)
        yield dropped


def _gauge(name: str, description: str, labels: list[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"moorage_agent_{name}", description, labels=labels)


class _MetricsOfSites(Collector):
    def __init__(self, agents: Callable[[], Mapping[str, AgentMetrics | None]]) -> None:
        self._agents = agents

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for agent_id, metrics in self._agents().items():
            for family in metrics.collect() if metrics is not None else (_connected(False),):
                merged = families.setdefault(family.name, family)
                samples = [
                    sample._replace(labels={"agent": agent_id} | sample.labels)
                    for sample in family.samples
                ]
                if merged is family:
                    merged.samples = samples
                else:
                    merged.samples.extend(samples)

        return families.values()


def page_of(metrics: Collector) -> Callable[[], bytes]:
    """An agent's metrics page, including the metrics of its process, in Prometheus text format."""
    registry = daemon_registry("agent")
    registry.register(metrics)
    return lambda: generate_latest(registry)


def page_of_sites(agents: Callable[[], Mapping[str, AgentMetrics | None]]) -> Callable[[], bytes]:
    """The metrics page of several agents in one process, whose series have a label ``agent``. None
    stands for an agent that has not started."""
    return page_of(_MetricsOfSites(agents))


def _connected(connected: bool) -> Metric:
    family = _gauge(
        "connected", "1 if orders have been applied on the current connection, else 0.", []
    )
    family.add_metric([], int(connected))
    return family


@asynccontextmanager
async def serve_metrics(address: str, text: Callable[[], bytes]) -> AsyncIterator[str]:
    """Serve ``/metrics`` and ``/livez`` on ``address``. Yields the address, with the actual port if
    port 0 was given. Raises ``StartupError``."""

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(
            body=text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def livez(request: web.Request) -> web.Response:
        return web.json_response(
            {"status": "degraded" if (found := problems()) else "ok", "checks": found}
        )

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
                f"agent.metrics_listen = {address}: cannot listen there: "
                f"{os.strerror(error.errno)}",
                next_step=(
                    "stop what listens there, or set MOORAGE_AGENT__METRICS_LISTEN to "
                    "another address"
                ),
            ) from error

        yield f"{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
