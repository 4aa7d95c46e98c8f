"""Catalog of mutations: known faults that the tests must find.

Text that the code no longer contains makes a mutation stale; rewrite it for the new code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """``before`` occurs exactly once in ``file`` (below src/moorage) and is replaced by ``after``. ``tests``
    are the pytest arguments of the tests that must fail."""

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]


PLANNER = ("tests/model",)
LIFECYCLE = ("tests/unit/manager",)

MUTATIONS = (
    Mutation(
        "a reservation admits whatever ends late",
        "manager/scheduling/backfill/reservation_guard.py",
        "ends_at <= self.starts_at",
        "ends_at <= self.starts_at + 5",
        PLANNER,
    ),
    Mutation(
        "a reservation forgets what it admitted",
        "manager/scheduling/backfill/reservation_guard.py",
        "self._expected()[0].deduct(allocations)",
        "pass",
        PLANNER,
    ),
    Mutation(
        "a held session takes what is short",
        "manager/scheduling/backfill/reservation_guard.py",
        "return all(after.free.get(slot, 0) >= needed[slot] for slot in taken)",
        "return True",
        PLANNER,
    ),
    Mutation(
        "quotas are not charged within a pass",
        "manager/scheduling/core/quotas.py",
        "remaining[index] -= amount",
        "remaining[index] -= 0",
        PLANNER,
    ),
    Mutation(
        "a quota admits one unit too much",
        "manager/scheduling/core/quotas.py",
        "if amount > remaining[index]:\n                    amounts",
        "if amount > remaining[index] + 1:\n                    amounts",
        PLANNER,
    ),
    Mutation(
        "an undone charge stays",
        "manager/scheduling/core/quotas.py",
        "remaining[index] += amount",
        "remaining[index] += 0",
        PLANNER,
    ),
    Mutation(
        "an overdue session may be overtaken",
        "manager/scheduling/core/order.py",
        "item.bypassed >= policy.max_bypasses",
        "item.bypassed > policy.max_bypasses",
        PLANNER,
    ),
    Mutation(
        "fair shares ignore placements of the pass",
        "manager/scheduling/core/order.py",
        "used[slot] = used.get(slot, 0) + amount\n\n    def __iter__",
        "used[slot] = used.get(slot, 0)\n\n    def __iter__",
        PLANNER,
    ),
    Mutation(
        "unhealthy devices become free",
        "manager/scheduling/placement/free_capacity.py",
        "if devices is not None and state.healthy:",
        "if devices is not None:",
        PLANNER,
    ),
    Mutation(
        "an allocated device stays free",
        "manager/scheduling/placement/free_capacity.py",
        "                    if allocate:\n                        devices.free[index] -= share",
        "                    if allocate:\n                        devices.free[index] -= 0",
        PLANNER,
    ),
    Mutation(
        "a copy of capacity shares its devices",
        "manager/scheduling/placement/free_capacity.py",
        "devices.free[:] = self._free_devices[name].free",
        "devices.free = self._free_devices[name].free",
        PLANNER,
    ),
    Mutation(
        "a cluster runs when one kernel runs",
        "manager/lifecycle/reconcile.py",
        "last, first = STATUS_ORDER[min(live)], STATUS_ORDER[max(live)]",
        "last, first = STATUS_ORDER[max(live)], STATUS_ORDER[max(live)]",
        LIFECYCLE,
    ),
    Mutation(
        "a program that ran is started again",
        "manager/lifecycle/reconcile.py",
        "if session.spec.type is SessionType.BATCH and reason in PROGRAM_FAILED:\n        return False",
        "if False:\n        return False",
        LIFECYCLE,
    ),
    Mutation(
        "retries have no limit",
        "manager/lifecycle/reconcile.py",
        "and session.requeues < session.spec.retries",
        "",
        LIFECYCLE,
    ),
    Mutation(
        "the backoff does not grow",
        "manager/lifecycle/reconcile.py",
        "spec.retry_backoff_s * 2.0**requeues",
        "spec.retry_backoff_s",
        LIFECYCLE,
    ),
    Mutation(
        "an agent obeys older orders",
        "agent/kernel/reconcile.py",
        "return orders.generation >= newest",
        "return True",
        ("tests/unit/agent/test_reconcile.py",),
    ),
    Mutation(
        "a kernel in the checkpoint is created again",
        "agent/kernel/reconcile.py",
        "new = [spec for kernel_id, spec in ordered.items() if kernel_id not in checkpoint]",
        "new = [spec for kernel_id, spec in ordered.items() if observed.get(kernel_id) not in ALIVE]",
        ("tests/unit/agent/test_reconcile.py",),
    ),
    Mutation(
        "unknown counts as gone",
        "agent/kernel/reconcile.py",
        "ENDED = frozenset({ObservedState.EXITED, ObservedState.GONE})",
        "ENDED = frozenset({ObservedState.EXITED, ObservedState.GONE, ObservedState.UNKNOWN})",
        ("tests/unit/agent/test_reconcile.py",),
    ),
)
