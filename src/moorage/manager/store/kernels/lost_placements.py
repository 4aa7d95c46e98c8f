"""Ends of kernels whose placement the database has lost, for example by a failover to a standby
that lacked it.

Such a session is PENDING again, although its agent has run it, or still runs it. Its program must
not run a second time unnoticed, so the end that the agent reports becomes the end of the session.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import structlog

from moorage.common.model.ids import SessionId
from moorage.common.model.status import ObservedState, Status
from moorage.manager.lifecycle.kernels import AgentUpdate, next_kernel_status
from moorage.manager.store.database.connections import DedicatedConnection
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL

log = structlog.get_logger("moorage.store.reports")
_ENDED = (ObservedState.EXITED, ObservedState.GONE)


class LostPlacements:
    """``keep_unknown``: kernels that the database does not know run to completion, and the way in
    which they end counts as the result."""

    def __init__(
        self, connection: DedicatedConnection, notifier: Notifier, *, keep_unknown: bool
    ) -> None:
        self._connection = connection
        self._notifier = notifier
        self._keep_unknown = keep_unknown

    async def settle(self, updates: Sequence[AgentUpdate]) -> None:
        """Record the ends that these agents report. Call it before the agents are registered as
        ready: until then, the sessions are not placed. Repeating it changes nothing."""
        ends = [
            (u.agent_id, seen)
            for u in updates
            for seen in u.observed.values()
            if seen.state in _ENDED
        ]
        if not ends:
            return

        rows = await self._connection.fetch(
            SQL["lost_placements_settle"],
            [seen.kernel_id for _, seen in ends],
            [agent_id for agent_id, _ in ends],
            [next_kernel_status(Status.SCHEDULED, seen) for _, seen in ends],
            [seen.state for _, seen in ends],
            [seen.exit_code for _, seen in ends],
            [seen.reason for _, seen in ends],
            [seen.detail for _, seen in ends],
            [seen.log_tail for _, seen in ends],
            self._keep_unknown,
        )
        if rows:
            self._announce([SessionId(row["id"]) for row in rows if row["adopted"]], len(rows))
            self._notifier.notify_pending({SessionId(row["id"]) for row in rows})

    def _announce(self, adopted: Collection[SessionId], settled: int) -> None:
        log.warning(
            "the database had lost the placement of sessions that have run",
            ended=sorted(adopted),
            run_again=settled - len(adopted),
        )
        self._notifier.notify_sessions(adopted)
        self._notifier.notify_kernels(adopted)
