"""Subscriptions to events, and their deliveries."""

from __future__ import annotations

from typing import Any

from moorage.common.model.errors import NotFound
from moorage.common.views.subscriptions import (
    DeliveryView,
    SubscriptionPatch,
    SubscriptionSecret,
    SubscriptionSpec,
    SubscriptionView,
)
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import etag, segment


class Subscriptions(Resource):
    """Subscriptions to events, which are sent to webhooks and by mail."""

    async def create(self, spec: SubscriptionSpec) -> SubscriptionSecret:
        """Create a subscription. The answer contains a webhook's signing secret, which is not shown
        again."""
        return await self._call(SubscriptionSecret, "POST", "/v1/subscriptions", body=spec)

    def list(self) -> PagedList[SubscriptionView]:
        """The caller's subscriptions, and those of its projects."""
        return self._list(SubscriptionView, "/v1/subscriptions")

    async def get(self, subscription_id: str) -> SubscriptionView:
        return await self._call(SubscriptionView, "GET", _path(subscription_id))

    async def find(self, ref: str) -> SubscriptionView:
        """The subscription with this name or id. Raises ``NotFound``."""
        found = [view async for view in self.list() if ref in (view.id, view.name)]
        if not found:
            raise NotFound(
                f"there is no subscription {ref!r}", next_step="`moorage notifications` lists them"
            )
        # The caller's own come before those that its project shares.
        return sorted(found, key=lambda view: view.shared)[0]

    async def update(
        self, subscription_id: str, patch: SubscriptionPatch, *, version: int | None = None
    ) -> SubscriptionView:
        """Change the fields that ``patch`` sets. ``version``: refuse (412) another version."""
        return await self._call(
            SubscriptionView,
            "PATCH",
            _path(subscription_id),
            body=patch,
            if_match=etag(version),
        )

    async def delete(self, subscription_id: str) -> SubscriptionView:
        """Delete a subscription with its deliveries. Returns its last state."""
        return await self._call(SubscriptionView, "DELETE", _path(subscription_id))

    async def test(self, subscription_id: str) -> DeliveryView:
        """Queue a test event, which is sent at once. ``deliveries`` shows the answer."""
        return await self._call(DeliveryView, "POST", f"{_path(subscription_id)}/test")

    async def rotate(self, subscription_id: str) -> SubscriptionSecret:
        """Replace a webhook's signing secret. For a day, the previous one signs too."""
        return await self._call(SubscriptionSecret, "POST", f"{_path(subscription_id)}/rotate")

    def deliveries(
        self, subscription_id: str, *, state: str | None = None, limit: int | None = None
    ) -> PagedList[DeliveryView]:
        """Deliveries, the newest first. ``state``: pending, delivered or failed."""
        query: dict[str, Any] = {"state": state}
        path = f"{_path(subscription_id)}/deliveries"
        return self._list(DeliveryView, path, query, limit=limit)


def _path(subscription_id: str) -> str:
    return f"/v1/subscriptions/{segment(subscription_id)}"


class SyncSubscriptions(SyncResource[Subscriptions]):
    """``Subscriptions`` without asyncio."""

    create = blocking(Subscriptions.create)
    list = listed(Subscriptions.list)
    get = blocking(Subscriptions.get)
    find = blocking(Subscriptions.find)
    update = blocking(Subscriptions.update)
    delete = blocking(Subscriptions.delete)
    test = blocking(Subscriptions.test)
    rotate = blocking(Subscriptions.rotate)
    deliveries = listed(Subscriptions.deliveries)
