"""Service ports of sessions in Postgres, and access tokens that open them.

An access token opens one service port of one session until it expires or is revoked, and only while
its creator may open the port. Sessions are identified by their ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from moorage.common.aio.clock import Clock
from moorage.common.link.messages import AccessTokenGrant
from moorage.common.model.errors import Conflict, NotFound
from moorage.common.model.paging import FIRST, Paging
from moorage.common.model.roles import Role
from moorage.common.model.service_ports import app_path
from moorage.common.model.status import TERMINAL, Status
from moorage.common.views.access_tokens import (
    AccessTokenSpec,
    AccessTokenView,
    AppView,
    NewAccessTokenView,
)
from moorage.common.views.resources import Page
from moorage.manager.identity.roles import effective_role, role_of_user
from moorage.manager.identity.scope import Scope
from moorage.manager.identity.session_access import token_opens
from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.cursors import Listing
from moorage.manager.store.database.notifier import Notifier, Topic
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import as_uuid
from moorage.manager.store.database.unreadable import read_page
from moorage.manager.store.schema.base import ID, TIME
from moorage.manager.store.sessions.errors import session_not_found

ACCESS_TOKEN_PREFIX = "mga-"
_LISTING = Listing(
    SQL["access_token_list"],
    {"id": ID, "created_at": TIME},
    sorts=("created_at",),
    key=("id",),
    default="created_at",
)


class AccessTokenStore:
    def __init__(self, db: Database, notifier: Notifier, clock: Clock) -> None:
        self._db = db
        self._notifier = notifier
        self._clock = clock
        self._connection = db.shared_connection(Purpose.ADMINISTRATION)

    async def service_ports(self, scope: Scope, session_id: str) -> list[AppView]:
        """Ports that the specification declares and, once the session is running, those that its
        image adds. Raises ``NotFound``."""
        return _ports(await self._row(scope, session_id))

    async def create(
        self, scope: Scope, session_id: str, app: str, spec: AccessTokenSpec
    ) -> NewAccessTokenView:
        """Create a token. Raises ``NotFound`` for an unknown service port, and ``Conflict`` for a
        session that has ended."""
        row = await self._row(scope, session_id)
        view = _find_port(row, app)
        access_token = ACCESS_TOKEN_PREFIX + self._clock.secret(32)
        digest = hashlib.sha256(access_token.encode()).hexdigest()
        rows = await self._connection.fetch(
            SQL["access_token_create"],
            self._clock.new_id(),
            session_id,
            app,
            access_token[:8],
            digest,
            scope.actor,
            spec.lifetime_s,
            scope.projects,
            scope.user,
            None if scope.key is None else scope.owner.user,
            None if scope.key is None or scope.key.console is not None else scope.key.id or None,
        )
        if not rows:
            raise Conflict(
                f"session {row['name']!r} has ended, so its service port {app!r} is gone",
                next_step="start the session again",
            )

        self._notifier.notify([Topic.KEYS])
        shown = {"access_token": access_token, "protocol": view.protocol, "path": view.path}
        return NewAccessTokenView.model_validate({**_fields(rows[0]), **shown})

    async def grants(self) -> tuple[AccessTokenGrant, ...]:
        """Tokens of live sessions whose creators may currently open the service port, as proxies
        check them."""
        return tuple(
            AccessTokenGrant(
                row["sha256"], row["session_id"], row["app"], int(row["expires_at"].timestamp())
            )
            for row in await self._db.fetch(SQL["access_token_grants"])
            if _may_open(row)
        )

    async def valid(
        self, scope: Scope, session_id: str, app: str, paging: Paging = FIRST
    ) -> Page[AccessTokenView]:
        """Valid tokens for a service port, oldest first."""
        await self._row(scope, session_id)
        args = session_id, app, scope.projects, scope.user
        rows, following = await _LISTING.page(self._db, paging, *args)

        return read_page(
            AccessTokenView,
            "access token",
            rows=rows,
            read=lambda row: AccessTokenView.model_validate(_fields(row)),
            following=following,
            name="id",
        )

    async def revoke(
        self, scope: Scope, session_id: str, app: str, access_token_id: str
    ) -> AccessTokenView:
        """Revoke a token. Raises ``NotFound``."""
        rows = []
        if as_uuid(access_token_id) is not None:
            args = session_id, app, access_token_id, scope.actor, scope.projects, scope.user
            rows = await self._connection.fetch(SQL["access_token_revoke"], *args)

        if not rows:
            raise NotFound(
                f"service port {app!r} has no access token {access_token_id!r}",
                next_step="list the tokens: it may already be revoked",
            )

        self._notifier.notify([Topic.KEYS])
        return AccessTokenView.model_validate(_fields(rows[0]))

    async def _row(self, scope: Scope, session_id: str) -> Mapping[str, Any]:
        found = await self._db.fetchrow(SQL["session_apps"], session_id, scope.projects)
        row: Mapping[str, Any] | None = found
        if row is None:
            raise session_not_found(session_id)
        return row


def _may_open(row: Mapping[str, Any]) -> bool:
    """Whether a token's creator may access the inside of its session."""
    if row["user_name"] is None:
        return True  # created by a release that did not record it

    own = role_of_user(row["member_role"], row["platform_role"])
    granted = Role(row["role"]) if row["role"] is not None else own
    role = (
        effective_role(granted, row["member_role"], row["platform_role"])
        if granted is not None
        else None
    )
    if role is None:
        return False

    return token_opens(
        role,
        row["user_name"],
        row["scopes"],
        row["user"],
        runtime=row["runtime"],
        isolated=row["isolated"],
    )


def _ports(row: Mapping[str, Any]) -> list[AppView]:
    ready = {app["name"] for app in row["reported"]} if row["status"] == Status.RUNNING else set()
    known = {app["name"]: app for app in (*row["declared"], *row["reported"])}
    return [
        AppView(
            name=name,
            protocol=app["protocol"],
            base_path=app["base_path"],
            ready=name in ready,
            path=app_path(row["id"], name),
        )
        for name, app in known.items()
    ]


def _find_port(row: Mapping[str, Any], name: str) -> AppView:
    views = {view.name: view for view in _ports(row)}
    if name in views:
        return views[name]

    if row["status"] in TERMINAL or not views:
        has = "has no service port"
    else:
        has = f"has {', '.join(sorted(views))}"

    later = (
        "; those that its image declares are known once it runs"
        if row["status"] != Status.RUNNING
        else ""
    )
    raise NotFound(
        f"session {row['name']!r} has no service port {name!r}: it {has}{later}",
        next_step="declare one when you create the session: `moorage start --port NAME`",
    )


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "id": str(row["id"]), "session_id": str(row["session_id"])}
