"""Node inventory, read from a fake /proc and /sys and from a fake NVML."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.agent.devices import DeviceManager, load_inventory
from moorage.agent.devices.host import HostInventory
from moorage.agent.devices.nvidia import NvidiaVendor
from moorage.agent.devices.nvidia.driver import NvidiaDriver
from moorage.agent.devices.nvidia.inventory import NvidiaInventory
from moorage.common.config.loader import load
from moorage.common.model.errors import ConfigError

CORES = len(os.sched_getaffinity(0)) * 1000
GIB = 1024**3
NO_DEVICES = DeviceManager(())


def node(root: Path, files: dict[str, str]) -> dict[str, int]:
    for name, text in (
        {"proc/meminfo": "MemTotal:       8388608 kB\nMemFree: 1 kB\n"} | files
    ).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return {offer.slot: offer.capacity for offer in HostInventory(GIB, root).offers()}


@pytest.mark.parametrize(
    ("files", "cpu", "mem"),
    [
        ({}, CORES, 7 * GIB),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
                "sys/fs/cgroup/a/cpu.max": "50000 100000\n",
                "sys/fs/cgroup/a/b/memory.max": f"{4 * GIB}\n",
                "sys/fs/cgroup/a/memory.max": "max\n",
            },
            500,
            3 * GIB,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/m\n3:cpuset:/\n2:cpu,cpuacct:/c\n0::/\n",
                "sys/fs/cgroup/cpu/c/cpu.cfs_quota_us": "25000\n",
                "sys/fs/cgroup/cpu/c/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/m/memory.limit_in_bytes": f"{2 * GIB}\n",
            },
            250,
            GIB,
        ),
        (
            {
                "proc/self/cgroup": "2:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            CORES,
            7 * GIB,
        ),
    ],
    ids=["no limits", "cgroup 2", "cgroup 1", "cgroup 1 without limits"],
)
def test_cpu_and_memory_within_limits(
    tmp_path: Path, files: dict[str, str], cpu: int, mem: int
) -> None:
    assert node(tmp_path, files) == {"cpu": cpu, "mem": mem}


def test_offers_of_this_node() -> None:
    offers = {offer.slot: offer.capacity for offer in HostInventory(0).offers()}
    assert 0 < offers["cpu"] <= CORES
    assert offers["mem"] > 0


class Driver:
    """Fake NVML with two GPUs and injected faults."""

    class NVMLError(Exception):
        def __init__(self, text: str, value: int = 3) -> None:
            super().__init__(text)
            self.value = value

    def __init__(self) -> None:
        self.broken: set[int] = set()
        self.not_loaded = False
        self.silent = False
        self.initialised = 0

    def nvmlInit(self) -> None:
        self.initialised += 1
        if self.not_loaded:
            raise self.NVMLError("Driver Not Loaded", 9)

    def nvmlShutdown(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        if self.silent:
            raise self.NVMLError("Unknown Error")
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index in self.broken:
            raise self.NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetUUID(self, gpu: int) -> str:
        return f"GPU-{gpu}"

    def nvmlDeviceGetName(self, gpu: int) -> bytes:
        return b"NVIDIA H100"

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> Any:
        return SimpleNamespace(total=80 * GIB)

    def nvmlDeviceGetMinorNumber(self, gpu: int) -> int:
        return gpu

    def nvmlDeviceGetPciInfo(self, gpu: int) -> Any:
        raise self.NVMLError("Not Supported")

    def nvmlDeviceGetNvLinkState(self, gpu: int, link: int) -> int:
        raise self.NVMLError("Not Supported")

    def nvmlDeviceGetMigMode(self, gpu: int) -> tuple[int, int]:
        raise self.NVMLError("Not Supported")


def health(inventory: NvidiaInventory) -> dict[str, bool]:
    return {offer.device_id: offer.healthy for offer in inventory.offers()}


def test_failing_gpus_are_unhealthy_not_absent() -> None:
    driver = Driver()
    gpus = NvidiaInventory(NvidiaDriver(driver))
    first = gpus.offers()[0]
    assert (first.slot, first.capacity, first.model, first.memory_bytes) == (
        *("cuda.device", 1000, "NVIDIA H100", 80 * GIB),
    )
    assert health(gpus) == {"GPU-0": True, "GPU-1": True}
    driver.broken = {1}
    assert health(gpus) == {"GPU-0": True, "GPU-1": False}
    driver.silent = True
    assert health(gpus) == {"GPU-0": False, "GPU-1": False}
    driver.broken = set()
    driver.silent = False
    assert health(gpus) == {"GPU-0": True, "GPU-1": True}
    assert driver.initialised == 2  # again, after it had stopped answering
    driver.broken = {0}
    assert health(NvidiaInventory(NvidiaDriver(driver))) == {"unreadable-0": False, "GPU-1": True}


def test_missing_driver_is_logged_once_and_offers_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    driver = Driver()
    driver.not_loaded = True
    gpus = NvidiaVendor(nvml=driver)
    assert [gpus.offers() for _ in range(3)] == [(), (), ()]
    assert capsys.readouterr().out.count("no NVIDIA GPUs") == 1


def test_fake_inventory() -> None:
    offers = load_inventory("fake:8xH100", NO_DEVICES, owner="a").offers()
    gpus = [offer for offer in offers if offer.slot == "cuda.device"]
    others = {
        offer.device_id for offer in load_inventory("fake:8xH100", NO_DEVICES, owner="b").offers()
    } - {""}
    assert len({gpu.device_id for gpu in gpus}) == 8
    assert not others & {gpu.device_id for gpu in gpus}
    assert {(gpu.capacity, gpu.memory_bytes, gpu.healthy) for gpu in gpus} == {
        (1000, 80 * GIB, True)
    }
    assert {offer.slot for offer in load_inventory("fake:0xT4", NO_DEVICES).offers()} == {
        "cpu",
        "mem",
    }


def test_cpu_is_overcommitted_on_a_node_without_a_gpu() -> None:
    def cpu(setting: str, devices: Any) -> int:
        return sum(o.capacity for o in load_inventory(setting, devices).offers() if o.slot == "cpu")

    once = cpu("auto", NO_DEVICES)
    assert cpu("auto+cpu-overcommit:4", NO_DEVICES) == 4 * once
    assert cpu("auto+cpu-slots:2+cpu-overcommit:4", NO_DEVICES) == 4 * once, "slots are no GPUs"
    assert cpu("auto+cpu-overcommit:4", NvidiaInventory(NvidiaDriver(Driver()))) == once
    memory = [
        o for o in load_inventory("auto+cpu-overcommit:4", NO_DEVICES).offers() if o.slot == "mem"
    ]
    assert memory == [o for o in load_inventory("auto", NO_DEVICES).offers() if o.slot == "mem"]


def test_node_without_gpu_offers_slots_of_its_cpus() -> None:
    driver = Driver()
    with_gpus = load_inventory("auto+cpu-slots:3", NvidiaInventory(NvidiaDriver(driver)))
    assert [o.device_id for o in with_gpus.offers() if o.slot == "cuda.device"] == [
        "GPU-0",
        "GPU-1",
    ]
    driver.silent = True
    assert not [o for o in with_gpus.offers() if o.model == "CPU"], (
        "a GPU that fails is still a GPU"
    )
    without = load_inventory("auto+cpu-slots:3", NO_DEVICES).offers()
    slots = [(o.slot, o.capacity, o.device_id, o.model) for o in without if o.device_id]
    assert slots == [("cuda.device", 1000, f"cpu-slot-{number}", "CPU") for number in range(3)]
    assert {o.slot for o in without} == {"cpu", "mem", "cuda.device"}
    assert not [o for o in load_inventory("auto", NO_DEVICES).offers() if o.device_id], (
        "off by default"
    )


@pytest.mark.parametrize(
    "setting",
    [
        "auto+cpu-slots:0",
        "auto+cpu-slots",
        "",
        "cuda",
        "fake",
        "fake:H100",
        "fake:-1xH100",
        "fake:2x",
        "fake:99999xH100",
    ],
)
def test_invalid_inventory_setting_is_rejected(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"agent\.inventory = .* from flag --set: .*fake:8xH100"):
        load(None, {}, {"common.home": "/nonexistent", "agent.inventory": setting})


def test_reserved_memory_must_be_a_size() -> None:
    with pytest.raises(ConfigError, match=r"agent\.reserved_mem = 'much' from flag --set"):
        load(None, {}, {"common.home": "/nonexistent", "agent.reserved_mem": "much"})
