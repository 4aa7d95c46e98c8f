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

    def list(self, *, archived: bool = False) -> PagedList[ProjectView]:
        """Projects. ``archived``: include those that are archived."""
        return self._list(ProjectView, "/v1/projects", {"archived": "true"} if archived else None)

    async def get(self, name: str) -> ProjectView:
        return await self._call(ProjectView, "GET", f"/v1/projects/{segment(name)}")

    async def update(
        self, name: str, patch: ProjectPatch, *, version: int | None = None
    ) -> ProjectView:
        """Replace the fields set in ``patch``. ``version``: refuse (412) if the project has a
        different version."""
        path = f"/v1/projects/{segment(name)}"
        return await self._call(ProjectView, "PATCH", path, body=patch, if_match=etag(version))

    async def archive(self, name: str) -> ProjectView:
        """Archive a project without live sessions and endpoints. Its keys are refused from then
        on."""
        return await self._call(ProjectView, "POST", f"/v1/projects/{segment(name)}/archive")

    async def restore(self, name: str) -> ProjectView:
        """Restore an archived project."""
        return await self._call(ProjectView, "POST", f"/v1/projects/{segment(name)}/restore")

    async def delete(self, name: str) -> ProjectView:
        """Delete a project that nothing names."""
        return await self._call(ProjectView, "DELETE", f"/v1/projects/{segment(name)}")


class SyncProjects(SyncResource[Projects]):
    """``Projects`` without asyncio."""

    create = blocking(Projects.create)
    list = listed(Projects.list)
    get = blocking(Projects.get)
    update = blocking(Projects.update)
    archive = blocking(Projects.archive)
    restore = blocking(Projects.restore)
    delete = blocking(Projects.delete)
