"""Projects."""

from __future__ import annotations

from moorage.common.views.identity import ProjectPatch, ProjectSpec, ProjectView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import etag, segment


class Projects(Resource):
    """Projects."""

    async def create(self, spec: ProjectSpec) -> ProjectView:
        return await self._call(ProjectView, "POST", "/v1/projects", body=spec)

    def list(self) -> PagedList[ProjectView]:
        return self._list(ProjectView, "/v1/projects")

    async def get(self, name: str) -> ProjectView:
        return await self._call(ProjectView, "GET", f"/v1/projects/{segment(name)}")

    async def update(
        self, name: str, patch: ProjectPatch, *, version: int | None = None
    ) -> ProjectView:
        """Replace the fields set in ``patch``. ``version``: refuse (412) if the project has a
        different version."""
        path = f"/v1/projects/{segment(name)}"
        return await self._call(ProjectView, "PATCH", path, body=patch, if_match=etag(version))


class SyncProjects(SyncResource[Projects]):
    """``Projects`` without asyncio."""

    create = blocking(Projects.create)
    list = listed(Projects.list)
    get = blocking(Projects.get)
    update = blocking(Projects.update)
