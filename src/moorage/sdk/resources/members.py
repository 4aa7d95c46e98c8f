"""Members of projects."""

from __future__ import annotations

from moorage.common.views.identity import Membership, MemberView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import segment


class Members(Resource):
    """Members of projects."""

    def list(self, project: str) -> PagedList[MemberView]:
        return self._list(MemberView, f"/v1/projects/{segment(project)}/members")

    async def set(self, project: str, user: str, membership: Membership) -> MemberView:
        path = f"/v1/projects/{segment(project)}/members/{segment(user)}"
        return await self._call(MemberView, "PUT", path, body=membership)

    async def delete(self, project: str, user: str) -> MemberView:
        path = f"/v1/projects/{segment(project)}/members/{segment(user)}"
        return await self._call(MemberView, "DELETE", path)


class SyncMembers(SyncResource[Members]):
    """``Members`` without asyncio."""

    list = listed(Members.list)
    set = blocking(Members.set)
    delete = blocking(Members.delete)
