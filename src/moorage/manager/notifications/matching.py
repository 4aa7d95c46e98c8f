"""Choice of the subscriptions that get an event. Pure.

A subscription gets an event if its owner may read what it is about, and either its events and
filters match or the session itself names the subscription.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from moorage.common.model.errors import InvalidInput
from moorage.common.model.labels import Selector, matches, parse_selector
from moorage.common.model.subscriptions import PLATFORM_EVENTS, NotificationEvent


@dataclass(frozen=True, slots=True)
class Occurrence:
    """What has happened. ``events``: its names, the most specific first. ``key``: names it among
    everything that happens. ``project``: None for the platform's own. ``notify``: the subscriptions
    of ``user`` that the session names, with their events. ``only``: the subscription that is meant,
    if not all are."""

    events: tuple[NotificationEvent, ...]
    key: str
    subject: str
    at: datetime
    project: str | None
    user: str
    data: Mapping[str, Any]
    resource_group: str = ""
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    notify: Mapping[str, Collection[str]] = field(default_factory=dict)
    is_session: bool = False
    only: str | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription. ``project``: None means all. ``allowed``: whether its owner may still read
    the project. ``after_event``: the newest row of the outbox when it was created."""

    id: str
    name: str
    project: str | None
    user: str
    shared: bool
    events: frozenset[str]
    own: bool
    resource_groups: frozenset[str]
    selector: Selector
    session_name: str
    allowed: bool
    after_event: int

    @staticmethod
    def of(row: Mapping[str, Any]) -> Subscription:
        """Read a row. A selector that this release cannot read matches nothing."""
        try:
            selector = parse_selector(row["selector"]) if row["selector"] else ()
            allowed = bool(row["allowed"])
        except (ValueError, InvalidInput):
            selector = ()
            allowed = False

        return Subscription(
            id=row["id"],
            name=row["name"],
            project=row["project"],
            user=row["user"],
            shared=row["shared"],
            events=frozenset(row["events"]),
            own=row["own"] and not row["shared"],
            resource_groups=frozenset(row["resource_groups"]),
            selector=selector,
            session_name=row["session_name"],
            allowed=allowed,
            after_event=row["after_event"],
        )


def glob_matches(pattern: str, text: str) -> bool:
    """Whether the whole text matches, with the wildcards * and ?.

    A failed match goes back to the last * only, so the time grows with the product of the lengths
    whatever the pattern."""
    at = 0
    here = 0
    star = -1
    resumed = 0
    while here < len(text):
        if at < len(pattern) and pattern[at] == "*":
            star = at
            resumed = here
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", text[here]):
            at += 1
            here += 1
        elif star >= 0:
            at = star + 1
            resumed += 1
            here = resumed
        else:
            return False

    return pattern[at:].strip("*") == ""


def event_for(subscription: Subscription, occurrence: Occurrence) -> NotificationEvent | None:
    """The event that the subscription gets, or None."""
    if not _reads(subscription, occurrence):
        return None

    wanted: set[str] = set()
    if _passes(subscription, occurrence):
        wanted |= subscription.events
    if subscription.user == occurrence.user and not subscription.shared:
        wanted |= set(occurrence.notify.get(subscription.name, ()))

    return next((event for event in occurrence.events if event in wanted), None)


def _reads(subscription: Subscription, occurrence: Occurrence) -> bool:
    if not subscription.allowed:
        return False
    if occurrence.only not in (None, subscription.id):
        return False
    if subscription.project is None:
        return True

    if PLATFORM_EVENTS.intersection(occurrence.events):
        return False
    if occurrence.project is None:  # a budget of a user, or of its key
        return subscription.user == occurrence.user and not subscription.shared
    return subscription.project == occurrence.project


def _passes(subscription: Subscription, occurrence: Occurrence) -> bool:
    if subscription.own and occurrence.user and subscription.user != occurrence.user:
        return False

    groups = subscription.resource_groups
    if groups and occurrence.resource_group and occurrence.resource_group not in groups:
        return False
    if not occurrence.is_session:
        return True
    if not matches(subscription.selector, occurrence.labels):
        return False

    pattern = subscription.session_name
    return not pattern or glob_matches(pattern, occurrence.name)
