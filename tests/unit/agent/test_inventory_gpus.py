"""GPU topology, MIG slices and device selection, with a fake NVML."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.agent.devices import DeviceManager, load_inventory
from moorage.agent.devices.nvidia.driver import NvidiaDriver
from moorage.agent.devices.nvidia.inventory import NvidiaInventory
from moorage.agent.devices.selection import SelectedDevices
from moorage.common.link.messages import SlotOffer
from moorage.common.model.errors import ConfigError

GIB = 1024**3


class Driver:
    """Fake NVML. ``links``: for each GPU, the remote end of each link, which is a GPU or "switch";
    None means that the link is down. ``slices``: for each GPU in MIG mode, the profiles of its
    slices; None means an empty slot."""

    NVML_NVLINK_DEVICE_TYPE_GPU = 0
    NVML_NVLINK_DEVICE_TYPE_SWITCH = 2

    class NVMLError(Exception):
        def __init__(self, text: str, value: int) -> None:
            super().__init__(text)
            self.value = value

    def __init__(
        self,
        count: int,
        links: dict[int, list[int | str | None]] | None = None,
        slices: dict[int, list[str | None]] | None = None,
    ) -> None:
        self.count = count
        self.links = links or {}
        self.slices = slices or {}
        self.lost: set[int] = set()

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index in self.lost:
            raise self.NVMLError("GPU is lost", 15)
        return index

    def nvmlDeviceGetUUID(self, gpu: int | str) -> str:
        return f"GPU-{gpu}" if isinstance(gpu, int) else f"MIG-{gpu}"

    def nvmlDeviceGetName(self, gpu: int | str) -> str:
        return "NVIDIA H100" if isinstance(gpu, int) else f"NVIDIA H100 MIG {gpu.partition('/')[2]}"

    def nvmlDeviceGetMemoryInfo(self, gpu: int | str) -> Any:
        return SimpleNamespace(total=80 * GIB if isinstance(gpu, int) else 10 * GIB)

    def nvmlDeviceGetMinorNumber(self, gpu: int) -> int:
        return gpu

    def nvmlDeviceGetPciInfo(self, gpu: int) -> Any:
        return SimpleNamespace(busId=f"00000000:{gpu + 0x3A:02X}:00.0".encode())

    def nvmlDeviceGetNvLinkState(self, gpu: int, link: int) -> int:
        links = self.links.get(gpu, [])
        if link >= len(links):
            raise self.NVMLError("Invalid Argument", 2)
        return int(links[link] is not None)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, gpu: int, link: int) -> int:
        return 2 if self.links[gpu][link] == "switch" else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu: int, link: int) -> Any:
        other = self.links[gpu][link]
        assert isinstance(other, int)
        return self.nvmlDeviceGetPciInfo(other)

    def nvmlDeviceGetMigMode(self, gpu: int) -> tuple[int, int]:
        return (int(gpu in self.slices), 0)

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: int) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: int, number: int) -> str:
        profiles = self.slices[gpu]
        if number >= len(profiles) or profiles[number] is None:
            raise self.NVMLError("Not Found", 6)
        return f"{gpu}-{number}/{profiles[number]}"


@pytest.mark.parametrize(
    ("links", "domains"),
    [
        ({}, ["", "", "", ""]),
        ({0: [1], 1: [0], 2: [3], 3: [2]}, ["0", "0", "2", "2"]),
        ({0: [1], 1: [0, 2], 2: [1]}, ["0", "0", "0", ""]),
        ({0: [1, None], 1: [0], 2: [None]}, ["0", "0", "", ""]),
        ({2: [3]}, ["", "", "2", "2"]),
        ({gpu: ["switch", "switch"] for gpu in range(4)}, ["0", "0", "0", "0"]),
        ({0: ["switch"], 1: [3], 3: [1]}, ["", "1", "", "1"]),
    ],
    ids=["none", "pairs", "chain", "link down", "one end reports", "switched", "alone on a switch"],
)
def test_nvlink_domains(links: dict[int, list[int | str | None]], domains: list[str]) -> None:
    assert [
        offer.nvlink_domain for offer in NvidiaInventory(NvidiaDriver(Driver(4, links))).offers()
    ] == domains


def test_numa_nodes(tmp_path: Path) -> None:
    for address, text in (
        ("0000:3a:00.0", "0\n"),
        ("0000:3b:00.0", "1\n"),
        ("0000:3c:00.0", "-1\n"),
    ):
        (tmp_path / "sys/bus/pci/devices" / address).mkdir(parents=True)
        (tmp_path / "sys/bus/pci/devices" / address / "numa_node").write_text(text)

    assert [
        offer.numa for offer in NvidiaInventory(NvidiaDriver(Driver(4), tmp_path)).offers()
    ] == [
        0,
        1,
        None,
        None,
    ]


def test_gpu_in_mig_mode_is_offered_as_its_slices() -> None:
    driver = Driver(3, {0: [1, 2], 1: [0], 2: [0]}, {1: ["1g.10gb", None, "3g.40gb+me"], 2: []})
    whole, small, large, unsliced = NvidiaInventory(NvidiaDriver(driver)).offers()
    assert (whole.slot, whole.device_id, whole.parent, whole.nvlink_domain) == (
        "cuda.device",
        "GPU-0",
        "",
        "0",
    )
    assert (small.slot, small.device_id, small.parent) == (
        "cuda-1g10gb.device",
        "MIG-1-0/1g.10gb",
        "GPU-1",
    )
    assert (large.slot, large.capacity, large.memory_bytes) == (
        "cuda-3g40gb.device",
        1000,
        10 * GIB,
    )
    assert (unsliced.device_id, unsliced.healthy, "no slices" in unsliced.unhealthy_reason) == (
        "GPU-2",
        False,
        True,
    )
    assert small.nvlink_domain == large.nvlink_domain == ""
    driver.lost = {1}
    gpus = NvidiaInventory(NvidiaDriver(driver))
    assert [o.healthy for o in gpus.offers()] == [True, False, False]


def test_slices_of_a_failing_gpu_are_unhealthy() -> None:
    driver = Driver(1, slices={0: ["1g.10gb", "1g.10gb"]})
    gpus = NvidiaInventory(NvidiaDriver(driver))
    assert [offer.healthy for offer in gpus.offers()] == [True, True]
    driver.lost = {0}
    assert [(offer.slot, offer.healthy) for offer in gpus.offers()] == [
        ("cuda-1g10gb.device", False)
    ] * 2


def ids(offers: tuple[SlotOffer, ...]) -> list[str]:
    return [offer.device_id for offer in offers if offer.device_id]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("0, 2,2", ["GPU-0", "GPU-2"]),
        ("3,1", ["GPU-3", "GPU-1"]),
        ("GPU-2,0", ["GPU-2", "GPU-0"]),
        ("4", ["MIG-4-0/1g.10gb", "MIG-4-1/2g.20gb"]),
        ("MIG-4-1/2g.20gb", ["MIG-4-1/2g.20gb"]),
    ],
)
def test_selection_by_index_and_id(names: str, expected: list[str]) -> None:
    driver = Driver(5, slices={4: ["1g.10gb", "2g.20gb"]})
    selected = SelectedDevices(NvidiaInventory(NvidiaDriver(driver)), names)
    assert ids(selected.offers()) == expected
    driver.lost = {0, 1, 2, 3, 4}
    assert ids(selected.offers()) == expected
    assert not any(offer.healthy for offer in selected.offers())


@pytest.mark.parametrize("names", ["5", "-1", "GPU-9", "0,,1", "0 1"])
def test_unknown_gpu_is_rejected(names: str) -> None:
    with pytest.raises(ConfigError, match=r"agent\.gpus.*not a GPU") as refused:
        SelectedDevices(NvidiaInventory(NvidiaDriver(Driver(2))), names)
    assert "0 = GPU-0, 1 = GPU-1" in str(refused.value.next_step)


def test_selection_on_a_node_without_gpus_is_rejected() -> None:
    with pytest.raises(ConfigError) as refused:
        SelectedDevices(NvidiaInventory(NvidiaDriver(Driver(0))), "0")
    assert "nvidia-smi" in str(refused.value.next_step)


def test_fake_inventory_has_the_same_topology() -> None:
    offers = load_inventory("fake:4xH100/nvlink", DeviceManager(()), gpus="3, 0, 3").offers()
    assert [(o.device_id, o.numa, o.nvlink_domain) for o in offers if o.device_id] == [
        ("GPU-fake-node-3", 1, "1"), ("GPU-fake-node-0", 0, "0"),
    ]  # fmt: skip
    assert {o.slot for o in offers} == {"cpu", "mem", "cuda.device"}
