"""Subscriptions in Postgres: which events go where, and on whose behalf.

The URL and the signing secret of a subscription are stored with the installation's other secrets.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

import asyncpg
from sqlalchemy import Text

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import Conflict, Forbidden, NotFound, PreconditionFailed
from moorage.common.model.paging import FIRST, Paging
from moorage.common.model.subscriptions import Channel
from moorage.common.views.resources import Page
from moorage.common.views.subscriptions import (
    DeliveryView,
    LastDelivery,
    SubscriptionPatch,
    SubscriptionSpec,
    SubscriptionState,
    SubscriptionView,
)
from moorage.manager.identity.scope import Scope
from moorage.manager.secrets.keyring import Keyring, SealedSecret
from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.cursors import Listing
from moorage.manager.store.database.notifier import Notifier, Topic
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row, as_uuid
from moorage.manager.store.database.unreadable import read_one, read_page
from moorage.manager.store.schema.base import ID, TIME

MAX_PER_OWNER = 50
MAX_QUEUED = 10_000
TURNED_OFF = "turned off"
_LISTING = Listing(
    SQL["subscription_list"],
    {"id": ID, "name": Text(), "created_at": TIME, "channel": Text()},
    sorts=("name", "created_at"),
    key=("id",),
    default="name",
)
_DELIVERIES = Listing(
    SQL["delivery_list"],
    {"id": ID, "created_at": TIME, "state": Text()},
    sorts=("created_at",),
    key=("id",),
    default="-created_at",
)


@dataclass(frozen=True, slots=True)
class SealedTarget:
    """The parts of a subscription that are never shown. ``previous``: the secret before the last
    rotation."""

    url: str = ""
    secret: str = ""
    previous: str = ""


class SubscriptionStore:
    def __init__(self, db: Database, keyring: Keyring, notifier: Notifier, clock: Clock) -> None:
        self._db = db
        self._keyring = keyring
        self._notifier = notifier
        self._clock = clock
        self._connection = db.shared_connection(Purpose.ADMINISTRATION)

    async def create(
        self, scope: Scope, spec: SubscriptionSpec, sealed: SealedTarget, *, shown: str
    ) -> SubscriptionView:
        """Create a subscription of the caller, or of its project. ``shown``: its target without
        secrets. Raises ``Conflict`` if there is
        one with this name or there are too many, and ``Forbidden`` or ``NotFound`` if the caller
        may not create it."""
        if spec.all_projects:
            scope.require_all("subscriptions to all projects")
        if spec.shared and scope.user is not None:
            raise Forbidden(
                "a shared subscription belongs to the project",
                next_step="ask an administrator of the project, or create one of your own",
            )

        subscription_id = self._clock.new_id()
        secret = self._seal(subscription_id, sealed)
        args = (
            subscription_id,
            spec.name,
            None if spec.all_projects else scope.owner.project,
            scope.owner.user,
            spec.shared and not spec.all_projects,
            spec.channel,
            shown,
            spec.format,
            list(spec.events),
            spec.own,
            list(spec.resource_groups),
            spec.selector,
            spec.session_name,
            spec.waiting_s,
            spec.before_end_s,
            spec.enabled,
            "" if spec.enabled else TURNED_OFF,
            0.0,
            scope.actor,
            secret.key_id,
            secret.data,
            self._keyring.ids(),
            MAX_PER_OWNER,
        )
        try:
            rows = await self._connection.fetch(SQL["subscription_create"], *args)
        except asyncpg.UniqueViolationError:
            raise Conflict(
                f"there is a subscription {spec.name!r} already",
                next_step="choose another name, or delete it: `moorage notifications` lists them",
            ) from None

        if not rows:
            raise Conflict(
                f"the owner has {MAX_PER_OWNER} subscriptions, which is the limit, or this manager "
                "does not have the key with which the stored secrets are encrypted",
                next_step="delete one: `moorage notifications` lists them",
            )

        self._notifier.notify([Topic.SUBSCRIPTIONS])
        return await self.get(scope, subscription_id)

    async def page(self, scope: Scope, paging: Paging = FIRST) -> Page[SubscriptionView]:
        """Page of the caller's subscriptions, of those of the projects that it may read, and of its
        projects' users if it administers the project."""
        rows, following = await _LISTING.page(self._db, paging, *self._visible(scope), None)
        return read_page(
            SubscriptionView,
            "subscription",
            rows=rows,
            read=lambda row: _view(row, scope),
            following=following,
        )

    async def get(self, scope: Scope, subscription_id: str) -> SubscriptionView:
        """Raises ``NotFound``."""
        args = *self._visible(scope), as_uuid(subscription_id)
        rows = await self._db.fetch(SQL["subscription_list"], *args) if args[-1] else []
        if not rows:
            raise NotFound(
                f"there is no subscription {subscription_id[:80]!r}",
                next_step="`moorage notifications` lists them",
            )
        return read_one("subscription", subscription_id, rows[0], lambda row: _view(row, scope))

    @staticmethod
    def _visible(scope: Scope) -> tuple[str, None, list[str] | None, bool]:
        projects = None if scope.projects is None else list(scope.projects)
        return scope.owner.user, None, projects, scope.user is None

    async def changeable(self, scope: Scope, subscription_id: str) -> SubscriptionView:
        """The subscription, if the caller may change it. Raises ``NotFound`` and ``Forbidden``."""
        view = await self.get(scope, subscription_id)
        if not controls(scope, view.user, view.project, shared=view.shared):
            raise Forbidden(
                f"subscription {view.name!r} belongs to "
                f"{'project ' + str(view.project) if view.shared else 'user ' + view.user}",
                next_step="ask an administrator of the project to change it",
            )
        return view

    async def update(
        self,
        scope: Scope,
        subscription_id: str,
        patch: SubscriptionPatch,
        if_match: Collection[int] | None = None,
    ) -> SubscriptionView:
        """Raises ``NotFound``, ``Forbidden`` and ``PreconditionFailed``."""
        view = await self.changeable(scope, subscription_id)
        rows = await self._connection.fetch(
            SQL["subscription_update"],
            view.id,
            None if if_match is None else list(if_match),
            list(patch.events),
            patch.own,
            list(patch.resource_groups),
            patch.selector,
            patch.session_name,
            patch.waiting_s,
            patch.before_end_s,
            patch.enabled,
            view.reason if view.state == "disabled" and view.reason else TURNED_OFF,
        )
        if not rows:
            raise PreconditionFailed(
                f"subscription {view.name!r} has changed",
                next_step="read it again and repeat the change",
            )

        self._notifier.notify([Topic.SUBSCRIPTIONS])
        return await self.get(scope, view.id)

    async def delete(self, scope: Scope, subscription_id: str) -> SubscriptionView:
        """Delete a subscription with its deliveries. Returns its last state."""
        view = await self.changeable(scope, subscription_id)
        await self._connection.fetch(SQL["subscription_delete"], view.id)
        return view

    async def rotate(
        self, scope: Scope, subscription_id: str, secret: str, *, overlap_s: float
    ) -> SubscriptionView:
        """Replace the signing secret. The previous one also signs for ``overlap_s`` seconds. Raises
        ``Conflict`` if the subscription has none."""
        view = await self.changeable(scope, subscription_id)
        old = await self.sealed(view.id)
        if view.channel != "webhook" or old is None or not old.secret:
            raise Conflict(
                f"subscription {view.name!r} signs nothing, so it has no secret",
                next_step="create a webhook of the format json",
            )

        new = self._seal(view.id, SealedTarget(old.url, secret, old.secret))
        until = self._clock.now().timestamp() + overlap_s
        rows = await self._connection.fetch(
            SQL["subscription_reseal"],
            view.id,
            new.key_id,
            new.data,
            scope.actor,
            self._keyring.ids(),
            self._clock.now().fromtimestamp(until, self._clock.now().tzinfo),
        )
        if not rows:
            raise Conflict(
                "this manager does not have the key with which the stored secrets are encrypted",
                next_step="rotate the secret at another manager",
            )
        return await self.get(scope, view.id)

    async def test(self, scope: Scope, subscription_id: str, body: dict[str, Any]) -> DeliveryView:
        """Queue a test event. Raises ``Conflict`` if the queue is full."""
        view = await self.changeable(scope, subscription_id)
        delivery_id = self._clock.new_id()
        args = view.id, delivery_id, view.name, body, MAX_QUEUED
        if not await self._connection.fetch(SQL["delivery_test"], *args):
            raise Conflict(
                f"subscription {view.name!r} has {MAX_QUEUED:,} deliveries that wait",
                next_step="repair its receiver, or delete the subscription",
            )

        self._notifier.notify([Topic.SUBSCRIPTIONS])
        rows = await self._db.fetch(
            f"SELECT * FROM ({SQL['delivery_list']}) d WHERE id = $2", view.id, delivery_id
        )
        return _delivery(rows[0])

    async def deliveries(
        self,
        scope: Scope,
        subscription_id: str,
        paging: Paging = FIRST,
        *,
        state: str | None = None,
    ) -> Page[DeliveryView]:
        """Page of the deliveries, the newest first. Raises ``NotFound``."""
        view = await self.get(scope, subscription_id)
        rows, following = await _DELIVERIES.page(self._db, paging, view.id, only={"state": state})
        return read_page(
            DeliveryView,
            "delivery",
            rows=rows,
            read=_delivery,
            following=following,
            name="id",
        )

    async def sealed(self, subscription_id: str) -> SealedTarget | None:
        """The URL and secrets of a subscription, for the sender. None if it has been deleted.
        Raises ``ConfigError`` if the keyring lacks the key."""
        row = await self._db.fetchrow(SQL["subscription_sealed"], subscription_id)
        if row is None:
            return None
        stored = SealedSecret(row["key_id"], row["sealed"])
        return SealedTarget(**json.loads(self._keyring.open(stored, "", _name(subscription_id))))

    async def own_address(self, scope: Scope) -> str:
        """The caller's own e-mail address, or "" if its entry has none."""
        row = await self._db.fetchrow(SQL["subscription_address"], scope.owner.user)
        return "" if row is None else str(row["email"])

    async def unknown_names(self, scope: Scope, names: Collection[str]) -> list[str]:
        """The names among ``names`` that no subscription of the caller in its project has."""
        args = scope.owner.user, scope.owner.project, list(names)
        rows = await self._db.fetch(SQL["subscription_named"], *args)
        return sorted(set(names) - {row["name"] for row in rows})

    def _seal(self, subscription_id: str, target: SealedTarget) -> SealedSecret:
        return self._keyring.seal(json.dumps(asdict(target)), "", _name(subscription_id))


def controls(scope: Scope, user: str, project: str | None, *, shared: bool) -> bool:
    """Whether the caller may change a subscription."""
    if project is None:
        return scope.projects is None and scope.controls(user, "")
    if shared:
        return scope.user is None and scope.controls(user, project)
    return scope.controls(user, project)


def _name(subscription_id: str) -> str:
    return f"subscription/{subscription_id}"


def _view(row: Row, scope: Scope) -> SubscriptionView:
    fields = {name: row[name] for name in SubscriptionView.model_fields if name in row}
    target = row["target"]
    project = row["project"]
    if not controls(scope, row["user"], project, shared=row["shared"]):
        target = _masked(row["channel"], target)

    last = None
    if row["last_at"] is not None:
        last = LastDelivery(
            at=row["last_at"],
            event=row["last_event"],
            state=row["last_state"],
            attempts=row["last_attempts"],
            answer=row["last_answer"],
        )

    return SubscriptionView.model_validate(
        fields | {"state": _state(row), "target": target, "last_delivery": last}
    )


def _state(row: Row) -> SubscriptionState:
    if not row["enabled"]:
        return "disabled"
    return "failing" if row["failures"] else "active"


def _masked(channel: Channel, target: str) -> str:
    if channel == "webhook":
        scheme, _, rest = target.partition("://")
        return f"{scheme}://{rest.partition('/')[0]}/…"
    return f"…@{target.partition('@')[2]}" if target else ""


def _delivery(row: Row) -> DeliveryView:
    return DeliveryView.model_validate(
        {name: row[name] for name in DeliveryView.model_fields if name in row}
    )
