"""In-memory secrets, unencrypted."""

from __future__ import annotations

from collections.abc import Collection

from memory_pages import page

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import InvalidInput, NotFound
from moorage.common.model.paging import Paging
from moorage.common.views.resources import Page
from moorage.common.views.secrets import SecretView
from moorage.manager.identity.scope import Scope


class MemorySecrets:
    """``values``: by project and name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.values: dict[tuple[str, str], str] = {}
        self._views: dict[tuple[str, str], SecretView] = {}

    async def put(self, scope: Scope, name: str, value: str) -> SecretView:
        project = scope.owner.project
        actor = scope.actor
        old = self._views.get((project, name))
        now = self._clock.now()
        self.values[project, name] = value
        self._views[project, name] = SecretView(
            name=name,
            project=project,
            version=old.version + 1 if old else 1,
            created_at=old.created_at if old else now,
            created_by=old.created_by if old else actor,
            changed_at=now,
            changed_by=actor,
        )

        return self._views[project, name]

    async def page(self, scope: Scope, paging: Paging) -> Page[SecretView]:
        found = (view for key, view in sorted(self._views.items()) if key[0] == scope.owner.project)
        return page(found, paging)

    async def delete(self, scope: Scope, name: str) -> SecretView:
        project = scope.owner.project
        if (project, name) not in self._views:
            raise NotFound(f"project {project!r} has no secret {name!r}")
        return self._views.pop((project, name))

    async def check_exist(self, scope: Scope, names: Collection[str]) -> None:
        project = scope.owner.project
        for name in names:
            if (project, name) not in self._views:
                raise InvalidInput(f"project {project!r} has no secret {name!r}")
