"""Kernels on silent agents that end by themselves because of their lease or the walltime of their
job."""

from __future__ import annotations

from collections.abc import Sequence

from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.manager.lifecycle.kernel_leases import LeasedKernel
from moorage.manager.lifecycle.walltimes import WalltimeKernel
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row
from moorage.manager.store.database.unreadable import UnreadableRows


class KernelLeaseStore:
    def __init__(self, db: Database, notifier: Notifier, unreadable: UnreadableRows) -> None:
        self._connection = db.dedicated_connection()
        self._notifier = notifier
        self._unreadable = unreadable

    async def on_silent_agents(self) -> list[LeasedKernel]:
        """Live kernels with a lease on agents that are SUSPECT or LOST, provided that the end of
        the lease is known."""
        rows = await self._connection.fetch(SQL["kernel_leases"])
        return self._unreadable.each("kernel", rows, _leased)

    async def with_walltime(self) -> list[WalltimeKernel]:
        """Live kernels on agents that are SUSPECT or LOST whose jobs end at a walltime."""
        return [
            WalltimeKernel(
                KernelId(row["id"]),
                AgentId(row["agent_id"]),
                contact=row["last_seen"],
                ends_at=row["ends_at"],
                now=row["now"],
            )
            for row in await self._connection.fetch(SQL["kernel_walltimes"])
        ]

    async def expire(
        self,
        kernels: Sequence[LeasedKernel | WalltimeKernel],
        term: int,
        reason: Reason = Reason.LEASE_EXPIRED,
        detail: str = "",
    ) -> int:
        """Record that these kernels have ended, unless their agent has reported since. Requires the
        leader's term. Returns their number."""
        rows = await self._connection.fetch(
            SQL["kernel_leases_expire"],
            [k.kernel_id for k in kernels],
            [k.agent_id for k in kernels],
            [k.contact for k in kernels],
            term,
            reason,
            detail,
        )
        sessions = {SessionId(row["session_id"]) for row in rows}
        self._notifier.notify_kernels(sessions)
        self._notifier.notify_routes(sessions)
        self._notifier.notify_pending(sessions)  # a new attempt may have been waiting for this

        return len(rows)


def _leased(row: Row) -> LeasedKernel:
    lease_s = float(row["lease_s"])
    stop_grace_s = float(row["stop_s"])
    return LeasedKernel(
        KernelId(row["id"]),
        AgentId(row["agent_id"]),
        contact=row["last_seen"],
        lease_s=lease_s,
        stop_grace_s=stop_grace_s,
    )
