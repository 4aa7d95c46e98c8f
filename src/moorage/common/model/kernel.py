"""What an agent is given to run. It validates nothing, and need not carry what does."""

from __future__ import annotations

from dataclasses import dataclass, field

from moorage.common.model.cluster import ClusterMembership
from moorage.common.model.ids import DeviceId, EndpointId, KernelId, SessionId
from moorage.common.model.service_ports import ServicePort
from moorage.common.model.status import SessionType

ENGINES = ("llamacpp", "vllm", "custom")
RUNTIMES = ("process", "docker", "fake")
# The engine comes with the image, whatever is installed on the node.
IMAGED = frozenset({"docker"})
# Each node has an image for these, which is used where none is named.
WITH_DEFAULT_IMAGE = frozenset({"vllm"})


@dataclass(frozen=True, slots=True)
class DeviceGrant:
    """A device that the plan gave to a kernel. ``amount`` in 1/1000 of the device."""

    slot: str
    device_id: DeviceId
    amount: int


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """All that an agent needs to run one kernel. ``slots`` in base units (see ``common.slots``)."""

    kernel_id: KernelId
    session_id: SessionId
    session_name: str
    session_type: SessionType
    runtime: str
    engine: str
    served_name: str  # what clients send as `model`
    model: str = ""
    args: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    probe_path: str = ""  # "" = ready as soon as it runs (batch and interactive)
    probe_period_s: float = 0.5
    slots: dict[str, int] = field(default_factory=dict)
    devices: tuple[DeviceGrant, ...] = ()
    secret: str = ""  # the per-kernel key that guards its port; only the proxy and the engine know it
    start_timeout_s: float = 900.0
    stop_grace_s: float = 10.0
    endpoint_id: EndpointId | None = None
    image: str = ""  # of runtime docker
    container_user: str = ""  # uid or uid:gid, of its resource group; "": as the node says
    cluster: ClusterMembership | None = None  # None: its session has no other kernels
    workspace: str = ""  # keep, drop, or as its runtime does it
    ports: tuple[ServicePort, ...] = ()

    @property
    def answers_requests(self) -> bool:
        return self.session_type is SessionType.INFERENCE or bool(self.probe_path)
