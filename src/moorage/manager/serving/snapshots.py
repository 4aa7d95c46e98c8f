"""Snapshots of endpoints and their replicas, from which decisions are made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from moorage.common.model.ids import EndpointId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import Status
from moorage.manager.identity.keys import NOBODY, Owner


@dataclass(frozen=True, slots=True)
class ReplicaSnapshot:
    """``agent_silent``: the agent is SUSPECT or LOST, so a replacement starts before this replica is given
    up. ``agent_drained``: the agent is being drained, so this replica is stopped once its replacement is
    ready."""

    session_id: SessionId
    status: Status
    created_at: datetime
    status_since: datetime
    ready_at: datetime | None = None
    reason: Reason = Reason.NONE
    agent_silent: bool = False
    agent_drained: bool = False


@dataclass(frozen=True, slots=True)
class EndpointSnapshot:
    endpoint_id: EndpointId
    name: str
    spec: EndpointSpec
    wanted: int
    changed_at: datetime
    deleted: bool
    replicas: tuple[ReplicaSnapshot, ...]  # newest first: all live ones, and the latest that ended
    owner: Owner = NOBODY
