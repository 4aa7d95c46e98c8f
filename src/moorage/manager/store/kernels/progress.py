"""Progress of programs in Postgres. It is only for display; no decision depends on it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from moorage.common.model.ids import AgentId, SessionId
from moorage.common.model.resource_usage import KernelProgress
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LARGEST = (1 << 53) - 1
_TEXT = 500


class ProgressStore:
    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._notifier = notifier
        # agents report again what a crash loses
        self._connection = db.dedicated_connection(durable=False)

    async def put(self, progress: Sequence[tuple[AgentId, KernelProgress]]) -> None:
        """Write progress, each with the agent that reports it; at most one per kernel.

        Impossible reports are omitted, because they would make the writes of other agents' reports
        fail."""
        usable = [
            (agent_id, report)
            for agent_id, report in progress
            if "\0" not in agent_id and _is_storable(report)
        ]
        if not usable:
            return

        rows = await self._connection.fetch(
            SQL["progress_put"],
            [agent_id for agent_id, _ in usable],
            [report.kernel_id for _, report in usable],
            [report.fraction for _, report in usable],
            [report.step for _, report in usable],
            [report.of for _, report in usable],
            [report.message[:_TEXT] for _, report in usable],
            [report.problem[:_TEXT] for _, report in usable],
        )
        self._notifier.notify_sessions({SessionId(row["session_id"]) for row in rows})


def _is_storable(report: KernelProgress) -> bool:
    fraction = report.fraction
    counts = (report.step, report.of)
    return (
        _ID.fullmatch(report.kernel_id) is not None
        and (fraction is None or (math.isfinite(fraction) and 0 <= fraction <= 1))
        and all(count is None or 0 <= count <= _LARGEST for count in counts)
        and "\0" not in report.message + report.problem
    )
