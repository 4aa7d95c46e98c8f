"""Identifiers. All are strings; ids of sessions, kernels and endpoints are UUIDv7 and sort by
age."""

from __future__ import annotations

from typing import NewType

SessionId = NewType("SessionId", str)
KernelId = NewType("KernelId", str)
EndpointId = NewType("EndpointId", str)
AgentId = NewType("AgentId", str)
DeviceId = NewType("DeviceId", str)
