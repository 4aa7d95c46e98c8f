"""Apps and access tokens kept in memory: part of ``MemoryStore``."""

from __future__ import annotations

from datetime import timedelta

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import NotFound
from moorage.common.model.service_ports import app_path
from moorage.common.views.access_tokens import AccessTokenSpec, AccessTokenView, AppView, NewAccessTokenView
from moorage.common.views.resources import SessionView


class MemoryAccessTokens:
    def __init__(self, clock: Clock) -> None:
        self._now = clock
        self.access_tokens: dict[str, AccessTokenView] = {}

    async def get_session(self, ref: str, *, project: str | None = None) -> SessionView:
        raise NotImplementedError

    async def list_apps(self, session_id: str) -> list[AppView]:
        session = await self.get_session(session_id)
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

    async def create_access_token(
        self, session_id: str, app: str, spec: AccessTokenSpec, *, actor: str
    ) -> NewAccessTokenView:
        found = next((view for view in await self.list_apps(session_id) if view.name == app), None)
        if found is None:
            raise NotFound(f"no app {app!r}")
        access_token, now = f"mga-{self._now.secret()}", self._now.now()
        made = AccessTokenView(
            id=self._now.new_id(), session_id=session_id, app=app, prefix=access_token[:8],
            created_at=now, created_by=actor, expires_at=now + timedelta(seconds=spec.lifetime_s),
        )  # fmt: skip
        self.access_tokens[made.id] = made
        more = {"access_token": access_token, "protocol": found.protocol, "path": found.path}
        return NewAccessTokenView.model_validate(made.model_dump() | more)

    async def list_access_tokens(self, session_id: str, app: str) -> list[AccessTokenView]:
        return [
            view for view in self.access_tokens.values() if (view.session_id, view.app) == (session_id, app)
        ]

    async def revoke_access_token(
        self, session_id: str, app: str, access_token_id: str, *, actor: str
    ) -> AccessTokenView:
        if access_token_id not in self.access_tokens:
            raise NotFound(f"no access token {access_token_id!r}")
        return self.access_tokens.pop(access_token_id)
