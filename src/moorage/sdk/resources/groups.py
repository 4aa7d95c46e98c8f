"""Resource groups."""

from __future__ import annotations

from moorage.common.views.groups import GroupRename
from moorage.common.views.resources import GroupOptions, GroupView, NewGroup
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import etag, segment


class Groups(Resource):
    """Resource groups."""

    def list(self) -> PagedList[GroupView]:
        return self._list(GroupView, "/v1/groups")

    async def get(self, name: str) -> GroupView:
        return await self._call(GroupView, "GET", f"/v1/groups/{segment(name)}")

    async def create(self, group: NewGroup) -> GroupView:
        """Raises ``ApiError`` (409) if the name is taken. For administrators."""
        return await self._call(GroupView, "POST", "/v1/groups", body=group)

    async def update(
        self, name: str, options: GroupOptions, *, version: int | None = None
    ) -> GroupView:
        """Create a group or replace its options. ``version``: refuse (412) if the group has a
        different version. For administrators."""
        return await self._call(
            GroupView, "PUT", f"/v1/groups/{segment(name)}", body=options, if_match=etag(version)
        )

    async def rename(self, name: str, new_name: str, *, version: int | None = None) -> GroupView:
        """Rename a group; its former name stays as an alias. ``version``: refuse (412) if the group
        has a different version. For administrators."""
        path = f"/v1/groups/{segment(name)}"
        body = GroupRename(name=new_name)
        return await self._call(GroupView, "PATCH", path, body=body, if_match=etag(version))

    async def release_alias(self, alias: str) -> GroupView:
        """Free a former name of a group. Raises ``ApiError`` (409) while the name is in use. For
        administrators."""
        return await self._call(GroupView, "DELETE", f"/v1/group-aliases/{segment(alias)}")

    async def retire(
        self, name: str, *, drain: bool = False, version: int | None = None
    ) -> GroupView:
        """Retire a group, so that nothing new can be created in it. ``drain``: even while it is in
        use. For administrators."""
        query = {"drain": "true" if drain else None}
        path = f"/v1/groups/{segment(name)}"
        return await self._call(GroupView, "DELETE", path, query=query, if_match=etag(version))


class SyncGroups(SyncResource[Groups]):
    """``Groups`` without asyncio."""

    list = listed(Groups.list)
    get = blocking(Groups.get)
    create = blocking(Groups.create)
    update = blocking(Groups.update)
    rename = blocking(Groups.rename)
    release_alias = blocking(Groups.release_alias)
    retire = blocking(Groups.retire)
