"""Agent reports in Postgres: concurrent reports share statements, and an unchanged report costs a heartbeat.

A report that equals the previous one is kept in memory as a heartbeat; all heartbeats are written together
twice a second. A change in the database that could give the same report another effect (a stop, a placement,
a SUSPECT mark) is announced by a notification for the agent, and its next report is applied in full. As
notifications may be lost, a report is also applied in full every ``REFRESH_S``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.link.messages import AgentInfo, Report
from moorage.common.model.errors import StoreUnavailable
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.status import TERMINAL, ObservedState, Status
from moorage.manager.lifecycle.kernels import KernelChange, kernel_changes
from moorage.manager.store.batch_writer import BatchWriter
from moorage.manager.store.database import Database
from moorage.manager.store.notifier import Notifier, Topic
from moorage.manager.store.queries import SQL
from moorage.manager.store.report_fencing import ReportRefused, refusal_of

log = structlog.get_logger("moorage.store.reports")
REFRESH_S = 20.0
HEARTBEATS_EVERY_S = 0.5

_ENDED = (ObservedState.EXITED, ObservedState.GONE)


@dataclass(frozen=True, slots=True)
class _Submission:
    report: Report
    accepted: Collection[KernelId] | None

    @property
    def agent_id(self) -> AgentId:
        return self.report.info.agent_id

    def equals(self, other: _Submission) -> bool:
        a, b = self.report, other.report
        return (
            (a.incarnation, a.stream, a.draining) == (b.incarnation, b.stream, b.draining)
            and a.kernels == b.kernels
            and self.accepted == other.accepted
            and a.info == b.info
        )


@dataclass(frozen=True, slots=True)
class _WrittenInfo:
    """What was written of an agent's ``AgentInfo`` at ``at`` (monotonic seconds)."""

    info: AgentInfo
    source: tuple[str, int, bool]  # incarnation, stream, draining
    at: float


class ReportStore:
    """``connection`` is shared with other writes to the rows of agents and their kernels."""

    def __init__(self, db: Database, notifier: Notifier, clock: Clock) -> None:
        self._db, self._notifier, self._clock = db, notifier, clock
        self.connection = db.dedicated_connection()
        # For heartbeats and for kernel changes that are not final: agents repeat them if a crash loses them.
        self._kernel_connection = db.dedicated_connection(durable=False)
        self._heartbeat_connection = db.dedicated_connection(durable=False)
        self._reports: BatchWriter[_Submission, int | ReportRefused]
        self._reports = BatchWriter("report", self._write_reports, clock)
        self._written_info: dict[AgentId, _WrittenInfo] = {}
        self._applied: dict[AgentId, tuple[_Submission, float]] = {}
        self._heartbeats: dict[AgentId, tuple[str, int]] = {}  # incarnation, stream
        # Agents whose reports are being applied, and those among them that were invalidated meanwhile.
        self._in_progress: set[AgentId] = set()
        self._invalidated: set[AgentId] = set()
        notifier.on_orders(self.invalidate)

    async def apply(self, report: Report, accepted: Collection[KernelId] | None) -> int:
        """Apply a full report; returns how many kernels changed. Repeating a report changes nothing.

        ``accepted``: the kernels named by the orders that the report acknowledges, if known. Raises
        ``ReportRefused``, and changes nothing, for a stream that does not represent its agent.
        """
        item = _Submission(report, accepted)
        last = self._applied.get(item.agent_id)
        if last is not None and self._clock.monotonic() - last[1] < REFRESH_S and last[0].equals(item):
            self._heartbeats[item.agent_id] = (report.incarnation, report.stream)
            return 0
        result = await self._reports.submit(item)
        if isinstance(result, ReportRefused):
            raise result
        return result

    async def write_heartbeats(self) -> None:
        """Write the heartbeats of agents whose reports have not changed.

        An agent that was silent, or has a newer stream by now, is invalidated: its next report is applied in
        full. The last report is not applied again, as it may be older than what another manager received.
        """
        heartbeats, self._heartbeats = self._heartbeats, {}
        if not heartbeats:
            return
        try:
            rows = await self._heartbeat_connection.fetch(
                SQL["agent_heartbeat"], list(heartbeats), *zip(*heartbeats.values(), strict=True)
            )
        except StoreUnavailable:
            self._heartbeats = heartbeats | self._heartbeats
            return
        returned = [AgentId(row["id"]) for row in rows if row["old_status"] != "ALIVE"]
        self.invalidate([*returned, *(heartbeats.keys() - {row["id"] for row in rows})])
        self._notifier.notify_capacity(returned)

    def invalidate(self, agents: Collection[AgentId] | None) -> None:
        """Apply the next reports of these agents in full, even if they are unchanged. None: of all agents."""
        if agents is None:
            agents = [*self._applied, *self._in_progress]
        for agent_id in agents:
            self._applied.pop(agent_id, None)
        self._invalidated.update(self._in_progress.intersection(agents))

    async def _write_reports(self, items: Sequence[_Submission]) -> Sequence[int | ReportRefused]:
        """Apply the batch in rounds, so that two reports of one agent are applied one after the other."""
        results: dict[int, int | ReportRefused] = {}
        remaining = list(enumerate(items))
        while remaining:
            this_round: dict[AgentId, int] = {}
            for index, item in remaining:
                this_round.setdefault(item.agent_id, index)
            applied = await self._apply([items[index] for index in this_round.values()])
            results |= {index: applied.get(agent_id, 0) for agent_id, index in this_round.items()}
            remaining = [one for one in remaining if one[0] not in results]
        return [results[index] for index in range(len(items))]

    async def _apply(self, items: Sequence[_Submission]) -> dict[AgentId, int | ReportRefused]:
        """Apply one report per agent; returns for each how many kernels changed, or why it was refused."""
        self._in_progress, self._invalidated = {item.agent_id for item in items}, set()
        for agent_id in self._in_progress:
            self._applied.pop(agent_id, None)
        freed, refused, stored = await self._receive(items)
        items = [item for item in items if item.agent_id in stored]
        changes = {item.agent_id: _changes(item, stored[item.agent_id]) for item in items}
        written = await self._write_changes(items, changes)
        freed |= await self._release(
            [
                (kernel_id, item.agent_id, item.report.stream)
                for item in items
                for kernel_id in _released(item, stored[item.agent_id], changes[item.agent_id])
            ]
        )
        at = self._clock.monotonic()
        self._applied |= {i.agent_id: (i, at) for i in items if i.agent_id not in self._invalidated}
        self._notify([agent_id for agent_id, found in changes.items() if found], written, freed)
        return refused | {agent_id: len(found) for agent_id, found in changes.items()}

    async def _receive(
        self, items: Sequence[_Submission]
    ) -> tuple[set[AgentId], dict[AgentId, ReportRefused], dict[AgentId, list[Any]]]:
        """Register the agents whose info is not current, and read the kernels of all.

        Returns the agents that are new, have returned or offer other slots; the refusals; and the stored
        kernels of the other agents.
        """
        changed, refused = await self._register([item for item in items if not self._is_registered(item)])
        stored = await self._touch([item for item in items if item.agent_id not in refused])
        if missing := [i for i in items if i.agent_id not in stored and i.agent_id not in refused]:
            more_changed, more_refused = await self._register(missing)
            stored |= await self._touch([item for item in missing if item.agent_id not in more_refused])
            changed, refused = changed | more_changed, refused | more_refused
        # Between the two statements, a newer stream may have registered.
        outdated = [i.agent_id for i in items if i.agent_id not in stored and i.agent_id not in refused]
        return changed, refused | {a: ReportRefused.by_its_newer_stream(a) for a in outdated}, stored

    def _notify(self, changed: Sequence[AgentId], written: Sequence[Any], freed: Collection[AgentId]) -> None:
        sessions = {SessionId(row["session_id"]) for row in written}
        affects_routes = any(row["has_port"] for row in written)
        # Not in this process, which has just applied these reports.
        self._notifier.notify_orders(changed, local=False)
        self._notifier.notify_kernels(sessions)
        self._notifier.notify_capacity(freed)
        if affects_routes:
            self._notifier.notify([Topic.ROUTES])

    def _is_registered(self, item: _Submission) -> bool:
        written = self._written_info.get(item.agent_id)
        return (
            written is not None
            and self._clock.monotonic() - written.at < REFRESH_S
            and written.source == _source(item.report)
            and written.info == item.report.info
        )

    async def _register(
        self, items: Sequence[_Submission]
    ) -> tuple[set[AgentId], dict[AgentId, ReportRefused]]:
        """Write the agents' info and slots. Returns the agents that are new, have returned or offer other
        slots, and the refusals."""
        if not items:
            return set(), {}
        submitted = {item.agent_id: item.report for item in items}
        rows = await self.connection.fetch(SQL["agent_upsert"], [_columns(r) for r in submitted.values()])
        refused = {
            agent_id: refusal_of(submitted[agent_id], row)
            for row in rows
            if not row["accepted"] and (agent_id := AgentId(row["id"]))
        }
        accepted = [row for row in rows if row["accepted"]]
        reports = [report for agent_id, report in submitted.items() if agent_id not in refused]
        changed = {AgentId(row["id"]) for row in accepted if row["old_status"] != "ALIVE"}
        old = {row["id"]: row["old_incarnation"] for row in accepted}
        changed |= {r.info.agent_id for r in reports if old.get(r.info.agent_id) != r.incarnation}
        offers = [(report.info.agent_id, offer) for report in reports for offer in report.info.offers]
        changed_slots = await self.connection.fetch(
            SQL["agent_slots_put"],
            [report.info.agent_id for report in reports],
            [agent_id for agent_id, _ in offers],
            [o.slot for _, o in offers],
            [o.device_id for _, o in offers],
            [o.capacity for _, o in offers],
            [o.model for _, o in offers],
            [o.memory_bytes for _, o in offers],
            [o.healthy for _, o in offers],
            [report.stream for report in reports],
            [o.numa for _, o in offers],
            [o.nvlink_domain for _, o in offers],
            [o.parent for _, o in offers],
            [o.unhealthy_reason.replace("\0", "") for _, o in offers],
        )
        at = self._clock.monotonic()
        for r in reports:
            self._written_info[r.info.agent_id] = _WrittenInfo(r.info, _source(r), at)
        return changed | {AgentId(row["agent_id"]) for row in changed_slots}, refused

    async def _touch(self, items: Sequence[_Submission]) -> dict[AgentId, list[Any]]:
        """Update when the agents were last seen. Returns the kernels that may have to change, by agent;
        agents whose stream is not registered have no entry."""
        found: dict[AgentId, list[Any]] = {}
        for row in await self._kernel_connection.fetch(
            SQL["agent_touch"],
            [item.agent_id for item in items],
            [item.report.incarnation for item in items],
            [item.report.stream for item in items],
        ):
            kernels = found.setdefault(AgentId(row["agent_id"]), [])
            if row["id"] is not None:
                kernels.append(row)
        return found

    async def _write_changes(
        self, items: Sequence[_Submission], changes: dict[AgentId, list[KernelChange]]
    ) -> list[Any]:
        """Returns rows with the session of each kernel that changed, and whether routes may be affected."""
        streams = {item.agent_id: item.report.stream for item in items}
        every = [(agent_id, change) for agent_id, found in changes.items() for change in found]
        if not every:
            return []
        seen = [change.observation for _, change in every]
        # Once the end of a kernel is written, its agent may forget it, so that write must be durable. All
        # other changes are reported again. What the session controller derives from them is written durably
        # and later, and a crash of Postgres never loses an earlier commit and keeps a later one.
        ends = any(change.new in TERMINAL for _, change in every)
        written = await (self.connection if ends else self._kernel_connection).fetch(
            SQL["kernel_observe"],
            [agent_id for agent_id, _ in every],
            [c.kernel_id for _, c in every],
            [c.old for _, c in every],
            [c.new for _, c in every],
            [o.state for o in seen],
            [o.host for o in seen],
            [o.port for o in seen],
            [o.exit_code for o in seen],
            [o.reason for o in seen],
            [o.detail for o in seen],
            [o.log_tail for o in seen],
            [streams[agent_id] for agent_id, _ in every],
        )
        offering = [(agent_id, change) for agent_id, change in every if change.observation.apps]
        if offering and await self._put_service_ports(offering, streams):
            self._notifier.notify([Topic.ROUTES])
        return written

    async def _put_service_ports(
        self, offering: Sequence[tuple[AgentId, KernelChange]], streams: Mapping[AgentId, int]
    ) -> int:
        """Write the service ports of kernels. Returns how many ports belong to them."""
        every = [(agent_id, c.observation, app) for agent_id, c in offering for app in c.observation.apps]
        kept = await self.connection.fetch(
            SQL["service_ports_put"],
            [agent_id for agent_id, _, _ in every],
            [streams[agent_id] for agent_id, _, _ in every],
            [seen.kernel_id for _, seen, _ in every],
            [seen.host for _, seen, _ in every],
            [app.name for _, _, app in every],
            [app.port for _, _, app in every],
            [app.protocol for _, _, app in every],
            [app.base_path for _, _, app in every],
            [app.guarded for _, _, app in every],
        )
        owned = {(row["agent_id"], row["port"]) for row in kept}
        for agent_id, change in offering:
            conflicting = [a.port for a in change.observation.apps if (agent_id, a.port) not in owned]
            if conflicting and change.new not in TERMINAL:
                log.error(
                    "service ports of a kernel belong to another live kernel and are not routed",
                    agent=agent_id, kernel=change.kernel_id, ports=conflicting,
                )  # fmt: skip
        return len(kept)

    async def _release(self, released: Sequence[tuple[KernelId, AgentId, int]]) -> set[AgentId]:
        """Free the allocations of ended kernels. Returns the agents that have free capacity again."""
        if not released:
            return set()
        rows = await self.connection.fetch(SQL["allocation_release"], *zip(*released, strict=True))
        return {AgentId(row["agent_id"]) for row in rows}


def _source(report: Report) -> tuple[str, int, bool]:
    return report.incarnation, report.stream, report.draining


def _columns(report: Report) -> dict[str, object]:
    info = report.info
    return {
        "id": info.agent_id,
        "resource_group": info.resource_group,
        "identity": info.identity,
        "incarnation": report.incarnation,
        "stream": report.stream,
        "address": info.address,
        "version": info.version,
        "arch": info.arch,
        "runtimes": list(info.runtimes),
        "engines": list(info.engines),
        "labels": info.labels,
        "max_kernels": info.max_kernels,
        "share_quantum": info.share_quantum,
        "share_minimum": info.share_minimum,
        "draining": report.draining,
    }


def _changes(item: _Submission, stored: Sequence[Any]) -> list[KernelChange]:
    live = [
        (KernelId(row["id"]), SessionId(row["session_id"]), status)
        for row in stored
        if (status := Status(row["status"])) not in TERMINAL
    ]
    start_details = {
        KernelId(row["id"]): row["start_detail"] for row in stored if row["start_detail"] is not None
    }
    return kernel_changes(live, {k.kernel_id: k for k in item.report.kernels}, item.accepted, start_details)


def _released(item: _Submission, stored: Iterable[Any], changes: Iterable[KernelChange]) -> list[KernelId]:
    """Ended kernels whose allocations can be freed: those that this report shows as ended or lost, and those
    that were given up earlier (agent lost), once the agent has acknowledged orders that do not name them. A
    kernel that is only missing from the report may still be started by orders in flight.
    """
    ended = {k.kernel_id: k.state in _ENDED for k in item.report.kernels}
    earlier = [KernelId(row["id"]) for row in stored if Status(row["status"]) in TERMINAL]
    now = [change.kernel_id for change in changes if change.new in TERMINAL]
    accepted = item.accepted
    return [k for k in now if ended.get(k, True)] + [
        k for k in earlier if ended.get(k, accepted is not None and k not in accepted)
    ]
