"""Request shapes: the properties that make two requests equal for the planner.

Sessions that arrive in large numbers have few distinct shapes, so the planner keeps its
intermediate results by shape. Shapes are interned: ``shape_of`` returns the same object for equal
arguments as long as its cache holds them, and shapes compare and hash by identity, which costs
nothing no matter how large they are. An evicted shape is created again as another object; the
planner then computes the same results again. Caches keyed by shape may therefore miss, but are
never wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from moorage.common.model.slots import WHOLE_DEVICE
from moorage.manager.scheduling.core.demand import SHARES_SUFFIX, Demand, demand_of, sum_demands

Mode = Literal["single-node", "multi-node"]
# The slot of quotas in which system sessions are counted. No agent has it.
SYSTEM_SESSIONS = "system-sessions"
_ONE_SYSTEM_SESSION = {SYSTEM_SESSIONS: 1}


class NodeConstraints(NamedTuple):
    """Properties that an agent must have, regardless of its size."""

    runtime: str
    engine: str
    arch: str
    labels: frozenset[tuple[str, str]]
    # Whether other agents reach its kernels at its address: kernels of a cluster over several
    # agents connect directly.
    direct: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    constraints: NodeConstraints
    mode: Mode
    demands: tuple[Demand, ...]  # of each kernel, the main kernel first
    total: Demand
    families: frozenset[str]  # requested device families, as <family>.shares
    amounts: dict[str, int]  # ``total`` for look-ups
    fractions: tuple[tuple[str, int], ...]  # requested fractions of a device: family and 1/1000

    @property
    def single_kernel(self) -> bool:
        return len(self.demands) == 1


@dataclass(frozen=True, slots=True, eq=False)
class OwnedShape:
    """Shape requested by one user in one project, possibly with a QoS, because quotas depend on
    them. Interned like
    shapes.

    ``node_seconds``: its maximum usage of a site, if it is a job. ``system``: a system session,
    which is counted only against a separate limit. ``qos``: its QoS, if any."""

    user: str
    project: str
    shape: Shape
    node_seconds: int = 0
    system: bool = False
    qos: str = ""


@lru_cache(maxsize=65_536)
def owned_shape_of(
    user: str,
    project: str,
    shape: Shape,
    node_seconds: int = 0,
    system: bool = False,
    qos: str = "",
) -> OwnedShape:
    return OwnedShape(user, project, shape=shape, node_seconds=node_seconds, system=system, qos=qos)


def user_of_qos(qos: str, user: str) -> str:
    """The name by which a user's use of a QoS is counted. No QoS has a colon in its name."""
    return f"{qos}:{user}"


def counted(owned_shape: OwnedShape) -> Mapping[str, int]:
    """Amounts that are counted against limits on slots."""
    return _ONE_SYSTEM_SESSION if owned_shape.system else owned_shape.shape.amounts


def shape_of(
    runtime: str,
    engine: str,
    arch: str,
    labels: Mapping[str, str],
    *,
    mode: Mode,
    kernels: tuple[Mapping[str, int], ...],
) -> Shape:
    """``kernels``: the requested slots of each kernel, the main kernel first."""
    mode = mode if len(kernels) > 1 else "single-node"
    direct = mode == "multi-node"
    constraints = NodeConstraints(runtime, engine, arch, frozenset(labels.items()), direct=direct)

    return _shape(constraints, mode, tuple(demand_of(slots) for slots in kernels))


@lru_cache(maxsize=65_536)
def _shape(constraints: NodeConstraints, mode: Mode, demands: tuple[Demand, ...]) -> Shape:
    total = demands[0] if len(demands) == 1 else sum_demands(demands)
    families = frozenset(slot for slot, _ in total if slot.endswith(SHARES_SUFFIX))
    fractions = sorted(
        {
            (slot, amount % WHOLE_DEVICE)
            for demand in demands
            for slot, amount in demand
            if slot in families and amount % WHOLE_DEVICE
        }
    )

    return Shape(
        constraints,
        mode,
        demands=demands,
        total=total,
        families=families,
        amounts=dict(total),
        fractions=tuple(fractions),
    )
