"""Qualities of service in Postgres."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Text

from moorage.common.model.errors import NotFound
from moorage.common.model.paging import FIRST, Paging
from moorage.common.model.qos import QosOptions
from moorage.common.views.resources import Page, QosView
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.cursors import Listing
from moorage.manager.store.database.notifier import Notifier, Topic
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.unreadable import UnreadableRows, read_one, read_page
from moorage.manager.store.database.versions import Versions, check_version, sent
from moorage.manager.store.schema.base import TIME

_LISTING = Listing(
    SQL["qos_list"],
    {"name": Text(), "changed_at": TIME},
    sorts=("name", "changed_at"),
    key=("name",),
    default="name",
)


class QosStore:
    def __init__(self, db: Database, notifier: Notifier, unreadable: UnreadableRows) -> None:
        self._db = db
        self._notifier = notifier
        self._unreadable = unreadable
        self._connection = db.shared_connection(Purpose.ADMINISTRATION)

    async def page(self, scope: Scope, paging: Paging = FIRST) -> Page[QosView]:
        """Page of those that one of the caller's projects may use."""
        rows, following = await _LISTING.page(self._db, paging, None, scope.projects)
        return read_page(QosView, "QoS", rows=rows, read=_view, following=following)

    async def get(self, scope: Scope, name: str) -> QosView:
        """Get a QoS that one of the caller's projects may use. Raises ``NotFound``."""
        rows = await self._db.fetch(SQL["qos_list"], name, scope.projects)
        if not rows:
            raise NotFound(f"no QoS {name!r}", next_step="`moorage qos list` lists them")
        return read_one("QoS", name, rows[0], _view)

    async def of_project(self, project: str) -> list[str]:
        """Names of those that a project may use."""
        rows = await self._db.fetch(SQL["qos_list"], None, [project])
        return sorted(row["name"] for row in rows)

    async def put(
        self, scope: Scope, name: str, options: QosOptions, *, if_match: Versions = None
    ) -> QosView:
        """Set all options. ``if_match``: the versions that it may have now. Limits on placed
        sessions take effect in the next scheduling pass. Raises ``PreconditionFailed`` for another
        version."""
        scope.require_all("qos")
        args = (
            name,
            options.description,
            options.projects,
            options.priority,
            options.preemptible,
            options.price_factor,
            options.max_time_s,
            options.max_per_session,
            options.max_per_user,
            options.max_running_per_user,
            options.max_total,
            options.max_running,
            scope.actor,
            sent(if_match),
        )
        if not await self._connection.fetch(SQL["qos_put"], *args):
            await self._check(scope, name, if_match)

        self._notifier.notify([Topic.SCHEDULE])
        return await self.get(scope, name)

    async def delete(self, scope: Scope, name: str, *, if_match: Versions = None) -> QosView:
        """Delete a QoS and return its last state.

        Raises ``NotFound``, ``PreconditionFailed`` for a version not in ``if_match``, and
        ``Conflict`` while live sessions use it."""
        scope.require_all("qos")
        view = await self.get(scope, name)
        if not await self._connection.fetch(SQL["qos_delete"], name, sent(if_match)):
            await self._check(scope, name, if_match)
            raise NotFound(f"no QoS {name!r}", next_step="`moorage qos list` lists them")

        self._notifier.notify([Topic.SCHEDULE])
        return view

    async def _check(self, scope: Scope, name: str, if_match: Versions) -> None:
        rows = await self._db.fetch(SQL["qos_list"], name, scope.projects)
        check_version(f"QoS {name!r}", rows[0]["version"] if rows else None, if_match)


def _view(row: Mapping[str, Any]) -> QosView:
    return QosView.model_validate(dict(row))
