"""Between the dataclasses of ``common.usage`` and protobuf."""

from __future__ import annotations

from moorage.common.link.pb import agent_pb2 as a
from moorage.common.model import usage as u
from moorage.common.model.ids import AgentId, DeviceId, KernelId


def _use_to_wire(use: u.Use) -> a.Use:
    return a.Use(cpu=use.cpu, memory=use.memory, rx=use.rx, tx=use.tx, gpu=use.gpu, gpu_memory=use.gpu_memory)


def _use_from_wire(wire: a.Use) -> u.Use:
    return u.Use(
        wire.cpu,
        wire.memory,
        wire.rx if wire.HasField("rx") else None,
        wire.tx if wire.HasField("tx") else None,
        wire.gpu if wire.HasField("gpu") else None,
        wire.gpu_memory if wire.HasField("gpu_memory") else None,
    )


def usage_to_wire(report: u.UsageReport) -> a.UsageReport:
    return a.UsageReport(
        agent_id=report.agent_id,
        incarnation=report.incarnation,
        cpu=report.cpu,
        memory=report.memory,
        kernels=[a.KernelUse(kernel_id=k.kernel_id, use=_use_to_wire(k.use)) for k in report.kernels],
        devices=[
            a.DeviceUse(
                device_id=d.device_id, memory=d.memory, gpu=d.gpu, temperature=d.temperature, power=d.power
            )
            for d in report.devices
        ],
        minutes=[
            a.KernelMinute(
                kernel_id=one.kernel_id,
                at=one.at,
                samples=one.samples,
                mean=_use_to_wire(one.mean),
                peak=_use_to_wire(one.peak),
            )
            for one in report.minutes
        ],
    )


def usage_from_wire(wire: a.UsageReport) -> u.UsageReport:
    return u.UsageReport(
        AgentId(wire.agent_id),
        wire.incarnation,
        wire.cpu,
        wire.memory,
        tuple(u.KernelUse(KernelId(k.kernel_id), _use_from_wire(k.use)) for k in wire.kernels),
        tuple(
            u.DeviceUse(
                DeviceId(d.device_id),
                d.memory,
                d.gpu if d.HasField("gpu") else None,
                d.temperature if d.HasField("temperature") else None,
                d.power if d.HasField("power") else None,
            )
            for d in wire.devices
        ),
        tuple(
            u.KernelMinute(
                KernelId(one.kernel_id),
                one.at,
                one.samples,
                _use_from_wire(one.mean),
                _use_from_wire(one.peak),
            )
            for one in wire.minutes
        ),
    )
