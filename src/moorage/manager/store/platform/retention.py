"""Deletion of expired rows, in batches that each lock few rows, and only for a moment.

Every method deletes at most ``BATCH`` rows and returns their number, which is 0 if nothing is left
to delete now. All methods share a connection that no request waits for.
"""

from __future__ import annotations

from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.queries import SQL

BATCH = 500
# How long an Idempotency-Key protects a create. This is far longer than any client retries.
IDEMPOTENCY_KEYS_KEPT_S = 86_400.0

# How long the lines of a task list are kept for the session that is being created with them.
TASK_LISTS_KEPT_S = 86_400.0


class RetentionStore:
    def __init__(self, db: Database) -> None:
        self._connection = db.shared_connection(Purpose.UPKEEP)

    async def delete_sessions(self, kept_s: float) -> int:
        """Delete sessions that ended ``kept_s`` seconds ago, with everything that belongs to them.
        A session is deleted after those that depend on it, once its allocations have been released
        and, if it is a step, together with its pipeline."""
        await self._connection.fetch(SQL["pipelines_delete_ended"], kept_s, BATCH)
        return len(await self._connection.fetch(SQL["sessions_delete_ended"], kept_s, BATCH))

    async def delete_idempotency_keys(self) -> int:
        """Delete keys older than ``IDEMPOTENCY_KEYS_KEPT_S``."""
        limits = IDEMPOTENCY_KEYS_KEPT_S, BATCH
        found = await self._connection.fetch(SQL["idempotency_delete_old"], *limits)
        return len(found) + len(
            await self._connection.fetch(SQL["endpoint_keys_delete_old"], *limits)
        )

    async def delete_audit(self, kept_s: float) -> int:
        """Delete entries of the audit log that are older than ``kept_s`` seconds."""
        return len(await self._connection.fetch(SQL["audit_delete_old"], kept_s, BATCH))

    async def delete_model_names(self) -> int:
        """Delete model names that no longer belong to a project, because nobody uses them."""
        return len(await self._connection.fetch(SQL["model_names_delete_old"], BATCH))

    async def delete_task_lists(self) -> int:
        """Delete the lines of task lists that no session uses."""
        found = await self._connection.fetch(SQL["task_lists_delete_old"], TASK_LISTS_KEPT_S, BATCH)
        return len(found)

    async def delete_limit_shares(self) -> int:
        """Delete the proxies' usage of limits that have not been used for an hour."""
        return len(await self._connection.fetch(SQL["limit_shares_delete_ended"], BATCH))

    async def delete_agents(self) -> int:
        """Delete forgotten agents whose kernels have been deleted with their sessions."""
        return len(await self._connection.fetch(SQL["agents_delete_forgotten"], BATCH))
