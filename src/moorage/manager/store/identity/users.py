"""Users and projects in Postgres, with the members of projects. They are never renamed, because
histories and usage name them, and are deleted only while nothing does; all others can be archived.
Triggers enforce this (``require_owner``, ``refuse_archiving_in_use``, ``delete_only_empty``)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Text

from moorage.common.model.errors import Conflict, NotFound
from moorage.common.model.paging import FIRST, Paging
from moorage.common.model.roles import MemberRole
from moorage.common.views.identity import (
    MemberView,
    ProjectPatch,
    ProjectSpec,
    ProjectView,
    UserPatch,
    UserSpec,
    UserView,
)
from moorage.common.views.resources import Page
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.cursors import Listing
from moorage.manager.store.database.notifier import Notifier, Topic
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.unreadable import read_one, read_page
from moorage.manager.store.database.versions import Versions, check_version, sent
from moorage.manager.store.schema.base import TIME

_NAMED = {"name": Text(), "status": Text(), "created_at": TIME}
_USERS = Listing(
    SQL["user_list"], _NAMED, sorts=("name", "created_at"), key=("name",), default="name"
)
_PROJECTS = Listing(
    SQL["project_list"], _NAMED, sorts=("name", "created_at"), key=("name",), default="name"
)
_MEMBERS = Listing(
    SQL["member_list"],
    {"user": Text(), "role": Text(), "changed_at": TIME},
    sorts=("user", "changed_at"),
    key=("user",),
    default="user",
)


class UserStore:
    """Users belong to no project, so only a scope that covers all projects sees them."""

    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier

    async def create(self, scope: Scope, spec: UserSpec) -> UserView:
        """Create a user. Raises ``Conflict`` for a name that is taken."""
        scope.require_all("users")
        args = spec.name, spec.email, spec.status, spec.platform_role, scope.actor
        if not await self._db.fetch(SQL["user_create"], *args):
            raise _taken("user", spec.name, (await self.get(scope, spec.name)).archived_at)
        return await self.get(scope, spec.name)

    async def page(
        self,
        scope: Scope,
        paging: Paging = FIRST,
        *,
        status: str | None = None,
        archived: bool = False,
    ) -> Page[UserView]:
        """Users. ``archived``: include archived ones."""
        scope.require_all("users")
        only = {"status": status}
        rows, following = await _USERS.page(self._db, paging, None, archived, only=only)
        return read_page(UserView, "user", rows=rows, read=_user, following=following)

    async def get(self, scope: Scope, name: str) -> UserView:
        """Get a user. Raises ``NotFound``, and ``Conflict`` for one that needs a newer manager to
        be shown."""
        scope.require_all("users")
        row = await self._db.fetchrow(SQL["user_list"], name, True)
        if row is None:
            raise NotFound(f"there is no user {name!r}", next_step="`moorage users` lists them")
        return read_one("user", name, row, _user)

    async def update(
        self, scope: Scope, name: str, patch: UserPatch, *, if_match: Versions = None
    ) -> UserView:
        """Replace all fields. ``if_match``: the versions that it may have now. Raises ``NotFound``,
        ``PreconditionFailed`` for another version, and ``Conflict`` for the last administrator."""
        scope.require_all("users")
        args = name, patch.email, patch.status, patch.platform_role, sent(if_match)
        if not await self._db.fetch(SQL["user_update"], *args):
            check_version(f"user {name!r}", (await self.get(scope, name)).version, if_match)
            raise Conflict(
                f"{name!r} is the last administrator with a key that does not expire",
                next_step="create another one first: `moorage keys create NAME --role admin`",
            )

        self._notifier.notify([Topic.KEYS])
        return await self.get(scope, name)

    async def archive(self, scope: Scope, name: str) -> UserView:
        """Archive a user, whose keys and console sessions are refused from then on; no change if it
        is archived. Raises ``NotFound``, and ``Conflict`` for a user with live sessions or
        endpoints and for the last administrator."""
        scope.require_all("users")
        changed = await self._db.fetch(SQL["user_archive"], name, scope.actor)
        view = await self.get(scope, name)
        if not changed and view.archived_at is None:
            raise Conflict(
                f"{name!r} is the last administrator with a key that does not expire",
                next_step="create another one first: `moorage keys create NAME --role admin`",
            )

        self._notifier.notify([Topic.KEYS])
        return view

    async def restore(self, scope: Scope, name: str) -> UserView:
        """Restore a user with the status that it had; no change if it is not archived. Raises
        ``NotFound``."""
        scope.require_all("users")
        await self._db.fetch(SQL["user_restore"], name)
        self._notifier.notify([Topic.KEYS])
        return await self.get(scope, name)

    async def delete(self, scope: Scope, name: str) -> UserView:
        """Delete a user that nothing names. Returns its last state. Raises ``NotFound``, and
        ``Conflict`` for one that something names."""
        view = await self.get(scope, name)
        await self._db.fetch(SQL["user_delete"], name)
        self._notifier.notify([Topic.KEYS])
        return view


class ProjectStore:
    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier

    async def create(self, scope: Scope, spec: ProjectSpec) -> ProjectView:
        """Create a project. Raises ``Conflict`` for a name that is taken."""
        args = (
            spec.name,
            spec.status,
            spec.max_priority,
            spec.resource_groups,
            scope.actor,
            *_rates(spec),
        )
        args = (*args, spec.reuse)
        if not await self._db.fetch(SQL["project_create"], *args):
            raise _taken("project", spec.name, (await self.get(scope, spec.name)).archived_at)

        return await self.get(scope, spec.name)

    async def page(
        self,
        scope: Scope,
        paging: Paging = FIRST,
        *,
        status: str | None = None,
        archived: bool = False,
    ) -> Page[ProjectView]:
        """Projects. ``archived``: include archived ones."""
        only = {"status": status}
        args = scope.projects, None, archived
        rows, following = await _PROJECTS.page(self._db, paging, *args, only=only)
        return read_page(ProjectView, "project", rows=rows, read=_project, following=following)

    async def get(self, scope: Scope, name: str) -> ProjectView:
        """Get a project. Raises ``NotFound``, and ``Conflict`` for one that needs a newer manager
        to be shown."""
        row = await self._db.fetchrow(SQL["project_list"], scope.projects, name, True)
        if row is None:
            raise NotFound(
                f"there is no project {name!r}", next_step="`moorage projects` lists them"
            )
        return read_one("project", name, row, _project)

    async def update(
        self, scope: Scope, name: str, patch: ProjectPatch, *, if_match: Versions = None
    ) -> ProjectView:
        """Replace all fields. ``if_match``: the versions that it may have now. Raises ``NotFound``,
        and ``PreconditionFailed`` for another version."""
        await self.get(scope, name)
        args = (
            name,
            patch.status,
            patch.max_priority,
            patch.resource_groups,
            *_rates(patch),
            sent(if_match),
        )
        args = (*args, patch.reuse)
        if not await self._db.fetch(SQL["project_update"], *args):
            check_version(f"project {name!r}", (await self.get(scope, name)).version, if_match)

        self._notifier.notify([Topic.KEYS])
        return await self.get(scope, name)

    async def archive(self, scope: Scope, name: str) -> ProjectView:
        """Archive a project, whose keys are refused from then on; no change if it is archived.
        Raises ``NotFound``, and ``Conflict`` for a project with live sessions or endpoints."""
        scope.require_all("projects")
        if name == "default":
            raise Conflict(
                "project 'default' cannot be archived: keys that name no project belong to it",
                next_step="refuse its keys instead: `moorage projects set default --status "
                "disabled`",
            )

        await self._db.fetch(SQL["project_archive"], name, scope.actor)
        self._notifier.notify([Topic.KEYS])
        return await self.get(scope, name)

    async def restore(self, scope: Scope, name: str) -> ProjectView:
        """Restore a project with the status that it had; no change if it is not archived. Raises
        ``NotFound``."""
        scope.require_all("projects")
        await self._db.fetch(SQL["project_restore"], name)
        self._notifier.notify([Topic.KEYS])
        return await self.get(scope, name)

    async def delete(self, scope: Scope, name: str) -> ProjectView:
        """Delete a project that nothing names. Returns its last state. Raises ``NotFound``, and
        ``Conflict`` for one that something names."""
        scope.require_all("projects")
        view = await self.get(scope, name)
        await self._db.fetch(SQL["project_delete"], name)
        self._notifier.notify([Topic.KEYS])
        return view

    async def members(
        self, scope: Scope, project: str, paging: Paging = FIRST, *, role: MemberRole | None = None
    ) -> Page[MemberView]:
        """Members of a project. Raises ``NotFound`` for an unknown project."""
        await self.get(scope, project)
        args = (scope.projects, project, None)
        only = {"role": role}
        rows, following = await _MEMBERS.page(self._db, paging, *args, only=only)

        return read_page(
            MemberView, "member", rows=rows, read=_member, following=following, name="user"
        )

    async def set_member(
        self, scope: Scope, project: str, user: str, role: MemberRole
    ) -> MemberView:
        """Add or change a member. Raises ``NotFound`` for an unknown project or user."""
        await self.get(scope, project)
        rows = await self._db.fetch(
            SQL["member_put"], scope.projects, project, user, role, scope.actor
        )
        if not rows:
            raise NotFound(
                f"there is no user {user!r}",
                next_step="an administrator can create one: `moorage users create`",
            )

        return self._changed(user, rows)

    async def remove_member(self, scope: Scope, project: str, user: str) -> MemberView:
        """Remove a member. The member's keys in the project are refused from then on. Raises
        ``NotFound``."""
        await self.get(scope, project)
        rows = await self._db.fetch(SQL["member_delete"], scope.projects, project, user)
        if not rows:
            raise NotFound(
                f"user {user!r} is not a member of project {project!r}",
                next_step=f"`moorage projects members list {project}` lists them",
            )
        return self._changed(user, rows)

    def _changed(self, user: str, rows: list[Any]) -> MemberView:
        self._notifier.notify([Topic.KEYS])
        return read_one("member", user, rows[0], _member, done="was changed")


def _taken(kind: str, name: str, archived_at: datetime | None) -> Conflict:
    if archived_at is not None:
        return Conflict(
            f"{kind} {name!r} was archived on {archived_at:%Y-%m-%d}, and keeps its name",
            next_step=f"restore it: `moorage {kind}s restore {name}`, or choose another name",
        )
    return Conflict(f"a {kind} named {name!r} already exists", next_step="choose another name")


def _rates(project: ProjectPatch) -> tuple[int | None, ...]:
    return project.requests_per_minute, project.tokens_per_minute, project.concurrent_requests


def _project(row: Any) -> ProjectView:
    return ProjectView.model_validate(dict(row))


def _member(row: Any) -> MemberView:
    return MemberView.model_validate(dict(row))


def _user(row: Any) -> UserView:
    return UserView.model_validate(dict(row))
