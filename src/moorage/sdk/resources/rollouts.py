"""Rollouts of endpoints, and their revisions."""

from __future__ import annotations

from moorage.common.views.endpoints import EndpointView, RevisionView, RolloutUndo, RolloutView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import segment


class Rollouts(Resource):
    """Rollouts of endpoints, and their revisions."""

    async def get(self, name: str) -> RolloutView:
        return await self._call(RolloutView, "GET", f"/v1/endpoints/{segment(name)}/rollout")

    def history(self, name: str) -> PagedList[RevisionView]:
        """Newest first."""
        path = f"/v1/endpoints/{segment(name)}/revisions"
        return self._list(RevisionView, path)

    async def undo(self, name: str, revision: int | None = None) -> EndpointView:
        """Return to ``revision``; None means the revision that was served before."""
        path = f"/v1/endpoints/{segment(name)}/rollout/undo"
        return await self._call(EndpointView, "POST", path, body=RolloutUndo(revision=revision))

    async def promote(self, name: str) -> EndpointView:
        """Let the canary replace the stable revision."""
        return await self._call(
            EndpointView, "POST", f"/v1/endpoints/{segment(name)}/rollout/promote"
        )


class SyncRollouts(SyncResource[Rollouts]):
    """``Rollouts`` without asyncio."""

    get = blocking(Rollouts.get)
    history = listed(Rollouts.history)
    undo = blocking(Rollouts.undo)
    promote = blocking(Rollouts.promote)
