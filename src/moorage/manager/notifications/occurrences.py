"""Occurrences from rows of the outbox and the rows that they are about. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from moorage.common.model.budget_units import format_budget_amount
from moorage.common.model.subscriptions import INCLUDES, NotificationEvent
from moorage.manager.notifications.bodies import reason_text
from moorage.manager.notifications.matching import Occurrence

Row = Mapping[str, Any]


def of_session(row: Row, session: Row) -> Occurrence:
    """A session has started or ended."""
    event = NotificationEvent(row["event"])
    events: tuple[NotificationEvent, ...] = (event,)
    data = _session_data(session)
    data |= {"status": row["body"]["status"], "reason": row["body"]["reason"]}
    if event is NotificationEvent.SESSION_ENDED:
        failed = session["status"] == "ERROR" or session["result"] == "FAILED"
        events = (INCLUDES[event], event) if failed else events
        data |= {
            "result": session["result"],
            "exit_code": session["exit_code"],
            "reason_text": reason_text(data["reason"]),
            "ended_at": row["at"].isoformat(),
        }

    key = f"{session['id']}:{row['revision']}"
    return _about_session(session, events, key=key, at=row["at"], data=data)


def waiting(session: Row, now: datetime, only: str) -> Occurrence:
    """A session has waited for as long as the subscription ``only`` allows."""
    data = _session_data(session) | {
        "status": session["status"],
        "waiting_since": session["created_at"].isoformat(),
    }
    key = f"{session['id']}:waiting"
    return _about_session(
        session, (NotificationEvent.SESSION_WAITING,), key=key, at=now, data=data, only=only
    )


def ending(session: Row, now: datetime, only: str) -> Occurrence:
    """The time limit of a session is near. Another limit is another occurrence."""
    ends_at = session["deadline_at"].isoformat() if session["deadline_at"] is not None else ""
    data = _session_data(session) | {"status": session["status"], "ends_at": ends_at}
    key = f"{session['id']}:ends:{session['attempt']}:{ends_at}"
    return _about_session(
        session, (NotificationEvent.SESSION_TIME_LIMIT,), key=key, at=now, data=data, only=only
    )


def _about_session(
    session: Row,
    events: tuple[NotificationEvent, ...],
    *,
    key: str,
    at: datetime,
    data: Mapping[str, Any],
    only: str | None = None,
) -> Occurrence:
    return Occurrence(
        events=events,
        key=f"session:{key}",
        subject=session["name"],
        at=at,
        project=session["project"],
        user=session["owner"],
        data=data,
        resource_group=session["resource_group"],
        name=session["name"],
        labels=session["user_labels"],
        notify=session["notify"] or {},
        is_session=True,
        only=only,
    )


def _session_data(session: Row) -> dict[str, Any]:
    started = session["ready_at"]
    return {
        "kind": "session",
        "id": session["id"],
        "name": session["name"],
        "project": session["project"],
        "user": session["owner"],
        "resource_group": session["resource_group"],
        "type": session["type"],
        "attempt": session["attempt"],
        "labels": session["user_labels"],
        "created_at": session["created_at"].isoformat(),
        "started_at": None if started is None else started.isoformat(),
    }


def of_pipeline(row: Row, pipeline: Row) -> Occurrence:
    """All steps of a pipeline have ended."""
    event = NotificationEvent.PIPELINE_ENDED
    failed = pipeline["failed"] > 0
    return Occurrence(
        events=(INCLUDES[event], event) if failed else (event,),
        key=f"pipeline:{pipeline['id']}:{pipeline['runs']}",
        subject=pipeline["name"],
        at=row["at"],
        project=pipeline["project"],
        user=pipeline["owner"],
        data={
            "kind": "pipeline",
            "id": pipeline["id"],
            "name": pipeline["name"],
            "project": pipeline["project"],
            "user": pipeline["owner"],
            "steps": pipeline["steps"],
            "failed": pipeline["failed"],
            "reason_text": f"{pipeline['failed']} of {pipeline['steps']} steps" if failed else "",
        },
    )


def of_budget(row: Row, key_owner: str) -> Occurrence:
    """A budget has reached a limit. ``key_owner``: owner of the key, for the budget of a key."""
    alert = row["body"]
    scope = alert["scope"]
    name = alert["name"]
    unit = alert["unit"]
    user = name if scope == "user" else key_owner if scope == "key" else ""
    used = format_budget_amount(unit, alert["used"], "")
    limit = format_budget_amount(unit, alert["threshold"], "")

    return Occurrence(
        events=(NotificationEvent(row["event"]),),
        key=f"budget:{row['subject']}",
        subject=f"{scope} {name}",
        at=row["at"],
        project=name if scope == "project" else None,
        user=user,
        data={
            "kind": "budget",
            "name": f"of {scope} {name}",
            "scope": scope,
            "owner": name,
            "unit": unit,
            "period": alert["period"],
            "level": alert["level"],
            "threshold": alert["threshold"],
            "used": alert["used"],
            "resets_at": alert["resets_at"],
            "used_text": f"{used} of {limit} used by the {alert['period']}",
        },
    )


def of_agent(row: Row) -> Occurrence:
    """A node no longer reports."""
    return Occurrence(
        events=(NotificationEvent.NODE_LOST,),
        key=f"node:{row['subject']}:{row['revision']}",
        subject=row["subject"],
        at=row["at"],
        project=None,
        user="",
        data={"kind": "node", "name": row["subject"], **row["body"]},
        resource_group=row["body"]["resource_group"],
    )


def of_endpoint(row: Row, endpoint: Row) -> Occurrence:
    """An endpoint has been degraded for some time."""
    return Occurrence(
        events=(NotificationEvent.ENDPOINT_DEGRADED,),
        key=f"endpoint:{row['subject']}:{row['revision']}",
        subject=endpoint["name"],
        at=row["at"],
        project=endpoint["project"],
        user=endpoint["owner"],
        data={
            "kind": "endpoint",
            "id": endpoint["id"],
            "name": endpoint["name"],
            "project": endpoint["project"],
            "user": endpoint["owner"],
            "since": row["at"].isoformat(),
        },
        resource_group=endpoint["resource_group"] or "",
    )
