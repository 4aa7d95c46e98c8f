"""Apps of sessions, and access tokens to them: who holds one reaches one app of one session until it
expires."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from typing import Any

from moorage.common.aio.clock import Clock
from moorage.common.link.messages import AccessTokenGrant, AppRoute
from moorage.common.model.errors import Conflict, NotFound
from moorage.common.model.service_ports import app_path
from moorage.common.model.status import TERMINAL, Status
from moorage.common.views.access_tokens import AccessTokenSpec, AccessTokenView, AppView, NewAccessTokenView
from moorage.manager.serving.routes import app_routes
from moorage.manager.store.database import Database
from moorage.manager.store.notifier import Notifier, Topic
from moorage.manager.store.queries import SQL

ACCESS_TOKEN_PREFIX = "mga-"


class AccessTokens:
    """Part of ``Store``. Sessions are named by their ids."""

    def __init__(self, db: Database, notifier: Notifier, clock: Clock) -> None:
        self._db, self._notifier, self._clock = db, notifier, clock
        self._access_token_line = db.line()

    async def list_apps(self, session_id: str) -> list[AppView]:
        """What it declares and, once it runs, what its image adds. Raises ``NotFound``."""
        return _apps(await self._row(session_id))

    async def create_access_token(
        self, session_id: str, app: str, spec: AccessTokenSpec, *, actor: str
    ) -> NewAccessTokenView:
        """Raises ``NotFound`` for an app that it has not, ``Conflict`` for a session that has ended."""
        row = await self._row(session_id)
        view = _the_app(row, app)
        access_token = ACCESS_TOKEN_PREFIX + self._clock.secret(32)
        digest = hashlib.sha256(access_token.encode()).hexdigest()
        made = await self._access_token_line.fetch(
            SQL["access_token_create"],
            self._clock.new_id(),
            session_id,
            app,
            access_token[:8],
            digest,
            actor,
            spec.lifetime_s,
        )
        if not made:
            raise Conflict(
                f"session {row['name']!r} has ended, so its app {app!r} is gone",
                next_step="start it again",
            )
        self._notifier.notify([Topic.ROUTES])
        shown = {"access_token": access_token, "protocol": view.protocol, "path": view.path}
        return NewAccessTokenView.model_validate({**_fields(made[0]), **shown})

    async def list_access_tokens(self, session_id: str, app: str) -> list[AccessTokenView]:
        """Those that still open it, oldest first."""
        found = await self._db.fetch(SQL["access_token_list"], session_id, app)
        return [AccessTokenView.model_validate(_fields(row)) for row in found]

    async def revoke_access_token(
        self, session_id: str, app: str, access_token_id: str, *, actor: str
    ) -> AccessTokenView:
        """It opens nothing more. Raises ``NotFound``."""
        found = []
        if _is_id(access_token_id):
            found = await self._access_token_line.fetch(
                SQL["access_token_revoke"], session_id, app, access_token_id, actor
            )
        if not found:
            raise NotFound(
                f"app {app!r} has no access token {access_token_id!r}",
                next_step="list them: it may be revoked already",
            )
        self._notifier.notify([Topic.ROUTES])
        return AccessTokenView.model_validate(_fields(found[0]))

    async def app_routes(self) -> tuple[AppRoute, ...]:
        return app_routes(await self._db.fetch(SQL["app_routes"]))

    async def access_token_grants(self) -> tuple[AccessTokenGrant, ...]:
        return tuple(
            AccessTokenGrant(row["sha256"], row["session_id"], row["app"], int(row["expires_at"].timestamp()))
            for row in await self._db.fetch(SQL["access_token_grants"])
        )

    async def _row(self, session_id: str) -> Mapping[str, Any]:
        row: Mapping[str, Any] | None = await self._db.fetchrow(SQL["session_apps"], session_id)
        if row is None:
            raise NotFound(f"no session {session_id!r}", next_step="`moorage ps --all` lists them")
        return row


def _apps(row: Mapping[str, Any]) -> list[AppView]:
    given = {app["name"] for app in row["given"]} if row["status"] == Status.RUNNING else set()
    known = {app["name"]: app for app in (*row["declared"], *row["given"])}
    return [
        AppView(
            name=name,
            protocol=app["protocol"],
            base_path=app["base_path"],
            ready=name in given,
            path=app_path(row["id"], name),
        )
        for name, app in known.items()
    ]


def _the_app(row: Mapping[str, Any], name: str) -> AppView:
    views = {view.name: view for view in _apps(row)}
    if name in views:
        return views[name]
    if Status(row["status"]) in TERMINAL or not views:
        has = "has no service port"
    else:
        has = f"has {', '.join(sorted(views))}"
    later = "; what its image declares is known once it runs" if row["status"] != Status.RUNNING else ""
    raise NotFound(
        f"session {row['name']!r} has no app {name!r}: it {has}{later}",
        next_step="declare one when the session is made: `moorage start --port NAME`",
    )


def _is_id(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "id": str(row["id"]), "session_id": str(row["session_id"])}
