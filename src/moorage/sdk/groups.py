"""Calls about resource groups and quotas."""

from __future__ import annotations

from moorage.common.model.group_options import QuotaLimits, QuotaScope
from moorage.common.views.groups import GroupRename
from moorage.common.views.resources import (
    GroupOptions,
    GroupView,
    NewGroup,
    Page,
    QuotaView,
    RuntimeList,
    RuntimeView,
)
from moorage.sdk.transport import Transport, etag, segment


class GroupCalls(Transport):
    async def list_groups(self) -> list[GroupView]:
        return await self.every(Page[GroupView], "/v1/groups")

    async def list_runtimes(self) -> list[RuntimeView]:
        """What each runtime is like; ``runtimes`` of a group are those that its agents offer."""
        return (await self.call(RuntimeList, "GET", "/v1/runtimes")).items

    async def get_group(self, name: str) -> GroupView:
        return await self.call(GroupView, "GET", f"/v1/groups/{segment(name)}")

    async def create_group(self, group: NewGroup) -> GroupView:
        """Raises ``ApiError`` (409) for a name that is taken. For administrators."""
        return await self.call(GroupView, "POST", "/v1/groups", body=group)

    async def update_group(
        self, name: str, options: GroupOptions, *, version: int | None = None
    ) -> GroupView:
        """Create or replace the options of a group. ``version``: refuse (412) if it has another
        one. For administrators."""
        return await self.call(
            GroupView, "PUT", f"/v1/groups/{segment(name)}", body=options, if_match=etag(version)
        )

    async def rename_group(
        self, name: str, new_name: str, *, version: int | None = None
    ) -> GroupView:
        """Rename a group; its former name stays as an alias. ``version``: refuse (412) if it has
        another one. For administrators."""
        path = f"/v1/groups/{segment(name)}"
        body = GroupRename(name=new_name)
        return await self.call(GroupView, "PATCH", path, body=body, if_match=etag(version))

    async def release_alias(self, alias: str) -> GroupView:
        """Free a former name of a group. Raises ``ApiError`` (409) while something says it. For
        administrators."""
        return await self.call(GroupView, "DELETE", f"/v1/group-aliases/{segment(alias)}")

    async def retire_group(
        self, name: str, *, drain: bool = False, version: int | None = None
    ) -> GroupView:
        """Let nothing new be created in a group; ``drain``: also while it is in use. For
        administrators."""
        query = {"drain": "true" if drain else None}
        path = f"/v1/groups/{segment(name)}"
        return await self.call(GroupView, "DELETE", path, query=query, if_match=etag(version))

    async def list_quotas(self) -> list[QuotaView]:
        return await self.every(Page[QuotaView], "/v1/quotas")

    async def get_quota(self, scope: QuotaScope, name: str) -> QuotaView:
        return await self.call(QuotaView, "GET", f"/v1/quotas/{scope}/{segment(name)}")

    async def set_quota(
        self, scope: QuotaScope, name: str, limits: QuotaLimits, *, version: int | None = None
    ) -> QuotaView:
        """Replace the quota: a limit that ``limits`` omits is removed. ``version``: refuse (412) if
        it has another one."""
        path = f"/v1/quotas/{scope}/{segment(name)}"
        return await self.call(QuotaView, "PUT", path, body=limits, if_match=etag(version))

    async def delete_quota(self, scope: QuotaScope, name: str) -> QuotaView:
        """Delete a quota. Returns its last state."""
        return await self.call(QuotaView, "DELETE", f"/v1/quotas/{scope}/{segment(name)}")
