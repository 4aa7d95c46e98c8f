"""Reconciles the manager's orders with the agent's checkpoint and the kernels observed on the node.
Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from moorage.common.link.messages import Orders, OrdersDelta
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import ObservedState

ALIVE = frozenset(
    {ObservedState.PREPARING, ObservedState.QUEUED, ObservedState.CREATING, ObservedState.RUNNING}
)
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
    """Kill immediately: the kernel is neither ordered nor in the checkpoint."""

    kernel_id: KernelId


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the remains of an ended kernel that is no longer ordered, then its checkpoint
    record."""

    kernel_id: KernelId


@dataclass(frozen=True, slots=True)
class ReloadProgram:
    """Ask the program to reload its settings, for all reloads up to ``generation``. This is
    repeated until the checkpoint records it."""

    kernel_id: KernelId
    generation: int


@dataclass(frozen=True, slots=True)
class Suspend:
    """Stop the kernel's processes, or let them continue. This is repeated until the checkpoint
    records it."""

    kernel_id: KernelId
    suspended: bool


Action = Create | Adopt | Stop | Destroy | Remove | ReloadProgram | Suspend


def accepts(newest: int, applied: int, orders: Orders | OrdersDelta) -> bool:
    """Whether orders can be applied. Orders older than the generation ``newest`` arrived late and
    are never applied. A delta is applied only to the orders of ``applied``, the generation in
    force."""
    return orders.generation >= newest and (isinstance(orders, Orders) or orders.base == applied)


def reconcile(
    ordered: Mapping[KernelId, KernelSpec] | None,
    checkpoint: Mapping[KernelId, KernelSpec],
    observed: Mapping[KernelId, ObservedState],
    unlisted: Collection[str] = (),
    *,
    among: Iterable[KernelId] | None = None,
) -> list[Action]:
    """The actions that bring the node closer to its orders. ``observed`` has the states of the
    kernels in the checkpoint and of those found outside it; a missing kernel is UNKNOWN.
    ``unlisted``: runtimes that have not listed their kernels. ``among``: the kernels to consider,
    such as those that have changed; None means all of them. The actions on one kernel do not depend
    on other kernels.

    * Without orders (not connected since the start) there are no actions.
    * A kernel in the checkpoint is never created again, whatever its state. Its end is reported
      until the order is withdrawn; the manager decides whether another one starts.
    * UNKNOWN is not GONE: an UNKNOWN kernel is kept, and a kernel that an unlisted runtime may have
      is not created.
    * Terminations precede creations, so that a device is free before it is used again.
    * A running kernel is reloaded for a newer generation than the checkpoint has. A
      kernel created later starts with the current settings.
    * A running kernel is suspended or resumed if the checkpoint records the opposite. An adopted
      kernel may be either, so the order is carried out again.
    """
    if ordered is None:
        return []

    ends: list[Action] = []
    adoptions: list[Action] = []
    creations: list[Action] = []
    reloads: list[Action] = []
    for kernel_id in dict.fromkeys((*checkpoint, *observed, *ordered)) if among is None else among:
        known = checkpoint.get(kernel_id)
        spec = ordered.get(kernel_id)
        if spec is None:
            if known is None and kernel_id in observed:
                ends.append(Destroy(kernel_id))
            elif known is not None:
                state = observed.get(kernel_id, ObservedState.UNKNOWN)
                if state in ALIVE:
                    ends.append(Stop(kernel_id, known.stop_grace_s))
                elif state in ENDED:
                    ends.append(Remove(kernel_id))
        elif known is None and kernel_id in observed:
            # The record of its reload was also lost, so it reloads again.
            adoptions.append(
                Adopt(replace(spec, reload_generation=0, suspended=not spec.suspended))
            )
        elif known is None and spec.runtime not in unlisted:
            creations.append(Create(replace(spec, suspended=False) if spec.suspended else spec))
        elif known is not None and _is_otherwise(known, spec, observed.get(kernel_id)):
            reloads.append(Suspend(kernel_id, spec.suspended))
        elif known is not None and _is_outdated(known, spec, observed.get(kernel_id)):
            reloads.append(ReloadProgram(kernel_id, spec.reload_generation))

    return [*ends, *adoptions, *creations, *reloads]


def _is_otherwise(known: KernelSpec, wanted: KernelSpec, state: ObservedState | None) -> bool:
    return state is ObservedState.RUNNING and wanted.suspended is not known.suspended


def _is_outdated(known: KernelSpec, wanted: KernelSpec, state: ObservedState | None) -> bool:
    return state is ObservedState.RUNNING and wanted.reload_generation > known.reload_generation
