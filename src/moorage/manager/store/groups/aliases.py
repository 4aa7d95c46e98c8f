"""Renaming of resource groups, and the aliases that their former names become (decision 35)."""

from __future__ import annotations

from collections.abc import Mapping

import asyncpg

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import Conflict, NotFound, StoreUnavailable
from moorage.common.model.ids import AgentId, SessionId
from moorage.common.views.resources import GroupView
from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.notifier import Notifier, Topic
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.versions import Versions, check_version, sent
from moorage.manager.store.groups.repository import GroupStore

# A manager learns of changes immediately; this interval covers lost notifications.
CACHED_S = 5.0
# How many rows of each kind one statement moves to the current name.
BATCH = 1000
# How often to attempt a rename that waits too long for another lock.
ATTEMPTS = 3
# Topics that depend on the name of a session's or agent's group. ``KEYS`` is included because keys
# list groups.
_DEPENDENT = (
    Topic.PENDING,
    Topic.CAPACITY,
    Topic.QUOTAS,
    Topic.SESSIONS,
    Topic.ENDPOINTS,
    Topic.ROUTES,
    Topic.KEYS,
)
_LOCKED = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)


class GroupAliases:
    def __init__(self, db: Database, notifier: Notifier, clock: Clock, groups: GroupStore) -> None:
        self._db = db
        self._notifier = notifier
        self._clock = clock
        self._groups = groups
        self._connection = db.shared_connection(Purpose.ADMINISTRATION)
        self._names: Mapping[str, str] = {}
        self._until = 0.0
        notifier.on_groups(self._forget)

    def _forget(self, _: object) -> None:
        self._until = 0.0

    async def names(self) -> Mapping[str, str]:
        """Current group name by alias. Cached, because every request needs it."""
        if self._clock.monotonic() >= self._until:
            until = self._clock.monotonic() + CACHED_S
            rows = await self._db.fetch(SQL["group_aliases"])
            self._names = {row["name"]: row["renamed_to"] for row in rows}
            self._until = until
        return self._names

    async def current(self, name: str) -> str:
        """Name of the group that ``name`` refers to."""
        return (await self.names()).get(name, name)

    async def rename(
        self, name: str, to: str, *, actor: str, if_match: Versions = None
    ) -> GroupView:
        """Rename a group; its former name stays as an alias. Sessions, agents and endpoints
        continue. ``if_match``: the versions that it may have now.

        Raises ``NotFound``, ``PreconditionFailed``, ``Conflict`` for a name that is taken, and
        ``StoreUnavailable`` if another session keeps the group locked.
        """
        before = await self._groups.get(name)
        check_version(f"resource group {before.name!r}", before.version, if_match)

        if before.name != name:
            raise Conflict(
                f"resource group {name!r} is now {before.name!r}",
                next_step=f"rename {before.name!r}",
            )

        if to == name:
            raise Conflict(
                f"the resource group is already named {to!r}", next_step="choose another name"
            )

        outcome = await self._try_rename(name, to, if_match, actor)
        if outcome == "taken":
            raise await self._taken(to)

        if outcome == "changed":
            now = await self._groups.get(name)
            check_version(f"resource group {now.name!r}", now.version, if_match)
            raise Conflict(
                f"resource group {name!r} is now {now.name!r}", next_step=f"rename {now.name!r}"
            )

        self._notify(name, to)
        return await self._groups.get(to)

    async def _try_rename(self, name: str, to: str, if_match: Versions, actor: str) -> str:
        for attempt in range(ATTEMPTS):
            try:
                [row] = await self._connection.fetch(
                    SQL["group_rename"], name, to, sent(if_match), actor
                )
                return str(row["outcome"])
            except _LOCKED as error:
                if attempt == ATTEMPTS - 1:
                    raise StoreUnavailable(
                        f"resource group {name!r} was not renamed: another session keeps its rows "
                        "locked",
                        next_step=(
                            "try again in a moment; pg_stat_activity shows which sessions hold "
                            "locks"
                        ),
                    ) from error

        raise AssertionError

    async def _taken(self, name: str) -> Conflict:
        owner = (await self._groups.get(name)).name
        if owner == name:
            return Conflict(f"there is a resource group {name!r}", next_step="choose another name")
        return Conflict(
            f"{name!r} is an alias of resource group {owner!r}",
            next_step=f"choose another name, or release this one: `moorage groups forget {name}`",
        )

    def _notify(self, *names: str) -> None:
        for name in names:
            self._notifier.notify_group(name)
        self._notifier.notify(_DEPENDENT)

    async def settle(self) -> int:
        """Replace aliases with the current name in history, and in late sessions and agents, for a
        bounded number of rows.

        Returns their number, which is 0 once nothing is left."""
        try:
            [row] = await self._connection.fetch(SQL["group_settle"], BATCH)
        except _LOCKED:
            return 0  # in the next iteration

        if row["live"]:
            self._notifier.notify_pending([SessionId(session_id) for session_id in row["live"]])
            self._notifier.notify_quotas([SessionId(session_id) for session_id in row["live"]])

        self._notifier.notify_capacity([AgentId(agent) for agent in row["agents"]])
        return int(row["moved"])

    async def release(self, alias: str) -> GroupView:
        """Release a former name of a group. Returns the group.

        Raises ``NotFound``, and ``Conflict`` while that name is in use."""
        view = await self._groups.get(alias)
        if view.name == alias:
            raise NotFound(
                f"{alias!r} is not a former name of a resource group",
                next_step="`moorage groups describe NAME` lists the aliases of a group",
            )

        [row] = await self._connection.fetch(SQL["group_alias_release"], alias)
        if not row["released"]:
            users = [
                f"{row[kind]} {kind}" for kind in ("agents", "templates", "sessions") if row[kind]
            ]
            raise Conflict(
                f"the alias {alias!r} of resource group {view.name!r} is in use by "
                f"{', '.join(users)}",
                next_step=(
                    f"configure {view.name!r} there (agents: agent.resource_group), then try again"
                ),
            )

        self._notify(alias, view.name)
        return await self._groups.get(view.name)
