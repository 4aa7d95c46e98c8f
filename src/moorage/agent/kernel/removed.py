"""Kernels that were removed a while ago, as they were reported last.

A manager orders the removal of an ended kernel once its end is stored. If its database then loses
that, as by a failover to a standby that lacked the last commits, it believes that the kernel runs,
or never started. So each full report tells the end of such kernels once more; a manager that knows
it ignores that.
"""

from __future__ import annotations

from collections import OrderedDict

from moorage.common.link.messages import Observation
from moorage.common.model.ids import KernelId

KEPT_S = 600.0
KEPT = 200


class RemovedKernels:
    """``now``: monotonic seconds."""

    def __init__(self) -> None:
        self._removed: OrderedDict[KernelId, tuple[float, Observation]] = OrderedDict()

    def add(self, seen: Observation, now: float) -> None:
        self._removed[seen.kernel_id] = now, seen
        while len(self._removed) > KEPT:
            self._removed.popitem(last=False)

    def recent(self, now: float) -> dict[KernelId, Observation]:
        while self._removed and now - next(iter(self._removed.values()))[0] > KEPT_S:
            self._removed.popitem(last=False)
        return {kernel_id: seen for kernel_id, (_, seen) in self._removed.items()}
