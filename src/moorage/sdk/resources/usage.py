"""Usage of requests and sessions, and corrections of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from moorage.common.views import budgets as views
from moorage.common.views.metering import Bucket, Dimension, ModelUsage
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed


class Usage(Resource):
    """Usage of requests and sessions, and corrections of the ledger."""

    def list(
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
        limit: int | None = None,
    ) -> PagedList[ModelUsage]:
        """Usage of requests and sessions in the hours from ``since`` to ``until`` (default: the
        last day), split by ``by`` and ``bucket``. ``limit``: the most lines to return; None means
        all."""
        query = {
            "from": since.isoformat() if since else None,
            "to": until.isoformat() if until else None,
            "by": ",".join(by),
            "bucket": bucket,
            "project": project,
            "user": user,
            "key": key,
            "model": model,
        }
        return self._list(ModelUsage, "/v1/usage", query, limit=limit)

    async def correct(self, spec: views.CorrectionSpec) -> views.CorrectionView:
        """Add a record that corrects the ledger. For administrators."""
        return await self._call(views.CorrectionView, "POST", "/v1/usage/corrections", body=spec)


class SyncUsage(SyncResource[Usage]):
    """``Usage`` without asyncio."""

    list = listed(Usage.list)
    correct = blocking(Usage.correct)
