"""Interfaces through which the API reads what a console watches: counts, occupancy and its
history."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from moorage.common.views.events import AgentOccupancy, GroupHistory, Overview
from moorage.common.views.resources import Page
from moorage.manager.identity.scope import Scope


class Overviews(Protocol):
    async def overview(
        self, scope: Scope, groups: frozenset[str] | None, closed: frozenset[str]
    ) -> Overview: ...
    async def occupancy(
        self,
        scope: Scope,
        *,
        resource_group: str | None,
        agent: str | None,
        cursor: str | None,
        limit: int,
    ) -> Page[AgentOccupancy]: ...


class OccupancyHistories(Protocol):
    async def of_groups(
        self, groups: Collection[str], step_s: int, since: datetime, until: datetime
    ) -> list[GroupHistory]: ...
