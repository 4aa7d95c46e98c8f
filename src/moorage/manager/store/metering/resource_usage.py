"""Resource usage of kernels and agents in Postgres. It is only for display; no decision depends on
it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import astuple
from datetime import datetime
from typing import Any

from moorage.common.model.errors import NotFound
from moorage.common.model.resource_usage import HOUR_S, MINUTE_S, KernelMinute, UsageReport, Use
from moorage.common.views.resource_usage import (
    AgentStats,
    DeviceStats,
    KernelStats,
    LatestUsage,
    SessionStats,
    SessionUsage,
    UsageSpan,
    UsageView,
)
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row
from moorage.manager.store.sessions.repository import SessionStore

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_COLUMNS = tuple(Use.__dataclass_fields__)
_LARGEST = (1 << 53) - 1
_DEVICES = 1024  # of one agent
# Minutes are kept this long, then rolled up into hours, this many rows per call.
MINUTES_KEPT_S = 2 * HOUR_S
ROLL_UP_BATCH = 20_000


class UsageStore:
    def __init__(self, db: Database, sessions: SessionStore) -> None:
        self._db = db
        self._sessions = sessions
        self._connection = db.shared_connection(Purpose.UPKEEP)

    async def put(self, reports: Sequence[UsageReport]) -> None:
        """Write at most one report per agent.

        Implausible values are omitted. So are reports that would make the statement fail, because
        other agents' reports would fail with it."""
        reports = [r for r in reports if _is_storable(r)]
        kernels = [(r.agent_id, k.kernel_id, k.use) for r in reports for k in _newest(r)]
        await self._connection.fetch(
            SQL["usage_put"],
            [r.agent_id for r in reports],
            [r.incarnation for r in reports],
            [min(max(r.cpu, 0), _LARGEST) for r in reports],
            [min(max(r.memory, 0), _LARGEST) for r in reports],
            [json.dumps(_devices(r)) for r in reports],
            [agent for agent, _, _ in kernels],
            [kernel for _, kernel, _ in kernels],
            *_transposed([use for _, _, use in kernels]),
        )

    async def put_minutes(self, minutes: Sequence[tuple[UsageReport, KernelMinute]]) -> None:
        """Write usage minutes, each with the report that contained it."""
        usable = [(r, m) for r, m in minutes if _is_storable(r) and _is_usable(m)]
        if not usable:
            return

        means, peaks = (
            _transposed([getattr(m, which) for _, m in usable]) for which in ("mean", "peak")
        )
        await self._connection.fetch(
            SQL["usage_minutes_put"],
            [r.agent_id for r, _ in usable],
            [r.incarnation for r, _ in usable],
            [m.kernel_id for _, m in usable],
            [m.at for _, m in usable],
            [m.samples for _, m in usable],
            *(column for pair in zip(means, peaks, strict=True) for column in pair),
        )

    async def compact(self, keep_s: float) -> bool:
        """Roll up old minutes into hours, and delete hours older than ``keep_s`` seconds; a bounded
        number of rows per call. Returns whether there may be more."""
        rolled = await self._connection.fetch(
            SQL["usage_roll_up"], float(MINUTES_KEPT_S), ROLL_UP_BATCH
        )
        deleted = await self._connection.fetch(
            SQL["usage_delete_old"], float(keep_s), ROLL_UP_BATCH
        )
        return int(rolled[0]["rolled"]) >= ROLL_UP_BATCH or len(deleted) >= ROLL_UP_BATCH

    async def of_session(
        self, scope: Scope, ref: str, *, seconds: int = 0, limit: int = 60
    ) -> SessionStats:
        """Usage of a session. ``seconds``: also return the newest ``limit`` spans of this length
        (60 or 3600). Raises ``NotFound``."""
        session = await self._sessions.get(scope, ref)
        rows = await self._db.fetch(SQL["usage_of_session"], session.id)
        spans: dict[str, list[UsageSpan]] = {}
        if seconds:
            for row in await self._db.fetch(
                SQL["usage_spans"], [r["id"] for r in rows], seconds, limit
            ):
                spans.setdefault(row["kernel_id"], []).append(_span(row))

        return SessionStats(
            id=session.id,
            name=session.name,
            status=session.status,
            slots=session.slots,
            kernels=[
                KernelStats(
                    id=row["id"],
                    hostname=row["hostname"],
                    attempt=row["attempt"],
                    status=row["status"],
                    agent_id=row["agent_id"],
                    latest=_now(row),
                    spans=spans.get(row["id"], []),
                )
                for row in rows
            ],
        )

    async def of_agent(self, agent_id: str) -> AgentStats:
        """Usage of an agent. Raises ``NotFound``."""
        row = await self._db.fetchrow(SQL["usage_of_agents"], agent_id)
        if row is None:
            raise NotFound(f"no agent {agent_id!r}", next_step="`moorage agents` lists them")
        return _agent(row)

    async def top_agents(self) -> list[AgentStats]:
        return [_agent(row) for row in await self._db.fetch(SQL["usage_of_agents"], None)]

    async def top_sessions(self, scope: Scope, *, sort: str, limit: int) -> list[SessionUsage]:
        """The ``limit`` sessions with the highest ``sort`` (a field of ``UsageView``, or
        "created_at")."""
        return [
            SessionUsage(
                id=row["id"],
                name=row["name"],
                type=row["type"],
                status=row["status"],
                resource_group=row["resource_group"],
                user=row["owner"],
                agents=sorted((row["agents"] or "").split(",")),
                slots=row["slots"],
                created_at=row["created_at"],
                latest=_use_now(row, row["at"]),
            )
            for row in await self._db.fetch(SQL["usage_top"], sort, limit, scope.projects)
        ]

    async def totals(self) -> list[tuple[str, dict[str, int]]]:
        """Usage by resource group in the last minute, for metrics."""
        found = await self._db.fetch(SQL["usage_totals"])
        names = ("cpu", "memory", "gpu", "gpu_memory")
        return [(row["resource_group"], {name: row[name] for name in names}) for row in found]


def _is_storable(report: UsageReport) -> bool:
    return "\0" not in report.agent_id + report.incarnation and len(report.devices) <= _DEVICES


def _newest(report: UsageReport) -> Collection[Any]:
    """The last entry of each kernel, without the values that do not fit into their columns."""
    return {
        k.kernel_id: k for k in report.kernels if _ID.fullmatch(k.kernel_id) and _is_use(k.use)
    }.values()


def _is_use(use: Use) -> bool:
    return all(value is None or 0 <= value <= _LARGEST for value in astuple(use))


def _is_usable(minute: KernelMinute) -> bool:
    return (
        _ID.fullmatch(minute.kernel_id) is not None
        and minute.at % MINUTE_S == 0
        and 0 <= minute.at < 1 << 40
        and 0 < minute.samples < 1 << 31
        and _is_use(minute.mean)
        and _is_use(minute.peak)
        and minute.mean.cpu <= minute.peak.cpu
        and minute.mean.memory <= minute.peak.memory
    )


def _transposed(uses: Sequence[Use]) -> list[list[int | None]]:
    return [[getattr(use, name) for use in uses] for name in _COLUMNS]


def _devices(report: UsageReport) -> list[dict[str, object]]:
    return [
        {
            "id": d.device_id,
            "memory": d.memory,
            "gpu": d.gpu,
            "temperature": d.temperature,
            "power": d.power,
        }
        for d in report.devices
        if "\0" not in d.device_id
    ]


def _use_now(row: Row, at: datetime) -> LatestUsage:
    return LatestUsage(at=at, **{name: row[name] for name in _COLUMNS})


def _now(row: Row) -> LatestUsage | None:
    return None if row["at"] is None else _use_now(row, row["at"])


def _span(row: Row) -> UsageSpan:
    return UsageSpan(
        at=row["at"],
        seconds=row["seconds"],
        samples=row["samples"],
        mean=UsageView(**{name: row[name] for name in _COLUMNS}),
        peak=UsageView(**{name: row[f"{name}_peak"] for name in _COLUMNS}),
    )


def _agent(row: Row) -> AgentStats:
    used = {device["id"]: device for device in row["devices"]}
    offered = {
        offer["slot"]: offer["capacity"] for offer in row["offers"] if not offer["device_id"]
    }
    devices = [
        DeviceStats(
            device_id=offer["device_id"],
            slot=offer["slot"],
            model=offer["model"],
            memory_bytes=offer["memory_bytes"],
            **{k: v for k, v in used.get(offer["device_id"], {}).items() if k != "id"},
        )
        for offer in row["offers"]
        if offer["device_id"]
    ]

    return AgentStats(
        id=row["id"],
        status=row["status"],
        resource_group=row["resource_group"],
        at=row["at"],
        cpu=row["cpu"],
        memory=row["memory"],
        offered_cpu=offered.get("cpu", 0),
        offered_memory=offered.get("mem", 0),
        devices=devices,
    )
