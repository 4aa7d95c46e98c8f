"""Labels that an agent derives from its node's GPUs. Pure.

A label that does not apply to every GPU on the node is left out, because a session that asks for it
may get any of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from moorage.common.link.messages import SlotOffer
from moorage.common.model.slots import CPU_SLOT

# Short GPU names as they occur in NVML's names: "NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-16GB".
MODELS = frozenset(
    {
        *("GB300", "B300", "GB200", "B200", "B100", "GH200", "H200", "H100", "H800", "H20"),
        *(
            "A100",
            "A800",
            "A40",
            "A30",
            "A16",
            "A10",
            "A10G",
            "A2",
            "L40S",
            "L40",
            "L20",
            "L4",
            "L2",
        ),
        *("V100", "V100S", "T4", "P100", "P40", "P4", "K80", "M60"),
    }
)
_MIB = 1024**2
_MIG = re.compile(r" MIG (?:[0-9]+c\.)?([0-9]+g\.[0-9]+gb)")


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """``driver`` and ``cuda``: versions, like 580.159.04 and 13.0. ``compute``: each GPU's compute
    capability, like 9.0, by GPU id. Unknown values are empty."""

    driver: str = ""
    cuda: str = ""
    compute: Mapping[str, str] = field(default_factory=dict)


def device_labels(offers: Iterable[SlotOffer], facts: DriverFacts) -> dict[str, str]:
    """The labels of a node that offers these devices; none for a node without NVIDIA GPUs. Failed
    GPUs are included, so that a session that asks for one waits instead of being refused."""
    gpus = [offer for offer in offers if _is_named_gpu(offer)]
    if not gpus:
        return {}

    slices = [offer for offer in gpus if offer.parent]
    ids = {offer.parent or offer.device_id for offer in gpus}
    names = {_MIG.split(offer.model)[0] for offer in gpus}
    labels = {
        "gpu.name": _only(names),
        "gpu.model": _only({short_name(name) for name in names}),
        "gpu.memory": _only({str(offer.memory_bytes // _MIB) for offer in gpus}),
        "gpu.compute": _only({facts.compute.get(gpu, "") for gpu in ids}),
        "gpu.count": str(len(ids)),
        "driver": facts.driver,
        "cuda": facts.cuda,
        "links": _links([offer.nvlink_domain for offer in gpus]),
    }
    if slices:
        profiles = {found[1] if (found := _MIG.search(offer.model)) else "" for offer in slices}
        labels["mig"] = (
            _only(profiles) if len(slices) == len(gpus) and len(profiles) == 1 else "mixed"
        )

    return {name: value for name, value in labels.items() if value}


def short_name(name: str) -> str:
    """The usual short name of a GPU: ``H100`` for "NVIDIA H100 80GB HBM3". A GPU that is not in the
    table keeps its name without the brand: ``RTX-A6000``."""
    words = re.split(r"[ \-_/]+", name)
    known = [word for word in words if word in MODELS]
    if known:
        return known[0]
    return "-".join(
        word for word in words if word not in ("NVIDIA", "Tesla", "GeForce", "Quadro", "(fake)")
    )


def _is_named_gpu(offer: SlotOffer) -> bool:
    is_gpu = offer.slot.startswith(("cuda.", "cuda-")) and not offer.device_id.startswith(CPU_SLOT)
    return is_gpu and bool(offer.model)


def _links(domains: list[str]) -> str:
    """``nvlink``: every GPU reaches every other by NVLink; ``nvlink-some``: some do."""
    if not any(domains):
        return "none"
    return "nvlink" if len(set(domains)) == 1 else "nvlink-some"


def _only(values: set[str]) -> str:
    """The value that all have in common; empty if they differ."""
    return next(iter(values)) if len(values) == 1 else ""
