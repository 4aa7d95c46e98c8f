"""Reconciles the manager's orders with the agent's checkpoint and the kernels observed on the node. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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
    """Add a running, ordered kernel to the checkpoint, which had lost it."""

    spec: KernelSpec


@dataclass(frozen=True, slots=True)
class Stop:
    """Terminate gracefully, and by force after ``grace_s`` seconds."""

    kernel_id: KernelId
    grace_s: float


@dataclass(frozen=True, slots=True)
class Destroy:
    """Kill at once: the kernel is neither ordered nor in the checkpoint."""

    kernel_id: KernelId


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove what remains of an ended kernel that is no longer ordered, then its checkpoint record."""

    kernel_id: KernelId


Action = Create | Adopt | Stop | Destroy | Remove


def accepts(newest: int, orders: Orders) -> bool:
    """Orders of an older generation than ``newest`` arrived late and are never applied."""
    return orders.generation >= newest


def reconcile(
    orders: Orders | None,
    checkpoint: Mapping[KernelId, KernelSpec],
    observed: Mapping[KernelId, ObservedState],
    unlisted: Collection[str] = (),
) -> list[Action]:
    """The actions that take the node closer to ``orders``. ``observed`` has the state of the kernels in the
    checkpoint and of those found outside it; a missing one counts as UNKNOWN. ``unlisted``: runtimes that
    have not said which kernels they have.

    * Without orders (not connected since the start) there are no actions.
    * A kernel in the checkpoint is never created again, whatever its state. Its end is reported until the
      order is withdrawn; the manager decides whether another one starts.
    * UNKNOWN is not GONE: such a kernel is kept, and a kernel that an unlisted runtime may have is not
      created.
    * Terminations precede creations, so that a device is free before it is used again.
    """
    if orders is None:
        return []
    ordered = {spec.kernel_id: spec for spec in orders.kernels}
    actions: list[Action] = []
    for kernel_id, spec in checkpoint.items():
        if kernel_id in ordered:
            continue
        state = observed.get(kernel_id, ObservedState.UNKNOWN)
        if state in ALIVE:
            actions.append(Stop(kernel_id, spec.stop_grace_s))
        elif state in ENDED:
            actions.append(Remove(kernel_id))
    orphans = {kernel_id for kernel_id in observed if kernel_id not in checkpoint}
    actions += [
        Destroy(kernel_id) for kernel_id in observed if kernel_id in orphans and kernel_id not in ordered
    ]
    new = [spec for kernel_id, spec in ordered.items() if kernel_id not in checkpoint]
    actions += [Adopt(spec) for spec in new if spec.kernel_id in orphans]
    actions += [
        Create(spec) for spec in new if spec.kernel_id not in orphans and spec.runtime not in unlisted
    ]
    return actions
