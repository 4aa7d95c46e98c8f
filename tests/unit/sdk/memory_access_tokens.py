"""In-memory service ports and access tokens of the fake manager."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from memory_pages import page

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import NotFound
from moorage.common.model.paging import Paging
from moorage.common.model.service_ports import app_path
from moorage.common.views.access_tokens import (
    AccessTokenSpec,
    AccessTokenView,
    AppView,
    NewAccessTokenView,
)
from moorage.common.views.resources import Page, SessionView
from moorage.manager.identity.scope import Scope


class MemoryAccessTokens:
    def __init__(
        self, get_session: Callable[[Scope, str], Awaitable[SessionView]], clock: Clock
    ) -> None:
        self._get_session = get_session
        self._clock = clock
        self.views: dict[str, AccessTokenView] = {}

    async def service_ports(self, scope: Scope, session_id: str) -> list[AppView]:
        session = await self._get_session(scope, session_id)
        return [
            AppView(
                name=port.name,
                protocol=port.protocol,
                base_path=port.base_path,
                ready=session.status == "RUNNING",
                path=app_path(session_id, port.name),
            )
            for port in session.spec.ports
        ]

    async def create(
        self, scope: Scope, session_id: str, app: str, spec: AccessTokenSpec
    ) -> NewAccessTokenView:
        found = next(
            (view for view in await self.service_ports(scope, session_id) if view.name == app), None
        )
        if found is None:
            raise NotFound(f"no app {app!r}")

        access_token = f"mga-{self._clock.secret()}"
        now = self._clock.now()
        created = AccessTokenView(
            id=self._clock.new_id(), session_id=session_id, app=app, prefix=access_token[:8],
            created_at=now, created_by=scope.actor, expires_at=now + timedelta(seconds=spec.lifetime_s),
        )  # fmt: skip
        self.views[created.id] = created
        address = {"access_token": access_token, "protocol": found.protocol, "path": found.path}

        return NewAccessTokenView.model_validate(created.model_dump() | address)

    async def valid(
        self, scope: Scope, session_id: str, app: str, paging: Paging
    ) -> Page[AccessTokenView]:
        found = (
            view for view in self.views.values() if (view.session_id, view.app) == (session_id, app)
        )
        return page(found, paging)

    async def revoke(
        self, scope: Scope, session_id: str, app: str, access_token_id: str
    ) -> AccessTokenView:
        if access_token_id not in self.views:
            raise NotFound(f"no access token {access_token_id!r}")
        return self.views.pop(access_token_id)
