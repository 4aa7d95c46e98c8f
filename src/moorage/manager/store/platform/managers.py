"""Managers in Postgres: their presence, their addresses, and the agents connected to each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from moorage import __version__
from moorage.common.model.ids import AgentId
from moorage.common.views.managers import ManagerView
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.notifier import Notifier, Topic
from moorage.manager.store.database.queries import SQL


@dataclass(frozen=True, slots=True)
class ManagerRow:
    """``link``: its gRPC address. ``agents``: those connected to it."""

    id: str
    link: str
    agents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ManagerBeat:
    """A manager as its last beat shows it.

    The link counts are its own; None if it runs the previous release. ``dialout``: addresses at
    which its proxies accept connections from agents that only dial out."""

    id: str
    link: str
    beat: int
    agent_links: int | None = None
    proxy_links: int | None = None
    dialout: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class DatabaseIdentity:
    """``installation``: an id that backups and standbys preserve. ``copy``: changes with each
    restore. ``system`` and ``timeline``: as in ``lineage``."""

    installation: str
    copy: str
    system: str
    timeline: int


class ManagerStore:
    """``own_id``: the id of this manager process."""

    def __init__(self, db: Database, notifier: Notifier, own_id: str) -> None:
        self._db = db
        self._notifier = notifier
        self.own_id = own_id
        self._connection = db.dedicated_connection(durable=False)

    async def beat(
        self,
        link: str,
        proxies: Collection[str],
        dialout: Sequence[str],
        agent_links: int,
        *,
        proxy_links: int,
        now: datetime,
        asks: Mapping[str, Sequence[str]] | None = None,
        plain_senders: Mapping[str, Sequence[str]] | None = None,
    ) -> list[ManagerBeat]:
        """Record this manager's heartbeat, at ``now`` by its own clock. ``asks``: addresses of
        agents that do not answer, by the name of the proxy that tries them. ``plain_senders``:
        senders of secrets over loopback without TLS, by kind. Returns all managers with their
        previous beats."""
        own = (
            self.own_id,
            link,
            __version__,
            sorted(proxies),
            agent_links,
            proxy_links,
            now.timestamp(),
        )
        rows = await self._connection.fetch(
            SQL["manager_beat"], *own, dialout, asks or {}, plain_senders or {}
        )
        return [ManagerBeat(**row) for row in rows]

    async def remove(self, ids: Collection[str]) -> list[AgentId]:
        """Remove managers that have stopped. Returns the agents that were connected to them."""
        rows = await self._connection.fetch(SQL["managers_remove"], list(ids))
        # Their last writes may never have been announced.
        self._notifier.notify(
            [Topic.KERNELS, Topic.PENDING, Topic.QUOTAS, Topic.ENDPOINTS, Topic.ROUTES]
        )
        return self._detached(rows)

    async def detach(self, streams: Mapping[AgentId, int]) -> list[AgentId]:
        """Record that these agents' streams to this manager have ended. Returns the agents that are
        left without a connection."""
        rows = await self._connection.fetch(
            SQL["agents_detach"], list(streams), list(streams.values()), self.own_id
        )
        return self._detached(rows)

    def _detached(self, rows: Collection[Mapping[str, str]]) -> list[AgentId]:
        agents = [AgentId(row["id"]) for row in rows]
        self._notifier.notify_capacity(agents, freed=False)
        return agents

    async def all(self) -> list[ManagerRow]:
        """All managers with the agents connected to each, oldest first."""
        rows = await self._db.fetch(SQL["managers_list"])
        return [ManagerRow(row["id"], row["link"], tuple(row["agents"])) for row in rows]

    async def views(self) -> list[ManagerView]:
        """All managers as the API shows them, oldest first."""
        rows = await self._db.fetch(SQL["managers_show"])
        return [
            ManagerView(**row, leader=row["term"] is not None, answers=row["id"] == self.own_id)
            for row in rows
        ]

    async def identity(self) -> DatabaseIdentity:
        """The identity of the database that this manager uses."""
        row = await self._db.fetchrow(SQL["lineage_identity"])
        return DatabaseIdentity(**row)

    async def installation(self) -> str:
        """Permanent id of the installation; empty if no manager has used the database yet."""
        row = await self._db.fetchrow(SQL["lineage_identity"])
        return "" if row is None else str(row["installation"])

    async def address_of_agent(self, agent_id: str) -> tuple[str, str]:
        """The address at which the agent's kernels were last reached, and why it dialed out. Both
        are empty for a new agent."""
        row = await self._db.fetchrow(SQL["agent_address"], agent_id)
        return ("", "") if row is None else (row["address"], row["reach_why"])

    async def of_agent(self, agent_id: str) -> ManagerRow | None:
        """The manager that the agent is connected to, or None."""
        row = await self._db.fetchrow(SQL["manager_of_agent"], agent_id)
        return None if row is None else ManagerRow(row["id"], row["link"])
