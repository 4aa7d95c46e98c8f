"""Calls about the managers of a database."""

from __future__ import annotations

from moorage.common.views.managers import ManagerView
from moorage.common.views.resources import Page
from moorage.sdk.transport import Transport


class ManagerCalls(Transport):
    async def list_managers(self) -> list[ManagerView]:
        """All managers of the database, the oldest first. Any of them can be asked."""
        return (await self.call(Page[ManagerView], "GET", "/v1/managers")).items
