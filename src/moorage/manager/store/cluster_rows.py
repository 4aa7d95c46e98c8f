"""Clusters between rows and values: what each of their kernels has, and the key pair that they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from moorage.common.aio.clock import Clock
from moorage.common.model.cluster import ClusterMember, ClusterMembership
from moorage.common.model.ids import KernelId
from moorage.common.model.slots import parse_slots
from moorage.common.model.spec import SessionSpec, SubKernels
from moorage.manager.scheduling.core.model import KernelRequest


@dataclass(frozen=True, slots=True)
class Sub:
    """A kernel beside main1, as it is first written."""

    index: int
    kernel_id: str
    secret: str


def subs_of(spec: SessionSpec, clock: Clock) -> tuple[Sub, ...]:
    return tuple(Sub(n, clock.new_id(), clock.secret()) for n in range(1, spec.size))


def main_slots(spec: SessionSpec) -> dict[str, int]:
    """Of main1 alone, in base units."""
    return dict(_slots(tuple(spec.resources.items())))


def sub_slots(spec: SessionSpec) -> dict[str, int]:
    """Of each of the subs."""
    own = sub_of(spec).resources
    return main_slots(spec) if own is None else dict(_slots(tuple(own.items())))


def total_slots(spec: SessionSpec) -> dict[str, int]:
    """Of all kernels together: what quotas count."""
    total = main_slots(spec)
    for slot, amount in sub_slots(spec).items() if spec.size > 1 else ():
        total[slot] = total.get(slot, 0) + amount * (spec.size - 1)
    return total


@lru_cache(maxsize=1024)
def _slots(resources: tuple[tuple[str, str | int | float], ...]) -> dict[str, int]:
    return parse_slots(dict(resources))


def sub_of(spec: SessionSpec) -> SubKernels:
    """How the subs differ from main1."""
    own = spec.cluster.sub if spec.cluster is not None else None
    return own if own is not None else SubKernels()


def asks(spec: SessionSpec, ids: list[str]) -> tuple[KernelRequest, ...]:
    """The subs, as the planner is asked about them."""
    slots = sub_slots(spec)
    return tuple(KernelRequest(KernelId(one), slots) for one in ids)


def unmade(spec: SessionSpec) -> tuple[KernelRequest, ...]:
    """The same for a cluster that is only asked about."""
    return asks(spec, [f"sub{n}" for n in range(1, spec.size)])


def membership(row: Mapping[str, Any], spec: SessionSpec) -> ClusterMembership | None:
    """From a row of ``agent_orders.sql``; None for a kernel that is alone."""
    if spec.cluster is None:
        return None
    private_key, public_key = row["keys"] or ("", "")
    return ClusterMembership(
        hostname=row["hostname"],
        role=row["cluster_role"],
        index=row["cluster_index"],
        mode=spec.cluster.mode,
        group=KernelId(row["peers"][0][0]),
        members=tuple(ClusterMember(hostname, address) for _, hostname, address in row["peers"]),
        private_key=private_key,
        public_key=public_key,
    )


def as_sub(spec: SessionSpec) -> SessionSpec:
    """What its subs run, as a session of one kernel would ask for it."""
    own = sub_of(spec)
    changes: dict[str, Any] = {"env": spec.env | own.env, "probe": None}
    if own.command:
        changes["command"] = own.command
    if own.image is not None:
        changes["image"] = own.image
    return spec.model_copy(update=changes)
