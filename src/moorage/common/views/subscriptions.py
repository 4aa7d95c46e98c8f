"""REST models of subscriptions to events and their deliveries."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from moorage.common.model.labels import SELECTOR_LENGTH, parse_selector
from moorage.common.model.spec import Model, Name, NoNul
from moorage.common.model.subscriptions import (
    MAX_TARGET,
    BodyFormat,
    Channel,
    NotificationEvent,
)
from moorage.common.views.resources import View

DeliveryState = Literal["pending", "delivered", "failed"]
SubscriptionState = Literal["active", "failing", "disabled"]


def _check_labels(text: str) -> str:
    if text:
        parse_selector(text)
    return text


def _check_events(events: list[NotificationEvent]) -> list[NotificationEvent]:
    if NotificationEvent.TEST in events:
        raise ValueError("test is sent on request; nothing subscribes to it")
    return list(dict.fromkeys(events))


class SubscriptionPatch(Model):
    """The body of ``PATCH /v1/subscriptions/{id}``; its fields replace the stored ones."""

    EXAMPLE: ClassVar = {"events": ["session.failed"], "enabled": True}

    events: Annotated[list[NotificationEvent], AfterValidator(_check_events)] = Field(
        default=[],
        max_length=len(NotificationEvent),
        description=(
            "Events to report. Without any, only sessions that name the subscription in `notify` "
            "are reported."
        ),
    )
    own: bool = Field(
        default=True,
        description="Only sessions, pipelines and endpoints of the subscription's user.",
    )
    resource_groups: Annotated[list[Name], Field(max_length=100)] = Field(
        default=[], description="Only in these resource groups; empty means all."
    )
    selector: Annotated[str, AfterValidator(_check_labels)] = Field(
        default="",
        max_length=SELECTOR_LENGTH,
        description="Only sessions with these labels, in Kubernetes syntax: `team=vision,!old`.",
    )
    session_name: Annotated[NoNul, Field(max_length=128)] = Field(
        default="", description="Only sessions with this name; * and ? are wildcards."
    )
    waiting_s: Annotated[float, Field(ge=60, le=31_536_000)] = Field(
        default=3600, description="session.waiting: seconds in the queue after which it is sent."
    )
    before_end_s: Annotated[float, Field(ge=60, le=604_800)] = Field(
        default=600, description="session.time-limit: seconds before the end at which it is sent."
    )
    enabled: bool = Field(
        default=True,
        description="Whether events are reported. Enabling ends the disabling after failures.",
    )


class SubscriptionSpec(SubscriptionPatch):
    """The body of ``POST /v1/subscriptions``."""

    EXAMPLE: ClassVar = {
        "name": "lab-chat",
        "channel": "webhook",
        "target": "https://hooks.example.com/moorage",
        "events": ["session.ended", "session.failed"],
    }

    name: Name = Field(description="Unique among the subscriptions of its owner.")
    channel: Channel
    target: Annotated[NoNul, Field(max_length=MAX_TARGET)] = Field(
        default="",
        description=(
            "webhook: an https URL. mail: an e-mail address; empty means the user's own, as the "
            "user's entry has it when the mail is sent."
        ),
    )
    format: BodyFormat = Field(
        default="json",
        description=(
            "Body of a webhook. json: the event. slack (also for Mattermost), discord: one line of "
            "text for an incoming webhook."
        ),
    )
    shared: bool = Field(
        default=False,
        description="It belongs to the project: its administrators change it, its members see it.",
    )
    all_projects: bool = Field(
        default=False, description="Events of all projects and nodes; for administrators."
    )


class LastDelivery(View):
    at: datetime
    event: NotificationEvent
    state: DeliveryState
    attempts: int
    answer: str = ""


class SubscriptionView(View):
    """A subscription, without its secrets."""

    id: str
    name: str
    project: str | None = Field(description="Project whose events it reports; null means all.")
    user: str
    shared: bool
    channel: Channel
    target: str = Field(
        description=(
            "Where events are sent. The path of a chat's webhook is a secret and not shown, and "
            "callers who may not change the subscription see only the host."
        )
    )
    format: BodyFormat
    events: list[NotificationEvent]
    own: bool
    resource_groups: list[str]
    selector: str
    session_name: str
    waiting_s: float
    before_end_s: float
    enabled: bool
    state: SubscriptionState
    reason: str = Field(description="Why it is disabled, or what the last attempt failed with.")
    queued: int = Field(description="Deliveries that wait to be sent.")
    dropped: int = Field(description="Events that were not queued because the queue was full.")
    last_delivery: LastDelivery | None = None
    previous_secret_until: datetime | None = Field(
        default=None, description="Until then, bodies are signed with the previous secret too."
    )
    version: int = Field(default=0, description="Differs after each change; the ETag.")
    created_at: datetime
    created_by: str = ""


class SubscriptionSecret(View):
    """A subscription with its signing secret, which is shown only once."""

    id: str
    subscription: SubscriptionView
    secret: str | None = Field(
        description="Secret of the signatures, `whsec_…`; null for mail and chats."
    )


class DeliveryView(View):
    """An event for a subscription, and the attempts to deliver it."""

    id: str = Field(description="Also the header webhook-id, the same in every attempt.")
    event: NotificationEvent
    subject: str = Field(description="The session, pipeline, endpoint, budget or node.")
    happened_at: datetime
    state: DeliveryState
    attempts: int
    attempted_at: datetime | None = None
    next_attempt_at: datetime | None = None
    answer: str = Field(description="Answer to the last attempt, or why there was none.")
