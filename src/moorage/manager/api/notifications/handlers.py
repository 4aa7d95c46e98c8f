"""Handlers for subscriptions to events and their deliveries."""

from __future__ import annotations

import base64
from typing import Any, Literal

from moorage.common.model.errors import InvalidInput
from moorage.common.model.subscriptions import PLATFORM_EVENTS, NotificationEvent
from moorage.common.views.resources import Page
from moorage.common.views.subscriptions import (
    DeliveryState,
    DeliveryView,
    SubscriptionPatch,
    SubscriptionSecret,
    SubscriptionSpec,
    SubscriptionView,
)
from moorage.manager.api.http.editing import edit
from moorage.manager.api.http.listing import PageQuery, WholeQuery, order, paging
from moorage.manager.api.http.route import Call, NoQuery, route
from moorage.manager.notifications import bodies, signing
from moorage.manager.store.notifications.subscriptions import SealedTarget

_SUBSCRIPTION = "/v1/subscriptions/{id}"
# The previous secret also signs for a day after a rotation.
OVERLAP_S = 86_400.0


class SubscriptionQuery(WholeQuery):
    sort: Literal["name", "-name", "created_at", "-created_at"] = order("name")


class DeliveryQuery(PageQuery):
    state: DeliveryState | None = None
    sort: Literal["created_at", "-created_at"] = order("-created_at")


@route(
    "GET",
    "/v1/subscriptions",
    "List subscriptions: the caller's, and those of its projects",
    query=SubscriptionQuery,
    returns=Page[SubscriptionView],
    access="viewer",
)
async def list_subscriptions(call: Call[None, SubscriptionQuery]) -> Page[SubscriptionView]:
    return await call.deps.store.subscriptions.page(call.scope, paging(call.query))


@route(
    "POST",
    "/v1/subscriptions",
    "Subscribe to events, which are sent to a webhook or by mail",
    body=SubscriptionSpec,
    returns=SubscriptionSecret,
    status=201,
    location="/v1/subscriptions/{id}",
    access="member",
)
async def create_subscription(call: Call[SubscriptionSpec, NoQuery]) -> SubscriptionSecret:
    return await create(call, call.body)


@route("GET", _SUBSCRIPTION, "Get a subscription", returns=SubscriptionView, access="viewer")
async def get_subscription(call: Call[None, NoQuery]) -> SubscriptionView:
    return call.tagged(await call.deps.store.subscriptions.get(call.scope, call.path("id")))


@route(
    "PATCH",
    _SUBSCRIPTION,
    "Change what a subscription reports, or enable or disable it",
    body=SubscriptionPatch,
    returns=SubscriptionView,
    versioned=True,
    access="member",
)
async def update_subscription(call: Call[SubscriptionPatch, NoQuery]) -> SubscriptionView:
    subscriptions = call.deps.store.subscriptions
    scope = call.scope
    subscription_id = call.path("id")
    view = await subscriptions.get(scope, subscription_id)
    if "events" in call.body.model_fields_set:
        _check_events(call.body.events, all_projects=view.project is None)

    return await edit(
        call,
        "a subscription",
        lambda: subscriptions.get(scope, subscription_id),
        lambda patch, versions: subscriptions.update(scope, subscription_id, patch, versions),
    )


@route(
    "DELETE",
    _SUBSCRIPTION,
    "Delete a subscription, with its deliveries",
    returns=SubscriptionView,
    access="member",
)
async def delete_subscription(call: Call[None, NoQuery]) -> SubscriptionView:
    return await call.deps.store.subscriptions.delete(call.scope, call.path("id"))


@route(
    "POST",
    f"{_SUBSCRIPTION}/test",
    "Send a test event to a subscription's target, now",
    returns=DeliveryView,
    status=201,
    access="member",
)
async def test_subscription(call: Call[None, NoQuery]) -> DeliveryView:
    view = await call.deps.store.subscriptions.get(call.scope, call.path("id"))
    data = {"kind": "subscription", "name": view.name, "by": call.scope.actor}
    test = bodies.body(NotificationEvent.TEST, call.deps.clock.now(), data)
    return await call.deps.store.subscriptions.test(call.scope, view.id, test)


@route(
    "POST",
    f"{_SUBSCRIPTION}/rotate",
    "Replace a webhook's signing secret; the previous one also signs for a day",
    returns=SubscriptionSecret,
    access="member",
)
async def rotate_subscription(call: Call[None, NoQuery]) -> SubscriptionSecret:
    secret = _new_secret(call)
    view = await call.deps.store.subscriptions.rotate(
        call.scope, call.path("id"), secret, overlap_s=OVERLAP_S
    )
    return SubscriptionSecret(id=view.id, subscription=view, secret=secret)


@route(
    "GET",
    f"{_SUBSCRIPTION}/deliveries",
    "List a subscription's deliveries, with their attempts and answers",
    query=DeliveryQuery,
    returns=Page[DeliveryView],
    access="viewer",
)
async def list_deliveries(call: Call[None, DeliveryQuery]) -> Page[DeliveryView]:
    return await call.deps.store.subscriptions.deliveries(
        call.scope, call.path("id"), paging(call.query), state=call.query.state
    )


async def create(call: Call[Any, Any], spec: SubscriptionSpec) -> SubscriptionSecret:
    """Create a subscription after its target was checked."""
    _check_events(spec.events, all_projects=spec.all_projects)
    if spec.shared and spec.all_projects:
        raise InvalidInput(
            "shared and all_projects contradict each other",
            field="shared",
            next_step="leave one of them out",
        )

    own = await call.deps.store.subscriptions.own_address(call.scope)
    await call.deps.notifications.check(spec, own)
    signs = spec.channel == "webhook" and spec.format == "json"
    secret = _new_secret(call) if signs else ""
    view = await call.deps.store.subscriptions.create(
        call.scope,
        spec,
        SealedTarget(url=spec.target if spec.channel == "webhook" else "", secret=secret),
        shown=bodies.shown_target(spec),
    )
    return SubscriptionSecret(id=view.id, subscription=view, secret=secret or None)


def _check_events(events: list[NotificationEvent], *, all_projects: bool) -> None:
    if not all_projects and (platform := PLATFORM_EVENTS.intersection(events)):
        raise InvalidInput(
            f"{min(platform)} is about the platform, not a project",
            field="events",
            next_step="as an administrator, set all_projects",
        )


def _new_secret(call: Call[Any, Any]) -> str:
    text = call.deps.clock.secret(signing.SECRET_BYTES)
    return signing.make_secret(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
