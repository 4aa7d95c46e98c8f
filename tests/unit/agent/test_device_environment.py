"""Device environment variables: every vendor restricts a kernel to its own devices, and a site
restricts none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from moorage.agent.devices import DeviceManager, NvidiaVendor, Vendor
from moorage.agent.devices.fake_inventory import FakeVendor
from moorage.agent.devices.plugins import IsolatedVendor
from moorage.agent.devices.vendor import DeviceMeasurement, DeviceParents
from moorage.agent.engines import ENGINES, NodeInfo
from moorage.agent.execution.kept_workspaces import Workspaces
from moorage.agent.kernel import create
from moorage.agent.kernel.checkpoint import CheckpointFiles, KernelRecord
from moorage.agent.kernel.context import AgentContext
from moorage.agent.kernel.create import StartRefused
from moorage.agent.kernel.leases import KernelLeases
from moorage.agent.runtimes import FakeRuntime, Launch
from moorage.agent.runtimes.base import Capabilities
from moorage.agent.state.logs import LogStore
from moorage.agent.state.ports import PortAllocator
from moorage.common.aio.clock import SystemClock
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId, KernelId, SessionId
from moorage.common.model.kernel import DeviceGrant, KernelSpec
from moorage.common.model.status import SessionType

VISIBLE = "CUDA_VISIBLE_DEVICES"
PROCESSES = Capabilities(node_processes=True, devices=True)
CONTAINERS = Capabilities(contained=True, images=True)
SITES = Capabilities(own_address=True, max_jobs=10)
BASE = KernelSpec(
    KernelId("k"),
    SessionId("s"),
    session_name="n",
    session_type=SessionType.BATCH,
    runtime="fake",
    engine="custom",
    served_name="n",
    command=("run",),
)

Grants = tuple[tuple[str, str, int], ...]


class Acme:
    """A vendor supplied by a plug-in. ``failure``: the exception that its code raises."""

    name = "acme"

    def __init__(self, failure: Exception | None = None) -> None:
        self._failure = failure

    def offers(self) -> tuple[SlotOffer, ...]:
        return (SlotOffer("acme.device", 1000, DeviceId("acme-1")),)

    def measure(self, devices: DeviceParents) -> dict[DeviceId, DeviceMeasurement]:
        return {}

    def unhealthy(self, devices: DeviceParents) -> dict[DeviceId, str]:
        return {}

    def environment(self, devices: tuple[DeviceId, ...]) -> dict[str, str]:
        if self._failure is not None:
            raise self._failure
        return {"ACME_VISIBLE_DEVICES": ",".join(devices)}


def granted(*grants: tuple[str, str, int]) -> KernelSpec:
    devices = tuple(DeviceGrant(slot, DeviceId(name), amount) for slot, name, amount in grants)
    return replace(BASE, devices=devices)


def manager_of(*vendors: Vendor) -> DeviceManager:
    manager = DeviceManager(vendors)
    manager.offers()
    return manager


def launched(
    state: Path, capabilities: Capabilities, devices: DeviceManager, spec: KernelSpec
) -> Launch:
    clock = SystemClock()
    runtime = FakeRuntime(LogStore(state / "logs"))
    runtime.capabilities = capabilities
    context = AgentContext(
        clock=clock,
        checkpoint=CheckpointFiles(state),
        ports=PortAllocator("22000-22099", "127.0.0.1", clock=clock),
        logs=LogStore(state / "logs"),
        runtimes={"fake": runtime},
        node=NodeInfo(),
        host="127.0.0.1",
        process_dir=lambda kernel_id: state / kernel_id,
        workspaces=Workspaces(state),
        leases=KernelLeases(state, clock),
        devices=devices,
    )

    return create.prepare_launch(context, KernelRecord(spec, 1.0), ENGINES["custom"])


@pytest.mark.parametrize("vendor", [NvidiaVendor(), FakeVendor()], ids=["nvidia", "fake"])
@pytest.mark.parametrize(
    ("grants", "visible"),
    [
        ((), ""),
        ((("cuda.shares", "A", 500), ("cuda.device", "B", 1000), ("cuda.shares", "A", 500)), "A,B"),
        ((("cuda-1g10gb.device", "MIG-1", 1000), ("cuda-slice.device", "MIG-2", 0)), "MIG-1"),
        ((("rocm.device", "R", 1000),), ""),
        ((("cuda.device", "cpu-slot-0", 1000), ("cuda.shares", "cpu-slot-1", 500)), ""),
    ],
)
def test_cuda_shows_the_granted_gpus(vendor: Vendor, grants: Grants, visible: str) -> None:
    assert manager_of(vendor).environment(granted(*grants)) == {VISIBLE: visible}


def test_every_vendor_hides_what_a_process_was_not_granted() -> None:
    manager = manager_of(NvidiaVendor(), IsolatedVendor(Acme()))
    both = granted(("cuda.device", "A", 1000), ("acme.device", "acme-1", 1000))
    assert manager.environment(both) == {VISIBLE: "A", "ACME_VISIBLE_DEVICES": "acme-1"}
    assert manager.environment(BASE) == {VISIBLE: "", "ACME_VISIBLE_DEVICES": ""}


def test_the_user_does_not_override_the_devices(tmp_path: Path) -> None:
    spec = replace(granted(("cuda.device", "A", 1000)), env={VISIBLE: "7", "MINE": "1"})
    env = launched(tmp_path, PROCESSES, manager_of(NvidiaVendor()), spec).env
    assert (env[VISIBLE], env["MINE"]) == ("A", "1")
    assert launched(tmp_path, PROCESSES, manager_of(NvidiaVendor()), BASE).env[VISIBLE] == ""


def test_a_container_has_the_variables_of_cuda_only(tmp_path: Path) -> None:
    manager = manager_of(NvidiaVendor(), IsolatedVendor(Acme(RuntimeError("broken"))))
    launch = launched(tmp_path, CONTAINERS, manager, granted(("cuda.device", "A", 1000)))
    assert launch.env[VISIBLE] == "A"
    assert launch.devices == ("A",)
    assert "ACME_VISIBLE_DEVICES" not in launch.env


def test_a_process_is_refused_while_a_vendor_fails(tmp_path: Path) -> None:
    manager = manager_of(NvidiaVendor(), IsolatedVendor(Acme(RuntimeError("broken"))))
    with pytest.raises(StartRefused, match="'acme' failed in environment"):
        launched(tmp_path, PROCESSES, manager, BASE)


def test_a_job_of_a_site_keeps_the_devices_that_the_site_hands_out(tmp_path: Path) -> None:
    """Slurm sets CUDA_VISIBLE_DEVICES in the job; an empty value would hide its GPUs."""
    spec = replace(granted(("cuda.device", "", 2000)), env={"MINE": "1"})
    env = launched(tmp_path, SITES, manager_of(NvidiaVendor(), IsolatedVendor(Acme())), spec).env
    assert env["MINE"] == "1"
    assert {VISIBLE, "ACME_VISIBLE_DEVICES"}.isdisjoint(env)
