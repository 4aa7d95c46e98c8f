"""Session templates in Postgres: versions for one project or for all projects."""

from __future__ import annotations

from typing import Any

import asyncpg
from sqlalchemy import Integer, Text

from moorage.common.model.errors import Conflict, NotFound
from moorage.common.model.paging import FIRST, Paging
from moorage.common.model.templates import TemplateSpec
from moorage.common.views.resources import Page
from moorage.common.views.templates import TemplateView
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.cursors import Listing
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row
from moorage.manager.store.database.unreadable import read_one, read_page
from moorage.manager.store.database.versions import Versions, check_version, sent
from moorage.manager.store.schema.base import TIME

_COLUMNS = {"project": Text(), "name": Text(), "version": Integer(), "created_at": TIME}
_LISTING = Listing(
    SQL["template_list"], _COLUMNS, sorts=("name", "created_at"), key=("name",), default="name"
)
_VERSIONS = Listing(
    SQL["template_list"], _COLUMNS, sorts=("version",), key=("version",), default="-version"
)


class TemplateStore:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def put(
        self,
        scope: Scope,
        name: str,
        template: TemplateSpec,
        bases: list[str],
        *,
        for_all: bool,
        isolated: bool = False,
        if_match: Versions = None,
    ) -> TemplateView:
        """Add a version, in the owner's project or for all projects. An unchanged template adds
        none. ``isolated``: one of its bases was written by someone who is not an administrator.
        ``if_match``: the versions that the latest one may have.

        Raises ``PreconditionFailed`` for another version, and ``Conflict`` when someone else added
        one at the same time.
        """
        project = _project(scope, for_all)
        body = template.model_dump_json(exclude_unset=True)
        try:
            rows = await self._db.fetch(
                SQL["template_put"],
                project,
                name,
                body,
                bases,
                scope.actor,
                sent(if_match),
                scope.owner.isolated or isolated,
            )
        except asyncpg.UniqueViolationError:
            await self._check_latest(project, name, if_match)
            raise Conflict(
                f"another version of template {name!r} was added at the same time",
                next_step="try again",
            ) from None

        if not rows:
            await self._check_latest(project, name, if_match)
            raise Conflict(
                f"template {name!r} has changed in the meantime", next_step="read it again"
            )

        return _view(rows[0])

    async def _check_latest(self, project: str, name: str, if_match: Versions) -> None:
        row = await self._db.fetchrow(SQL["template_find"], project, name, None)
        is_own = row is not None and row["project"] == project
        check_version(f"template {name!r}", row["version"] if is_own else None, if_match)

    async def get(self, scope: Scope, name: str, version: int | None = None) -> TemplateView:
        """Get a version, the latest by default, from the owner's project or, failing that, from the
        templates for all projects.

        Raises ``NotFound``, and ``Conflict`` for one that needs a newer manager."""
        return read_one("template", name, await self._find(scope, name, version), _view)

    async def _find(self, scope: Scope, name: str, version: int | None) -> Row:
        row: Row | None = await self._db.fetchrow(
            SQL["template_find"], scope.owner.project, name, version
        )
        if row is None:
            raise _not_found(scope.owner.project, name, version)
        return row

    async def page(
        self, scope: Scope, paging: Paging = FIRST, *, project: str | None = None
    ) -> Page[TemplateView]:
        """Page of templates, each in its latest version. ``project``: only those of this project;
        empty means those for all projects."""
        rows, following = await _LISTING.page(
            self._db, paging, scope.owner.project, None, only={"project": project}
        )
        return read_page(TemplateView, "template", rows=rows, read=_view, following=following)

    async def versions(self, scope: Scope, name: str, paging: Paging = FIRST) -> Page[TemplateView]:
        """All versions of a template, newest first. Raises ``NotFound``."""
        await self._find(scope, name, None)
        rows, following = await _VERSIONS.page(self._db, paging, scope.owner.project, name)
        return read_page(
            TemplateView, "version", rows=rows, read=_view, following=following, name="version"
        )

    async def delete(self, scope: Scope, name: str, *, for_all: bool) -> TemplateView:
        """Delete all versions of a template; sessions created from it stay. Returns the latest
        version. Raises ``NotFound``."""
        project = _project(scope, for_all)
        rows = await self._db.fetch(SQL["template_delete"], project, name)
        if not rows:
            raise _not_found(project, name, None)
        return read_one(
            "template", name, max(rows, key=lambda row: row["version"]), _view, done="was deleted"
        )


def _project(scope: Scope, for_all: bool) -> str:
    return "" if for_all else scope.owner.project


def _view(row: Any) -> TemplateView:
    return TemplateView(
        name=row["name"],
        version=row["version"],
        project=row["project"],
        template=TemplateSpec.model_validate_json(row["body"]),
        bases=row["bases"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        isolated=row["isolated"],
    )


def _not_found(project: str, name: str, version: int | None) -> NotFound:
    what = name if version is None else f"{name}@{version}"
    where = f"project {project!r} has" if project else "there is"
    return NotFound(f"{where} no template {what!r}", next_step="`moorage templates` lists them")
