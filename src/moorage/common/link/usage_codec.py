"""Codecs for usage reports, between ``model.usage`` and protobuf."""

from __future__ import annotations

from moorage.common.link.field_codec import codec
from moorage.common.link.pb import agent_pb2 as a
from moorage.common.model import resource_usage as u

_use = codec(u.Use, a.Use)
_kernel = codec(u.KernelUse, a.KernelUse, {u.Use: _use})
_device = codec(u.DeviceUse, a.DeviceUse)
_engine = codec(u.EngineUse, a.EngineUse)
_progress = codec(u.KernelProgress, a.KernelProgress)
_minute = codec(u.KernelMinute, a.KernelMinute, {u.Use: _use})
_report = codec(
    u.UsageReport,
    a.UsageReport,
    {
        u.KernelUse: _kernel,
        u.DeviceUse: _device,
        u.KernelMinute: _minute,
        u.EngineUse: _engine,
        u.KernelProgress: _progress,
    },
)

usage_to_wire = _report.encode
usage_from_wire = _report.decode
