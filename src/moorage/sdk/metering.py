"""Calls about what requests and sessions use, and about the limits on it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from moorage.common.views.metering import Bucket, Dimension, LimitView, ModelUsage
from moorage.common.views.resources import Page
from moorage.sdk.transport import Transport


class MeteringCalls(Transport):
    async def usage(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        by: Sequence[Dimension] = ("project", "model"),
        bucket: Bucket = "none",
        project: str | None = None,
        user: str | None = None,
        key: str | None = None,
        model: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[ModelUsage]:
        """What requests and sessions used in the hours from ``since`` to ``until`` (default: the
        last day), split by ``by`` and ``bucket``. One page; pass its ``next`` as ``cursor`` for the
        next page."""
        query = {
            "from": since.isoformat() if since else None,
            "to": until.isoformat() if until else None,
            "by": ",".join(by),
            "bucket": bucket,
            "project": project,
            "user": user,
            "key": key,
            "model": model,
            "cursor": cursor,
            "limit": str(limit),
        }
        return await self.call(Page[ModelUsage], "GET", "/v1/usage", query=query)

    async def limits(self) -> list[LimitView]:
        """The limits of keys, projects and models, with their use. They are set with
        ``update_key``, ``update_project`` and ``update_endpoint``."""
        return (await self.call(Page[LimitView], "GET", "/v1/limits")).items
