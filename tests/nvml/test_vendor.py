"""The agent's NVIDIA vendor: inventory, usage and health of GPUs, with a scripted NVML and the real
nvidia-ml-py.

Each fault has its reason, the devices that it withholds from placement (this one, all on the node,
or none), and the condition that ends it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.nvml.conftest import MakeNvml
from tests.nvml.scripted import (
    DRIVER_NOT_LOADED,
    GIB,
    GPU_IS_LOST,
    NO_PERMISSION,
    RESET_REQUIRED,
    UNKNOWN,
    ScriptedNvml,
)
from tests.nvml.vendor import Vendor

MakeVendor = Callable[..., Vendor]


@pytest.fixture
def start() -> Iterator[MakeVendor]:
    vendors: list[Vendor] = []

    def make(nvml: ScriptedNvml, limit_s: float = 30) -> Vendor:
        vendors.append(Vendor(nvml, limit_s))
        return vendors[-1]

    yield make
    for vendor in vendors:
        vendor.close()


def eight_gpus(make_nvml: MakeNvml) -> ScriptedNvml:
    """Four H200s, each linked to all others by a switch, and four L40S GPUs without links."""
    nvml = make_nvml(4)
    for gpu in range(4):
        nvml.link(gpu, "switch")
    for _ in range(4):
        nvml.add_gpu("NVIDIA L40S", 48 * GIB)
    return nvml


def ids(nvml: ScriptedNvml) -> list[str]:
    return [nvml.uuid(gpu) for gpu in range(nvml.count)]


def test_two_kinds_of_gpus_and_their_links(make_nvml: MakeNvml, start: MakeVendor) -> None:
    nvml = eight_gpus(make_nvml)
    offers = start(nvml).offers()
    assert [offer.device_id for offer in offers] == ids(nvml)
    assert [offer.model for offer in offers] == ["NVIDIA H200"] * 4 + ["NVIDIA L40S"] * 4
    assert {offer.memory_bytes for offer in offers[4:]} == {48 * GIB}
    assert [offer.nvlink_domain for offer in offers] == ["0"] * 4 + [""] * 4
    assert all(offer.healthy for offer in offers)


def test_links_between_pairs_of_gpus(make_nvml: MakeNvml, start: MakeVendor) -> None:
    nvml = make_nvml(4)
    nvml.link(0, 1)
    nvml.link(3, 2, at=5)
    assert [offer.nvlink_domain for offer in start(nvml).offers()] == ["0", "0", "2", "2"]


def test_slices(make_nvml: MakeNvml, start: MakeVendor) -> None:
    nvml = make_nvml(2)
    small, large = nvml.partition(1, ["1g.18gb", "3g.71gb+me"])
    vendor = start(nvml)
    whole, one, other = vendor.offers()
    assert (whole.slot, whole.device_id) == ("cuda.device", nvml.uuid(0))
    assert (one.slot, one.device_id, one.parent) == ("cuda-1g18gb.device", small, nvml.uuid(1))
    assert (other.slot, other.device_id, other.memory_bytes) == (
        "cuda-3g71gb.device",
        large,
        71 * GIB,
    )
    measured = vendor.measure(small, parents={small: nvml.uuid(1)})[small]
    assert (measured["memory_total"], measured["utilization"], measured["power"]) == (
        18 * GIB,
        None,
        None,
    )


@pytest.mark.parametrize(
    "call", ["nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetMaxMigDeviceCount"]
)
def test_slices_without_the_rights_to_them(
    make_nvml: MakeNvml, start: MakeVendor, call: str
) -> None:
    """From a public report: the GPU was gone from the inventory, and nothing showed why."""
    nvml = make_nvml(2)
    slices = nvml.partition(1, ["1g.18gb", "1g.18gb"])
    nvml.fail(f"gpu.1.{call}", NO_PERMISSION)
    vendor = start(nvml)
    reasons = vendor.reasons()
    assert list(reasons) == ids(nvml)
    assert reasons[nvml.uuid(0)] == ""
    assert "slices cannot be read: Insufficient Permissions" in reasons[nvml.uuid(1)]
    assert "/dev/nvidia-caps" in reasons[nvml.uuid(1)]
    nvml.repair(f"gpu.1.{call}")
    assert vendor.reasons() == dict.fromkeys([nvml.uuid(0), *slices], "")

    # Slices that were offered before stay.
    nvml.fail(f"gpu.1.{call}", NO_PERMISSION)
    assert [bool(reason) for reason in vendor.reasons().values()] == [False, True, True]


def test_mode_of_slices_that_the_driver_does_not_tell(
    make_nvml: MakeNvml, start: MakeVendor
) -> None:
    """The GPU is not treated as a whole one, because a program would get one of its slices."""
    nvml = make_nvml(1)
    nvml.partition(0, ["1g.18gb"])
    nvml.fail("gpu.0.nvmlDeviceGetMigMode", NO_PERMISSION)
    (reason,) = start(nvml).reasons().values()
    assert reason.startswith("the driver cannot reach it: Insufficient Permissions")


def test_gpu_in_mig_mode_without_slices(make_nvml: MakeNvml, start: MakeVendor) -> None:
    nvml = make_nvml(1)
    nvml.partition(0, [])
    assert "no slices: `nvidia-smi mig -cgi" in start(nvml).reasons()[nvml.uuid(0)]


def test_memory_and_utilization_of_processes(make_nvml: MakeNvml, start: MakeVendor) -> None:
    nvml = make_nvml(1)
    nvml.use_memory(0, 9 * GIB, processes={4711: 8 * GIB, 4712: None})
    nvml.set(
        {
            "gpu.0.nvmlDeviceGetUtilizationRates": "87 40",
            "gpu.0.nvmlDeviceGetProcessUtilization": "4711:1000:80:1:0:0 4712:1100:7:1:0:0",
        }
    )
    vendor = start(nvml)
    assert vendor.offers()
    measured = vendor.measure(nvml.uuid(0))[nvml.uuid(0)]
    assert measured["memory_used"] == 9 * GIB
    assert measured["memory_by_pid"] == {"4711": 8 * GIB, "4712": None}
    assert measured["utilization"] == 870
    assert measured["utilization_by_pid"] == {"4711": 800, "4712": 70}

    # Only newer errors are counted the next time.
    nvml.set({"gpu.0.nvmlDeviceGetProcessUtilization": "4711:1000:80:1:0:0 4711:1200:55:1:0:0"})
    assert vendor.measure(nvml.uuid(0))[nvml.uuid(0)]["utilization_by_pid"] == {"4711": 550}


def test_limits_of_heat_and_power_withhold_nothing(make_nvml: MakeNvml, start: MakeVendor) -> None:
    nvml = make_nvml(2)
    vendor = start(nvml)
    assert vendor.offers()
    nvml.set({"gpu.0.nvmlDeviceGetCurrentClocksEventReasons": str(0x40 | 0x4)})
    measured = vendor.measure(*ids(nvml))
    assert measured[nvml.uuid(0)]["slowed_by"] == ["power-limit", "hardware-thermal"]
    assert measured[nvml.uuid(1)]["slowed_by"] == []
    assert vendor.unhealthy(*ids(nvml)) == {}

    # An unused GPU also has lower clocks.
    nvml.set({"gpu.0.nvmlDeviceGetCurrentClocksEventReasons": "1"})
    assert vendor.measure(nvml.uuid(0))[nvml.uuid(0)]["slowed_by"] == []


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"nvmlDeviceGetTotalEccErrors.1.0": "3"}, "3 uncorrectable memory errors (ECC)"),
        ({"nvmlDeviceGetRemappedRows": "1 1 0 1"}, "row remapping failed: replace the GPU"),
    ],
)
def test_faults_of_the_memory(
    make_nvml: MakeNvml, start: MakeVendor, answers: dict[str, str], reason: str
) -> None:
    nvml = make_nvml(2)
    vendor = start(nvml)
    assert vendor.offers()
    assert vendor.unhealthy(*ids(nvml)) == {}
    nvml.set({f"gpu.1.{call}": answer for call, answer in answers.items()})
    assert vendor.unhealthy(*ids(nvml)) == {nvml.uuid(1): reason}


def test_errors_that_the_driver_reports(make_nvml: MakeNvml, start: MakeVendor) -> None:
    nvml = make_nvml(3)
    part = nvml.partition(2, ["1g.18gb"])[0]
    devices = [nvml.uuid(0), nvml.uuid(1), part]
    parents = {part: nvml.uuid(2)}
    vendor = start(nvml)
    assert vendor.offers()
    assert vendor.unhealthy(*devices, parents=parents) == {}
    nvml.xid(0, 31)  # caused by a program: see h200.json
    nvml.xid(1, 79)
    nvml.xid(2, 48)
    assert vendor.unhealthy(*devices, parents=parents) == {
        nvml.uuid(1): "XID 79 (see `dmesg` on its node)",
        part: "XID 48 (see `dmesg` on its node)",
    }
    assert vendor.unhealthy(*devices, parents=parents) == {}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (GPU_IS_LOST, "GPU is lost: it fell off the bus"),
        (RESET_REQUIRED, "GPU requires restart: `nvidia-smi --gpu-reset`"),
        (UNKNOWN, "Unknown Error"),
    ],
)
def test_gpu_that_fails_and_is_reset(
    make_nvml: MakeNvml, start: MakeVendor, code: int, reason: str
) -> None:
    """Only this GPU is withheld. After the reset it is back, and its errors are seen again."""
    nvml = eight_gpus(make_nvml)
    vendor = start(nvml)
    healthy = dict.fromkeys(ids(nvml), "")
    assert vendor.reasons() == healthy
    assert vendor.unhealthy(*ids(nvml)) == {}
    lost = nvml.uuid(5)
    nvml.fail("gpu.5.*", code)
    found = vendor.reasons()
    assert found == healthy | {lost: found[lost]}
    assert found[lost].startswith(f"the driver cannot reach it: {reason}")
    assert list(vendor.unhealthy(*ids(nvml))) == [lost]
    assert len(vendor.measure(*ids(nvml))) == 7
    nvml.repair("gpu.5.*")
    assert vendor.reasons() == healthy
    assert vendor.unhealthy(*ids(nvml)) == {}
    nvml.xid(5, 79)
    assert list(vendor.unhealthy(*ids(nvml))) == [lost]


def test_gpu_that_the_driver_lists_no_more(make_nvml: MakeNvml, start: MakeVendor) -> None:
    """The driver renumbers the others: none of them is offered twice, and the missing one stays
    visible, even to a restarted agent."""
    nvml = make_nvml(3)
    vendor = start(nvml)
    missing = nvml.uuid(0)
    others = {nvml.uuid(1): "", nvml.uuid(2): ""}
    assert vendor.reasons() == {missing: ""} | others

    for key, answer in list(nvml.answers.items()):
        for gpu in (0, 1):
            if key.startswith(f"gpu.{gpu + 1}."):
                nvml.answers[key.replace(f"gpu.{gpu + 1}.", f"gpu.{gpu}.")] = answer

    nvml.set({"nvmlDeviceGetCount": "2"})
    for _ in range(2):
        found = vendor.reasons()
        assert "does not list it any more" in found.pop(missing)
        assert found == others
        vendor.restart()


def test_gpu_that_cannot_be_read_from_the_start(make_nvml: MakeNvml, start: MakeVendor) -> None:
    nvml = make_nvml(2)
    nvml.fail("gpu.0.*", GPU_IS_LOST)
    vendor = start(nvml)
    found = vendor.reasons()
    assert list(found) == ["unreadable-0", nvml.uuid(1)]
    nvml.repair("gpu.0.*")
    assert vendor.reasons() == dict.fromkeys(ids(nvml), "")

    # A restarted agent knows which one it is.
    nvml.fail("gpu.0.*", GPU_IS_LOST)
    vendor.restart()
    assert [bool(reason) for reason in vendor.reasons().values()] == [True, False]
    assert list(vendor.reasons()) == ids(nvml)


def test_driver_that_is_upgraded_under_a_running_agent(
    make_nvml: MakeNvml, start: MakeVendor
) -> None:
    """The agent's own library still answers, but no program that starts now gets a GPU."""
    nvml = make_nvml(2)
    vendor = start(nvml)
    assert vendor.reasons() == dict.fromkeys(ids(nvml), "")
    nvml.install_library("590.44.01")

    for _ in range(2):
        reasons = vendor.reasons()
        assert list(reasons) == ids(nvml)
        assert all("Driver/library version mismatch" in reason for reason in reasons.values())
        assert vendor.unhealthy(*ids(nvml)) == reasons
        assert vendor.measure(*ids(nvml)) == {}
        vendor.restart()

    vendor.offers()
    nvml.load_module("590.44.01")
    assert vendor.reasons() == dict.fromkeys(ids(nvml), "")
    assert len(vendor.measure(*ids(nvml))) == 2


def test_node_whose_driver_never_answered(make_nvml: MakeNvml, start: MakeVendor) -> None:
    """The driver itself is offered as unhealthy: a node with broken GPUs is not a node without
    GPUs."""
    nvml = make_nvml(2)
    nvml.install_library("590.44.01")
    vendor = start(nvml)
    (offer,) = vendor.offers()
    assert (offer.slot, offer.device_id, offer.healthy) == ("cuda.device", "nvidia-driver", False)
    assert "mismatch" in offer.unhealthy_reason
    assert vendor.unhealthy("nvidia-driver") == {}
    nvml.load_module("590.44.01")
    assert vendor.reasons() == dict.fromkeys(ids(nvml), "")
    nvml.fail("nvmlInitWithFlags", NO_PERMISSION)
    (nvml.folder / "gpus.json").unlink()
    vendor.restart()
    assert "access to /dev/nvidia*" in vendor.reasons()["nvidia-driver"]


def test_driver_that_goes_away_and_comes_back(make_nvml: MakeNvml, start: MakeVendor) -> None:
    nvml = make_nvml(2)
    vendor = start(nvml)
    healthy = dict.fromkeys(ids(nvml), "")
    assert vendor.reasons() == healthy
    assert vendor.unhealthy(*ids(nvml)) == {}
    nvml.load_module("")
    assert all(
        "Driver Not Loaded: load it with `modprobe nvidia`" in reason
        for reason in vendor.reasons().values()
    )
    assert list(vendor.unhealthy(*ids(nvml))) == ids(nvml)
    nvml.load_module("580.159.04")
    assert vendor.reasons() == healthy
    assert vendor.unhealthy(*ids(nvml)) == {}
    nvml.xid(1, 79)
    assert list(vendor.unhealthy(*ids(nvml))) == [nvml.uuid(1)]

    # An agent that starts while the driver is away still knows the GPUs.
    nvml.load_module("")
    vendor.restart()
    assert [bool(reason) for reason in vendor.reasons().values()] == [True, True]
    assert list(vendor.reasons()) == ids(nvml)


def test_library_that_is_removed_and_comes_back(make_nvml: MakeNvml, start: MakeVendor) -> None:
    nvml = make_nvml(1)
    vendor = start(nvml)
    assert vendor.reasons() == {nvml.uuid(0): ""}
    (nvml.folder / "libnvidia-ml.so.1").unlink()
    assert "no driver is installed" in vendor.reasons()[nvml.uuid(0)]
    nvml.install_library("580.159.04")
    assert vendor.reasons() == {nvml.uuid(0): ""}
    (nvml.folder / "libnvidia-ml.so.1").unlink()
    (nvml.folder / "libnvidia-ml.so.1").write_bytes(b"\x7fELF")
    assert "too short" in vendor.reasons()[nvml.uuid(0)]


def test_library_without_a_driver_is_a_node_without_gpus(
    make_nvml: MakeNvml, start: MakeVendor
) -> None:
    """As in an image that has the library, on a node without a GPU."""
    nvml = make_nvml(1)
    nvml.fail("nvmlInitWithFlags", DRIVER_NOT_LOADED)
    assert start(nvml).reasons() == {}


@pytest.mark.parametrize("key", ["*", "gpu.1.*", "gpu.1.nvmlDeviceGetMemoryInfo"])
def test_calls_that_hang(make_nvml: MakeNvml, start: MakeVendor, key: str) -> None:
    """The agent continues, and calls again only after the call has returned. The driver serves all
    GPUs under the same locks, so all are withheld."""
    nvml = make_nvml(2)
    vendor = start(nvml, limit_s=0.5)
    assert vendor.reasons() == dict.fromkeys(ids(nvml), "")
    nvml.hang(key)
    hanging = dict.fromkeys(ids(nvml), "the driver has not answered for 0.5 s: see `dmesg`")
    assert vendor.reasons() == hanging
    began = time.monotonic()
    assert vendor.unhealthy(*ids(nvml)) == hanging
    assert vendor.measure(*ids(nvml)) == {}
    assert vendor.reasons() == hanging
    assert time.monotonic() - began < 0.45, "a driver that hangs is waited for once"
    nvml.repair(key)
    ends_at = time.monotonic() + 10
    while any(vendor.reasons().values()):
        assert time.monotonic() < ends_at
        time.sleep(0.01)

    assert vendor.unhealthy(*ids(nvml)) == {}
    assert len(vendor.measure(*ids(nvml))) == 2


def test_driver_that_hangs_from_the_start(make_nvml: MakeNvml, start: MakeVendor) -> None:
    nvml = make_nvml(1)
    nvml.hang("nvmlInitWithFlags")
    assert "has not answered" in start(nvml, limit_s=0.3).reasons()["nvidia-driver"]


def test_labels(make_nvml: MakeNvml, start: MakeVendor) -> None:
    nvml = make_nvml(2)
    nvml.link(0, 1)
    vendor = start(nvml)
    labels = {
        "gpu.model": "H200",
        "gpu.name": "NVIDIA H200",
        "gpu.memory": "143771",
        "gpu.compute": "9.0",
        "gpu.count": "2",
        "driver": "580.159.04",
        "cuda": "13.0",
        "links": "nvlink",
    }
    assert vendor.labels() == labels

    # They stay while the driver fails: a session that requires them waits for this node.
    nvml.install_library("590.44.01")
    assert vendor.labels() == labels
    vendor.restart()
    assert vendor.labels() == labels
    nvml.load_module("590.44.01")
    nvml.set({"nvmlSystemGetCudaDriverVersion_v2": "13010"})
    assert vendor.labels() == labels | {"driver": "590.44.01", "cuda": "13.1"}
    nvml.partition(0, ["1g.18gb", "1g.18gb"])
    nvml.partition(1, ["1g.18gb"])
    found = vendor.labels()
    assert (found["mig"], found["gpu.memory"], found["links"]) == ("1g.18gb", "18432", "none")
    assert (found["gpu.model"], found["gpu.count"]) == ("H200", "2")
