"""What an agent must do, from what it should have, what it remembers and what it sees. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moorage.common.link.messages import Orders
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import ObservedState

ALIVE = frozenset({ObservedState.PREPARING, ObservedState.CREATING, ObservedState.RUNNING})
ENDED = frozenset({ObservedState.EXITED, ObservedState.GONE})


@dataclass(frozen=True, slots=True)
class Create:
    spec: KernelSpec


@dataclass(frozen=True, slots=True)
class Adopt:
    """Take into the ledger what is there and ordered, but not remembered: the ledger was lost."""

    spec: KernelSpec


@dataclass(frozen=True, slots=True)
class Stop:
    """Politely first; ``grace_s`` seconds later by force."""

    kernel_id: KernelId
    grace_s: float


@dataclass(frozen=True, slots=True)
class Destroy:
    """At once and by force: nobody remembers it and nobody wants it."""

    kernel_id: KernelId


@dataclass(frozen=True, slots=True)
class Forget:
    """It has ended and nobody wants to know any more: remove what is left of it, then its ledger entry."""

    kernel_id: KernelId


Action = Create | Adopt | Stop | Destroy | Forget


def accepts(newest: int, orders: Orders) -> bool:
    """Orders of an older generation than the newest seen are a message that was overtaken: never obeyed."""
    return orders.generation >= newest


def reconcile(
    orders: Orders | None,
    ledger: Mapping[KernelId, KernelSpec],
    observed: Mapping[KernelId, ObservedState],
) -> list[Action]:
    """``observed`` has the kernels of the ledger and those found outside of it; one that is missing counts as
    UNKNOWN. What ends comes before what begins: a device is free before it is given again.

    * Without orders (not connected since the start) nothing is touched.
    * A kernel in the ledger is never created again, whatever became of it: its end is reported until the
      order is withdrawn, and whether another is started is not ours to decide.
    * UNKNOWN is not GONE: it is kept.
    """
    if orders is None:
        return []
    wanted = {spec.kernel_id: spec for spec in orders.kernels}
    actions: list[Action] = []
    for kernel_id, spec in ledger.items():
        if kernel_id in wanted:
            continue
        state = observed.get(kernel_id, ObservedState.UNKNOWN)
        if state in ALIVE:
            actions.append(Stop(kernel_id, spec.stop_grace_s))
        elif state in ENDED:
            actions.append(Forget(kernel_id))
    found = {kernel_id for kernel_id in observed if kernel_id not in ledger}
    actions += [
        Destroy(kernel_id) for kernel_id in observed if kernel_id in found and kernel_id not in wanted
    ]
    new = [spec for kernel_id, spec in wanted.items() if kernel_id not in ledger]
    actions += [Adopt(spec) for spec in new if spec.kernel_id in found]
    actions += [Create(spec) for spec in new if spec.kernel_id not in found]
    return actions
