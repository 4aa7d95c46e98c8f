"""Recently removed kernels, with their last report.

A manager orders the removal of an ended kernel once its end is stored. If the manager's database
then loses the end, for example in a failover to a standby without the last commits, the manager
believes that the kernel is running or never started. Each full report therefore repeats the end of
such kernels. A manager that already knows of it ignores the repetition.
"""

from __future__ import annotations

from collections import OrderedDict

from moorage.common.link.messages import Observation
from moorage.common.model.ids import KernelId

KEPT_S = 600.0
KEPT = 200


class RemovedKernels:
    """Removed kernels. ``now`` is in monotonic seconds."""

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
