"""Connector: opens connections to the Postgres that accepts writes, among the hosts of a URL."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from moorage.manager.store.database.connection_settings import apply_settings
from moorage.manager.store.database.lineage import FormerPrimary, LineageGuard
from moorage.manager.store.database.type_cache import TypeCachingConnection

SynchronousCommit = Literal["server", "on", "remote_apply", "remote_write", "local"]


def each_host(dsn: str) -> list[str]:
    """One URL for each of its hosts. Hosts in the query stay together."""
    parts = urlsplit(dsn)
    if "," not in parts.netloc:
        return [dsn]
    user, at, hosts = parts.netloc.rpartition("@")
    return [urlunsplit(parts._replace(netloc=f"{user}{at}{host}")) for host in hosts.split(",")]


class DatabaseConnector:
    """``guard`` checks every new connection; None means no checks. ``synchronous_commit``: what
    durable commits wait for; ``server``: the server's setting."""

    def __init__(
        self,
        dsn: str,
        *,
        guard: LineageGuard | None = None,
        synchronous_commit: SynchronousCommit = "server",
        target_session_attrs: Literal["read-write", "primary"] = "read-write",
    ) -> None:
        self.dsn = dsn
        self.guard = guard
        self._surveyed = False
        self._options: dict[str, Any] = {
            "target_session_attrs": target_session_attrs,
            "connection_class": TypeCachingConnection,
        }
        self._settings: dict[str, str] = {}
        if synchronous_commit != "server":
            self._settings["synchronous_commit"] = synchronous_commit

    async def connect(self, settings: Mapping[str, str], **options: Any) -> asyncpg.Connection:
        """Open a connection with these settings.

        Raises ``FormerPrimary`` if only former primaries accept writes, and asyncpg's errors."""
        if self.guard is not None and not self._surveyed:
            await self._survey(self.guard, options)

        try:
            return await self._connect(self.dsn, settings, options)
        except FormerPrimary:
            # asyncpg uses the first host that accepts writes; a later one may be the primary.
            hosts = each_host(self.dsn)
            for dsn in hosts if len(hosts) > 1 else ():
                with suppress(
                    OSError,
                    asyncpg.PostgresError,
                    asyncpg.TargetServerAttributeNotMatched,
                    FormerPrimary,
                ):
                    return await self._connect(dsn, settings, options)

            raise

    async def _survey(self, guard: LineageGuard, options: Mapping[str, Any]) -> None:
        """Examine all hosts before this process first connects, because their timelines reveal any
        failover that it missed."""
        hosts = each_host(self.dsn)
        for dsn in hosts if len(hosts) > 1 else ():
            with suppress(OSError, asyncpg.PostgresError, asyncpg.TargetServerAttributeNotMatched):
                connection = await asyncpg.connect(dsn, **self._options | dict(options))
                try:
                    await guard.compare(connection)
                finally:
                    connection.terminate()

        self._surveyed = True

    async def _connect(
        self, dsn: str, settings: Mapping[str, str], options: Mapping[str, Any]
    ) -> asyncpg.Connection:
        connection = await asyncpg.connect(dsn, **self._options | dict(options))
        try:
            await apply_settings(connection, self._settings | dict(settings))
            if self.guard is not None:
                await self.guard.check(connection)
        except BaseException:
            connection.terminate()
            raise

        return connection
