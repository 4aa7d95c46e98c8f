"""Texts and bodies of notifications. Pure.

They contain only what every member of the project may read: no output, no environment, and no
message that could name a session of another project.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from moorage.common.model.printable import printable
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.subscriptions import NotificationEvent
from moorage.common.views.subscriptions import SubscriptionSpec

_MAX_NAME = 200
_HAPPENED = {
    NotificationEvent.SESSION_STARTED: "has started",
    NotificationEvent.SESSION_ENDED: "has ended",
    NotificationEvent.SESSION_FAILED: "has failed",
    NotificationEvent.SESSION_TIME_LIMIT: "is about to reach its time limit",
    NotificationEvent.SESSION_WAITING: "has been waiting for long",
    NotificationEvent.PIPELINE_ENDED: "has ended",
    NotificationEvent.PIPELINE_FAILED: "has failed",
    NotificationEvent.BUDGET_WARNING: "has reached its soft limit",
    NotificationEvent.BUDGET_EXHAUSTED: "is exhausted",
    NotificationEvent.ENDPOINT_DEGRADED: "has fewer ready replicas than it should have",
    NotificationEvent.NODE_LOST: "is lost: it no longer reports",
    NotificationEvent.TEST: "works: this is a test",
}


def shown_target(spec: SubscriptionSpec) -> str:
    """The target of a subscription as it is shown. The path of a chat's webhook is its secret."""
    if spec.channel == "mail" or spec.format == "json":
        return spec.target
    scheme, _, rest = spec.target.partition("://")
    return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}/…"


def body(event: NotificationEvent, at: datetime, data: Mapping[str, Any]) -> dict[str, Any]:
    """The body of an event, in the form of Standard Webhooks."""
    return {"type": str(event), "timestamp": at.isoformat(), "data": dict(data)}


def line(event: str, data: Mapping[str, Any]) -> str:
    """One sentence for people."""
    kind = str(data.get("kind", "subscription"))
    name = printable(str(data.get("name", "")), one_line=True)[:_MAX_NAME]
    project = data.get("project")
    place = f" of project {project}" if project and kind not in ("budget", "node") else ""
    known = event in set(NotificationEvent)
    happened = _HAPPENED[NotificationEvent(event)] if known else event
    text = f"{kind.capitalize()} {name}{place} {happened}"
    return f"{text}: {why}." if (why := _why(data)) else f"{text}."


def _why(data: Mapping[str, Any]) -> str:
    parts = []
    if (code := data.get("exit_code")) not in (None, 0):
        parts.append(f"exit code {code}")
    if data.get("reason_text"):
        parts.append(str(data["reason_text"]))
    if data.get("ends_at"):
        parts.append(f"it ends at {data['ends_at']}")
    if data.get("waiting_since"):
        parts.append(f"since {data['waiting_since']}")
    if data.get("used_text"):
        parts.append(str(data["used_text"]))

    return ", ".join(parts)


def reason_text(reason: str) -> str:
    """The text of a reason code; empty for one that this release does not know."""
    return REASONS[Reason(reason)].text if reason in set(Reason) and reason else ""


def chat_body(chat: str, text: str) -> bytes:
    """The body for an incoming webhook of a chat, in which names cannot mention anybody."""
    if chat == "discord":
        return _json({"content": text, "allowed_mentions": {"parse": []}})
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _json({"text": escaped})


def json_body(document: Mapping[str, Any]) -> bytes:
    """The bytes that are signed and sent, the same in every attempt."""
    return _json(document)


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()
