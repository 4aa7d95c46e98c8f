"""Rows of endpoints and their replicas, read as snapshots and views."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from moorage.common.model.ids import EndpointId, SessionId
from moorage.common.model.newer_values import NEEDS, known_part, why_unreadable
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.serving import Routing
from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import Status
from moorage.common.views.endpoints import ReplicaView
from moorage.manager.identity.keys import Owner
from moorage.manager.serving.snapshots import (
    BudgetStop,
    EndpointSnapshot,
    EngineLoad,
    ReplicaSnapshot,
    Stable,
    StartHistory,
)
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row
from moorage.manager.store.database.unreadable import UNREADABLE, UnreadableRows
from moorage.manager.store.database.windows import FRESH_S, STARTS

# Fields that are kept out of ``endpoints.spec`` because the previous release does not know them.
_SERVING = frozenset(
    {"autoscale", "rollout", "max_lifetime_s", "routing", "adapters", "limits", "resource_groups"}
)


@dataclass(frozen=True, slots=True)
class EndpointRecord:
    """Endpoint as stored, with views of its replicas, newest first. ``version`` changes whenever a
    user makes a change. ``newest``: its newest revision. ``rolled_back``: the revision whose
    failure, for ``rollout_reason``, has returned it to its target; None if a user has chosen the
    target. ``needs_newer``: the part of the endpoint or its replicas that this release does not
    know and omits; empty if there is none."""

    snapshot: EndpointSnapshot
    version: int
    created_at: datetime
    replicas: list[ReplicaView]
    shared_with: list[str]
    user_labels: dict[str, str] = field(default_factory=dict)
    newest: int = 1
    scalings: int = 0
    rolled_back: int | None = None
    rollout_reason: Reason = Reason.NONE
    rollout_detail: str = ""
    needs_newer: str = ""


def spec_columns(spec: EndpointSpec) -> tuple[dict[str, Any], dict[str, Any]]:
    """``spec`` and ``serving`` of a row. As in ``creation.stored_json``, a manager of the previous
    release can read a specification that sets no new fields."""
    serving = spec.model_dump(mode="json", include=set(_SERVING), exclude_none=True)
    if spec.routing == Routing():
        del serving[
            "routing"
        ]  # most endpoints have the default, and the routes are read without this column
    if not spec.resource_groups:
        del serving["resource_groups"]
    if not spec.adapters:
        del serving["adapters"]

    without = _SERVING if spec.secret_env else _SERVING | {"secret_env"}  # as in ``template``
    return spec.model_dump(mode="json", exclude=set(without), exclude_none=True), serving


async def read_endpoints(db: Database, ids: Sequence[str]) -> list[EndpointRecord]:
    """Endpoints that are not deleted, and deleted ones that still have live replicas; oldest
    first."""
    found = await db.fetch(SQL["endpoints_to_reconcile"], list(ids), FRESH_S) if ids else []
    replicas: defaultdict[str, list[Row]] = defaultdict(list)
    if found:
        for row in await db.fetch(SQL["endpoint_sessions"], [row["id"] for row in found], FRESH_S):
            replicas[row["endpoint_id"]].append(row)
    starts = await _start_histories(db, replicas)
    return [_record(row, replicas[row["id"]], starts[row["id"]]) for row in found]


def to_reconcile(
    records: Sequence[EndpointRecord], unreadable: UnreadableRows
) -> list[EndpointSnapshot]:
    """Endpoints to reconcile. An endpoint that needs a newer manager is omitted unless it is
    deleted, because all of an endpoint's fields affect how replicas are started and stopped."""
    found = []
    for record in records:
        if record.needs_newer and not record.snapshot.deleted:
            unreadable.met("endpoint", record.snapshot.endpoint_id, record.needs_newer)
        else:
            found.append(record.snapshot)

    return found


async def _start_histories(
    db: Database, replicas: Mapping[str, Sequence[Row]]
) -> defaultdict[str, dict[str, StartHistory]]:
    """Start histories by endpoint and resource group, for endpoints with site jobs."""
    pairs = {
        (row["endpoint_id"], row["resource_group"])
        for rows in replicas.values()
        for row in rows
        if row["walltime_s"]
    }
    found: defaultdict[str, dict[str, StartHistory]] = defaultdict(dict)
    if pairs:
        for row in await db.fetch(SQL["start_history"], *zip(*sorted(pairs), strict=True), STARTS):
            history = StartHistory(**{name: row[name] for name in StartHistory.__slots__})
            found[row["endpoint_id"]][row["resource_group"]] = history

    return found


def _record(
    row: Row, replicas: Sequence[Row], starts: Mapping[str, StartHistory]
) -> EndpointRecord:
    spec, needs_newer = _spec(row["name"], _fields(row["spec"]) | _fields(row["serving"]))
    stable, stable_needs = _stable(row)
    shown: list[tuple[Row, ReplicaSnapshot]] = []
    for replica in replicas:
        try:
            shown.append((replica, _replica(replica)))
        except UNREADABLE as error:
            needs_newer = needs_newer or f"replica {replica['name']} {why_unreadable(error)}"

    reason, reason_needs = _rollout_reason(row)
    labels, labels_need = _user_labels(row)
    return EndpointRecord(
        EndpointSnapshot(
            EndpointId(row["id"]),
            row["name"],
            spec=spec,
            wanted=row["replicas"],
            changed_at=row["changed_at"],
            deleted=row["deleted_at"] is not None,
            replicas=tuple(snapshot for _, snapshot in shown),
            owner=Owner(row["owner"], row["project"], row["isolated"]),
            revision=row["target_revision"],
            proven=row["proven"],
            fallback=row["fallback"],
            waiting=row["held"],
            stable=stable,
            starts=starts,
            stopped_by=_stopped_by(row),
        ),
        row["revision"],
        created_at=row["created_at"],
        replicas=[_view(replica, snapshot) for replica, snapshot in shown],
        shared_with=row["shared_with"],
        user_labels=labels,
        newest=row["newest"],
        scalings=row["scalings"],
        rolled_back=row["rolled_back"],
        rollout_reason=reason,
        rollout_detail=row["rollout_detail"],
        needs_newer=needs_newer or stable_needs or reason_needs or labels_need,
    )


def _spec(name: str, stored: Mapping[str, Any]) -> tuple[EndpointSpec, str]:
    """The known part of the specification, and a text about the unknown part."""
    return known_part(
        EndpointSpec, stored, {"name": name, "engine": "llamacpp", "model": "unknown"}
    )


def _fields(stored: Any) -> dict[str, Any]:
    return stored if isinstance(stored, dict) else {}


def _rollout_reason(row: Row) -> tuple[Reason, str]:
    """The rollout reason, and a text about its unknown part."""
    try:
        return Reason(row["rollout_reason"]), ""
    except ValueError as error:
        return Reason.NONE, why_unreadable(error)


def _user_labels(row: Row) -> tuple[dict[str, str], str]:
    """The user labels, and a text about their unknown part."""
    stored = _fields(row["user_labels"])
    known = {name: value for name, value in stored.items() if isinstance(value, str)}
    return known, "" if known == row["user_labels"] else f"{NEEDS}: user_labels"


def _stopped_by(row: Row) -> BudgetStop | None:
    if row["stop_until"] is None:
        return None
    budget = (
        f"{row['stop_scope']} {row['stop_name']} in {row['stop_unit']} by the {row['stop_period']}"
    )
    return BudgetStop(budget, row["stop_until"])


def _stable(row: Row) -> tuple[Stable | None, str]:
    """The stable revision, and a text about its unknown part."""
    if row["canary_of"] is None:
        return None, ""
    spec, needs_newer = _spec(row["name"], _fields(row["stable_spec"]) | {"name": row["name"]})
    return Stable(row["canary_of"], spec), needs_newer


def _replica(row: Mapping[str, Any]) -> ReplicaSnapshot:
    kv_cache = None if row["kv_cache"] is None else row["kv_cache"] / 1000
    return ReplicaSnapshot(
        SessionId(row["id"]),
        Status(row["status"]),
        created_at=row["created_at"],
        status_since=row["status_since"],
        ready_at=row["ready_at"],
        reason=Reason(row["reason"]),
        agent_silent=row["agent_silent"],
        agent_drained=row["agent_drained"],
        revision=row["revision"],
        draining_since=row["draining_since"],
        drain_reason=Reason(row["drain_reason"]),
        unhealthy_since=row["unhealthy_since"],
        kept_until=row["kept_until"],
        failing_since=row["failing_since"],
        in_flight=row["in_flight"],
        is_confirmed=bool(row["confirmed"]),
        load=None
        if row["running"] is None
        else EngineLoad(row["running"], row["waiting"], kv_cache),
        ends_at=row["ends_at"],
        group=row["resource_group"],
        walltime_s=row["walltime_s"],
        expected_start=row["expected_start"],
        successor_at=row["successor_at"] or 0.9,
        held=Reason(row["held"]),
    )


FAILS_EVERYBODY = "the proxies report that all requests fail there, and none is answered"


def _view(row: Mapping[str, Any], snapshot: ReplicaSnapshot) -> ReplicaView:
    reason = snapshot.reason or snapshot.drain_reason
    return ReplicaView(
        session_id=row["id"],
        name=row["name"],
        status=row["status"],
        revision=snapshot.revision,
        reason=reason,
        detail=row["detail"] or row["kernel_detail"] or REASONS[reason].text,
        agent_id=row["agent_id"],
        status_since=row["status_since"],
        log_tail=row["log_tail"] or "",
        unhealthy=row["unhealthy_detail"]
        or (FAILS_EVERYBODY if snapshot.failing_since is not None else ""),
        address=f"{row['host']}:{row['port']}" if row["port"] else "",
    )
