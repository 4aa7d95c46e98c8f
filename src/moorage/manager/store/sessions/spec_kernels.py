"""A session's kernels according to its specification: each kernel's slots, and a cluster's sub
kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from moorage.common.aio.clock import Clock
from moorage.common.model.ids import KernelId
from moorage.common.model.slots import JOBS, parse_slots
from moorage.common.model.spec import SessionSpec, SubKernels
from moorage.manager.scheduling.core.model import KernelRequest


@dataclass(frozen=True, slots=True)
class NewSubKernel:
    """A sub kernel to be inserted with its session."""

    index: int
    kernel_id: str
    secret: str


def new_sub_kernels(spec: SessionSpec, clock: Clock) -> tuple[NewSubKernel, ...]:
    return tuple(NewSubKernel(n, clock.new_id(), clock.secret()) for n in range(1, spec.size))


def main_slots(spec: SessionSpec) -> dict[str, int]:
    """Slots of the main kernel, in base units, as held on its agent. A job holds one of its site's
    job slots."""
    return {JOBS: 1} if spec.job is not None else requested_slots(spec)


def requested_slots(spec: SessionSpec) -> dict[str, int]:
    """Slots that the main kernel requests, in base units."""
    return dict(_parse(tuple(spec.resources.items())))


def sub_slots(spec: SessionSpec) -> dict[str, int]:
    """Slots of each sub kernel, in base units."""
    resources = sub_overrides(spec).resources
    return main_slots(spec) if resources is None else dict(_parse(tuple(resources.items())))


def total_slots(spec: SessionSpec) -> dict[str, int]:
    """Slots of all kernels together, in base units. Quotas count these."""
    total = main_slots(spec)
    for slot, amount in sub_slots(spec).items() if spec.size > 1 else ():
        total[slot] = total.get(slot, 0) + amount * (spec.size - 1)
    return total


@lru_cache(maxsize=1024)
def _parse(resources: tuple[tuple[str, str | int | float], ...]) -> dict[str, int]:
    """Parse slots. Cached, because most sessions that arrive in large numbers request the same
    resources."""
    return parse_slots(dict(resources))


def sub_overrides(spec: SessionSpec) -> SubKernels:
    """The fields in which sub kernels differ from the main kernel."""
    overrides = spec.cluster.sub if spec.cluster is not None else None
    return overrides if overrides is not None else SubKernels()


def sub_kernel_spec(spec: SessionSpec) -> SessionSpec:
    """Specification of a single-kernel session that would run the same thing as a sub kernel."""
    overrides = sub_overrides(spec)
    changes: dict[str, object] = {"env": spec.env | overrides.env, "probe": None}
    if overrides.command:
        changes["command"] = overrides.command
    if overrides.image is not None:
        changes["image"] = overrides.image
    return spec.model_copy(update=changes)


def sub_requests(
    spec: SessionSpec, kernel_ids: list[str] | None = None
) -> tuple[KernelRequest, ...]:
    """Sub kernels as the planner sees them. Without ``kernel_ids``, they belong to a session that
    does not exist yet."""
    if kernel_ids is None:
        kernel_ids = [f"sub{n}" for n in range(1, spec.size)]
    slots = sub_slots(spec)
    return tuple(KernelRequest(KernelId(kernel_id), slots) for kernel_id in kernel_ids)
