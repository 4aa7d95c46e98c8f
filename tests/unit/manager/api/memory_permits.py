"""Apps and permits kept in memory: part of ``MemoryStore``."""

from __future__ import annotations

from datetime import timedelta

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import NotFound
from moorage.common.model.service_ports import app_path
from moorage.common.views.access_tokens import AppView, NewPermitView, PermitSpec, PermitView
from moorage.common.views.resources import SessionView


class MemoryPermits:
    def __init__(self, clock: Clock) -> None:
        self._now = clock
        self.permits: dict[str, PermitView] = {}

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

    async def create_permit(
        self, session_id: str, app: str, spec: PermitSpec, *, actor: str
    ) -> NewPermitView:
        found = next((view for view in await self.list_apps(session_id) if view.name == app), None)
        if found is None:
            raise NotFound(f"no app {app!r}")
        permit, now = f"flp-{self._now.secret()}", self._now.now()
        made = PermitView(
            id=self._now.new_id(), session_id=session_id, app=app, prefix=permit[:8],
            created_at=now, created_by=actor, expires_at=now + timedelta(seconds=spec.lifetime_s),
        )  # fmt: skip
        self.permits[made.id] = made
        more = {"permit": permit, "protocol": found.protocol, "path": found.path}
        return NewPermitView.model_validate(made.model_dump() | more)

    async def list_permits(self, session_id: str, app: str) -> list[PermitView]:
        return [view for view in self.permits.values() if (view.session_id, view.app) == (session_id, app)]

    async def revoke_permit(self, session_id: str, app: str, permit_id: str, *, actor: str) -> PermitView:
        if permit_id not in self.permits:
            raise NotFound(f"no permit {permit_id!r}")
        return self.permits.pop(permit_id)
