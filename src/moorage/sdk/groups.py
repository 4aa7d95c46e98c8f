"""Calls about resource groups and quotas."""

from __future__ import annotations

from moorage.common.model.group_options import QuotaLimits, QuotaScope
from moorage.common.views.resources import GroupOptions, GroupView, Page, QuotaView
from moorage.sdk.transport import Transport, segment


class GroupCalls(Transport):
    async def list_groups(self) -> list[GroupView]:
        return (await self.call(Page[GroupView], "GET", "/v1/groups")).items

    async def get_group(self, name: str) -> GroupView:
        return await self.call(GroupView, "GET", f"/v1/groups/{segment(name)}")

    async def update_group(self, name: str, options: GroupOptions) -> GroupView:
        """Create or replace the options of a group. For administrators."""
        return await self.call(GroupView, "PUT", f"/v1/groups/{segment(name)}", body=options)

    async def list_quotas(self) -> list[QuotaView]:
        return (await self.call(Page[QuotaView], "GET", "/v1/quotas")).items

    async def get_quota(self, scope: QuotaScope, name: str) -> QuotaView:
        return await self.call(QuotaView, "GET", f"/v1/quotas/{scope}/{segment(name)}")

    async def set_quota(self, scope: QuotaScope, name: str, limits: QuotaLimits) -> QuotaView:
        """Replace the quota: a limit that ``limits`` omits is removed."""
        return await self.call(QuotaView, "PUT", f"/v1/quotas/{scope}/{segment(name)}", body=limits)

    async def delete_quota(self, scope: QuotaScope, name: str) -> QuotaView:
        """Delete a quota. Returns its last state."""
        return await self.call(QuotaView, "DELETE", f"/v1/quotas/{scope}/{segment(name)}")
