"""Maps rows to the API's views, and parses values that rows hold as text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from moorage.common.model.newer_values import known_part
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.runtimes import hostnames_resolve
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import LIVE, TERMINAL, ObservedState, Result, Status
from moorage.common.views import resources
from moorage.common.views.progress import ProgressView
from moorage.common.views.reload import ReloadView
from moorage.common.views.steps import StepRef
from moorage.manager.store.database.rows import Row

# Columns whose values a pending session takes from the session whose run it shares.
MIRRORED = ("status", "result", "reason", "detail", "status_since")


def mirrored(row: Row) -> dict[str, Any]:
    """The column values that a session takes from the one whose run it shares; empty if that
    session ended without a result, because another one then takes its place."""
    if row["shared_status"] in LIVE or row["shared_result"] == Result.SUCCESS:
        return {name: row[f"shared_{name}"] for name in MIRRORED}
    return {}


def cluster_names(spec: SessionSpec, isolated: bool) -> bool | None:
    """``SessionView.hostnames_resolve``"""
    return None if spec.cluster is None else hostnames_resolve(spec.runtime, isolated)


def session_view(row: Row, kernels: Iterable[Row], endpoint: str | None) -> resources.SessionView:
    spec, needs_newer = shown_spec(row["spec_text"])
    return resources.SessionView(
        id=row["id"],
        name=row["name"],
        type=row["type"],
        **(
            {name: row[name] for name in MIRRORED}
            | (mirrored(row) if row["status"] == Status.PENDING else {})
        ),
        resource_group=row["resource_group"],
        priority=row["priority"],
        attempt=row["attempt"],
        revision=row["revision"],
        endpoint=endpoint,
        created_at=row["created_at"],
        deadline_at=row["deadline_at"],
        adopted_from=row["adopted_from"],
        user=row["owner"],
        project=row["project"],
        isolated=row["isolated"],
        requeues=row["requeues"],
        not_before=row["not_before"],
        slots=row["slots"],
        spec=spec,
        template=row["template"],
        pipeline=step_ref(row),
        user_labels=row["user_labels"],
        kernels=[kernel_view(k) for k in kernels],
        hostnames_resolve=cluster_names(spec, row["isolated"]),
        needs_newer_manager=needs_newer,
        warnings=[],  # pydantic would copy the default
        hold=None if needs_newer else _hold(row),
        held=_held(row),
        suspended=_suspension(row),
    )


def step_ref(row: Row) -> StepRef | None:
    if row["pipeline_id"] is None:
        return None

    index = None if row["step_index"] == -1 else row["step_index"]
    return StepRef(
        id=row["pipeline_id"],
        name=row["pipeline_name"],
        step=row["step"],
        index=index,
        run=row["step_run"],
    )


# Limit the memory for cached specifications, of which the largest need some 15 KB.
_KEPT_SPECS = 2048
_KEPT_SPEC_CHARS = 4096


def stored_spec(text: str) -> SessionSpec:
    """Specification of a session as stored. Cached, because validating one takes as long as
    everything else about a row in a listing, and people look at the same sessions again and
    again."""
    return (
        _kept_spec(text) if len(text) <= _KEPT_SPEC_CHARS else SessionSpec.model_validate_json(text)
    )


@lru_cache(maxsize=_KEPT_SPECS)
def _kept_spec(text: str) -> SessionSpec:
    return SessionSpec.model_validate_json(text)


def shown_spec(text: str) -> tuple[SessionSpec, str]:
    """A session's specification for display, and a text about the part that this release does not
    know, which is empty if there is none."""
    try:
        return stored_spec(text), ""
    except ValueError:
        stored = json.loads(text)
        return known_part(SessionSpec, stored if isinstance(stored, dict) else {}, _UNKNOWN_SPEC)


# Shown instead of a specification of which this release can read nothing.
_UNKNOWN_SPEC = {"command": ["unknown"]}


def _hold(row: Row) -> resources.Hold | None:
    """A pending session's hold: that of a person, the one that the scheduler last recorded or,
    before its first pass, the begin time or backoff, if any."""
    if row["status"] != Status.PENDING or row["adopted_from"] is not None:
        return None
    if (held := _held(row)) is not None:
        text = held_text(held)
        return resources.Hold(reason=Reason.HELD, text=text, attempts=0, at=held.since)
    if row["hold"] is not None:
        return resources.Hold(**row["hold"])
    return begin_time_hold(row["not_before"], row["starts_at"], row["status_since"])


def _held(row: Row) -> resources.UserHold | None:
    if row["held_by"] is None or row["status"] != Status.PENDING:
        return None
    return resources.UserHold(by=row["held_by"], role=row["held_as"], since=row["held_at"])


def _suspension(row: Row) -> resources.Suspension | None:
    if row["status"] != Status.RUNNING or row["suspended_attempt"] != row["attempt"]:
        return None
    return resources.Suspension(by=row["suspended_by"], since=row["suspended_at"])


def held_text(held: resources.UserHold) -> str:
    """Who holds a session, and who may release it."""
    releases = {
        "owner": "its owner or an administrator",
        "project-admin": "an administrator of its project or of the platform",
        "admin": "an administrator of the platform",
    }
    since = f"{held.since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"held by {held.by} since {since}; {releases[held.role]} can release it"


def begin_time_hold(
    not_before: datetime | None, starts_at: datetime | None, since: datetime
) -> resources.Hold | None:
    """The hold of a session that is not yet eligible for scheduling; None if it is eligible."""
    reason = Reason.BACKOFF if not_before else Reason.BEGIN_TIME
    until = not_before or starts_at
    if until is None:
        return None
    text = f"{REASONS[reason].text}: not before {until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return resources.Hold(reason=reason, text=text, attempts=0, at=since)


def kernel_view(row: Row) -> resources.KernelView:
    return resources.KernelView(
        id=row["id"],
        role=row["cluster_role"],
        index=row["cluster_index"],
        hostname=row["hostname"],
        attempt=row["attempt"],
        status=row["status"],
        agent_id=row["agent_id"],
        observed=ObservedState(row["observed"]) if row["observed"] else None,
        host=row["host"],
        port=row["port"],
        exit_code=row["exit_code"],
        reason=row["reason"],
        detail=row["detail"],
        log_tail=row["log_tail"],
        devices=[resources.DeviceView(**d) for d in row["devices"]],
        status_since=row["status_since"],
        expected_start=row["expected_start"],
        ends_at=row["ends_at"],
        unreachable_since=row["unreachable_since"],
        silent_since=row["silent_since"],
        progress=row["progress"] and ProgressView(**row["progress"]),
        reload=row["reload"] and reload_view(row["reload"] | {"status": row["status"]}),
    )


def reload_view(row: Row) -> ReloadView:
    """The view of a reload. ``status``: the status of its kernel."""
    is_done = row["ended"] == row["generation"]
    state = row["outcome"] if is_done else "ended" if row["status"] in TERMINAL else "requested"
    return ReloadView(**{"state": state} | {name: row[name] for name in row if name in _RELOAD})


_RELOAD = ReloadView.model_fields.keys() - {"state"}


@lru_cache(maxsize=1024)
def parse_spec(text: str) -> SessionSpec:
    """Parse a specification. Cached, because most sessions that arrive in large numbers have the
    same one."""
    return SessionSpec.model_validate_json(text)
