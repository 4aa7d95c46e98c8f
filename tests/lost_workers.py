"""Distribution of cases that survives the death of a worker.

With pytest-xdist 3.8, the whole run waits forever after a worker has died under ``--dist loadfile``
or ``loadgroup`` (its issues 1323, 1327 and 1378, fixed there after this release). These schedulers
can be removed when a release has the fixes; ``tests/gate/test_lost_workers.py`` shows whether it
does.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling, LoadGroupScheduling, LoadScopeScheduling
from xdist.workermanage import WorkerController


class _LostWorkers(LoadScopeScheduling):
    def remove_node(self, node: WorkerController) -> str | None:
        """Give the cases that a dead worker has not run to others, except the case that killed it,
        which has failed. Units without open cases must not return to the queue, since a worker that
        gets nothing but such a unit never asks for more."""
        units = self.assigned_work[node]
        lost = None
        for scope, unit in list(units.items()):
            for case, completed in unit.items():
                if not completed and lost is None:
                    lost = case

            units[scope] = {case: done or case == lost for case, done in unit.items()}

        if lost is None:
            return super().remove_node(node)

        self.assigned_work.pop(node)
        for scope, unit in units.items():
            if not all(unit.values()):
                self.workqueue[scope] = unit

        for other in self.assigned_work:
            self._reschedule(other)

        return lost

    def _reschedule(self, node: WorkerController) -> None:
        """Give a worker two cases at least: it runs one only when it has the next one, or when it
        knows that none will come."""
        if node.shutting_down or node not in self.registered_collections:
            return  # The latter replaces another worker and has not collected its cases yet.

        while self.workqueue and self._pending_of(self.assigned_work[node]) <= 2:
            self._assign_work_unit(node)

        if not self.workqueue:
            node.shutdown()


class _ByFile(_LostWorkers, LoadFileScheduling):
    pass


class _ByGroup(_LostWorkers, LoadGroupScheduling):
    pass


def make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """The scheduler for ``--dist loadfile`` and ``loadgroup``; None for others."""
    schedulers = {"loadfile": _ByFile, "loadgroup": _ByGroup}
    scheduler = schedulers.get(config.getvalue("dist"))
    return scheduler(config, log) if scheduler else None
