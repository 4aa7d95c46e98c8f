"""What makes two requests the same to the planner: sessions that come in numbers mostly have one shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from moorage.common.model.slots import WHOLE_DEVICE
from moorage.manager.scheduling.core.demand import SHARES_SUFFIX, Demand, add_up, demand_of

Mode = Literal["single-node", "multi-node"]


class NodeConstraints(NamedTuple):
    """What an agent must be, whatever its size."""

    runtime: str
    engine: str
    arch: str
    labels: frozenset[tuple[str, str]]


# Compared by identity: equal ones are the same object as long as they are remembered, and a pass that meets
# a forgotten one twice only looks twice.
@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    constraints: NodeConstraints
    mode: Mode
    demands: tuple[Demand, ...]  # of each kernel, the main one first
    total: Demand
    families: frozenset[str]  # of devices, as <family>.shares
    amounts: dict[str, int]  # ``total``, to look things up in
    parts: tuple[tuple[str, int], ...]  # family and 1/1000 for each part of a device that is asked for

    @property
    def alone(self) -> bool:
        """Whether it is one kernel and no cluster."""
        return len(self.demands) == 1


@dataclass(frozen=True, slots=True, eq=False)
class OwnedShape:
    """A shape that a user of a project asks for, so that also quotas treat all of them alike. Compared by
    identity, as shapes are."""

    user: str
    project: str
    shape: Shape


@lru_cache(maxsize=65_536)
def owned_shape_of(user: str, project: str, shape: Shape) -> OwnedShape:
    return OwnedShape(user, project, shape)


def shape_of(
    runtime: str,
    engine: str,
    arch: str,
    labels: Mapping[str, str],
    mode: Mode,
    kernels: tuple[Mapping[str, int], ...],
) -> Shape:
    constraints = NodeConstraints(runtime, engine, arch, frozenset(labels.items()))
    return _shape(
        constraints, mode if len(kernels) > 1 else "single-node", tuple(demand_of(k) for k in kernels)
    )


@lru_cache(maxsize=65_536)
def _shape(constraints: NodeConstraints, mode: Mode, demands: tuple[Demand, ...]) -> Shape:
    total = demands[0] if len(demands) == 1 else add_up(demands)
    families = frozenset(slot for slot, _ in total if slot.endswith(SHARES_SUFFIX))
    parts = sorted(
        {
            (slot, amount % WHOLE_DEVICE)
            for demand in demands
            for slot, amount in demand
            if slot in families and amount % WHOLE_DEVICE
        }
    )
    return Shape(constraints, mode, demands, total, families, dict(total), tuple(parts))
