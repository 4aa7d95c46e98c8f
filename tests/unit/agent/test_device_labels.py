"""Labels that an agent derives from its GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.agent.devices.labels import DriverFacts, device_labels, short_name
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId

GIB = 1024**3


def gpu(
    number: int, model: str = "NVIDIA H100 80GB HBM3", gib: int = 80, **fields: Any
) -> SlotOffer:
    return SlotOffer(
        "cuda.device",
        1000,
        device_id=DeviceId(f"GPU-{number}"),
        model=model,
        memory_bytes=gib * GIB,
        **fields,
    )


def part(number: int, gpu: int, profile: str) -> SlotOffer:
    model = f"NVIDIA H100 80GB HBM3 MIG {profile}"
    parent = DeviceId(f"GPU-{gpu}")
    slot = f"cuda-{profile.replace('.', '')}.device"
    return SlotOffer(
        slot,
        1000,
        device_id=DeviceId(f"MIG-{number}"),
        model=model,
        memory_bytes=10 * GIB,
        parent=parent,
    )


FACTS = DriverFacts("580.1", "13.0", {"GPU-0": "9.0", "GPU-1": "9.0", "GPU-2": "8.9"})
OF_DRIVER = {"driver": "580.1", "cuda": "13.0"}
H100 = {"gpu.model": "H100", "gpu.name": "NVIDIA H100 80GB HBM3", "gpu.compute": "9.0"}
L40S = gpu(2, "NVIDIA L40S", 48)


@pytest.mark.parametrize(
    ("offers", "labels"),
    [
        ([SlotOffer("cpu", 4000)], {}),
        ([SlotOffer("cuda.device", 1000, DeviceId("cpu-slot-0"), "CPU")], {}),
        ([SlotOffer("acme.device", 1000, DeviceId("a"), "Acme")], {}),
        ([SlotOffer("cuda.device", 1000, DeviceId("nvidia-driver"), healthy=False)], {}),
        ([gpu(0)], H100 | {"gpu.memory": "81920", "gpu.count": "1", "links": "none"} | OF_DRIVER),
        (
            [gpu(0, nvlink_domain="0"), gpu(1, nvlink_domain="0", healthy=False)],
            H100 | {"gpu.memory": "81920", "gpu.count": "2", "links": "nvlink"} | OF_DRIVER,
        ),
        ([gpu(0, nvlink_domain="0"), L40S], {"gpu.count": "2", "links": "nvlink-some"} | OF_DRIVER),
        (
            [part(0, 0, "1g.10gb"), part(1, 0, "1g.10gb")],
            H100
            | {"gpu.memory": "10240", "gpu.count": "1", "links": "none", "mig": "1g.10gb"}
            | OF_DRIVER,
        ),
        (
            [part(0, 0, "1g.10gb"), part(1, 0, "3g.40gb")],
            H100
            | {"gpu.memory": "10240", "gpu.count": "1", "links": "none", "mig": "mixed"}
            | OF_DRIVER,
        ),
        (
            [gpu(1), part(0, 0, "1g.10gb")],
            H100 | {"gpu.count": "2", "links": "none", "mig": "mixed"} | OF_DRIVER,
        ),
    ],
    ids=[
        *("no GPU", "slots of CPUs", "of another vendor", "a driver that fails"),
        *("one GPU", "two, one of them fails", "two kinds"),
        *("slices", "slices of several kinds", "a slice and a GPU"),
    ],
)
def test_labels_hold_for_every_gpu_of_the_node(
    offers: list[SlotOffer], labels: dict[str, str]
) -> None:
    assert device_labels(offers, FACTS) == labels


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA RTX A6000", "RTX-A6000"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA H100 (fake)", "H100"),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short
