"""Agent reports in Postgres. Concurrent reports share statements, whose cost is proportional to the
number of changes; an unchanged report costs only a heartbeat.

Heartbeats are kept in memory and written together twice a second. An update of only some kernels is
not applied again, so if its effect may be missing, the agent is asked for a full report
(``needs_full_report``). This is the case when someone else changed a kernel at the same time, the
agent was silent, or commits may have been lost with the connection. As a safety net, the agent is
also asked every ``FULL_EVERY_S``, or every ``FULL_EVERY`` of its report intervals.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import StoreUnavailable
from moorage.common.model.ids import AgentId, EndpointId, KernelId, SessionId
from moorage.common.model.status import TERMINAL, Status
from moorage.manager.lifecycle.kernels import (
    AgentUpdate,
    KernelChange,
    StoredKernel,
    ended_kernels,
    kernel_changes,
)
from moorage.manager.store.database.batch_writer import BatchWriter
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.notifier import Notifier
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row
from moorage.manager.store.database.unreadable import UnreadableRows
from moorage.manager.store.kernels.lost_placements import LostPlacements
from moorage.manager.store.kernels.reloads import ReloadStore
from moorage.manager.store.kernels.unknown_kernels import UnknownKernels
from moorage.manager.store.platform.report_fencing import ReportRefused, refusal_of

log = structlog.get_logger("moorage.store.reports")
FULL_EVERY_S = 300.0
FULL_EVERY = 60
_LONGEST_WHY = 1000  # maximum number of characters in an agent's text
HEARTBEATS_EVERY_S = 0.5


class ReportStore:
    """``connection`` is shared with other writes to the rows of agents and their kernels.
    ``manager_id``: the id of this manager, to which the agents are connected. ``keep_unknown``: see
    ``OrderStore``."""

    def __init__(
        self,
        db: Database,
        notifier: Notifier,
        clock: Clock,
        manager_id: str,
        *,
        unreadable: UnreadableRows,
        keep_unknown: bool = True,
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._clock = clock
        self._manager_id = manager_id
        self._unreadable = unreadable
        self.connection = db.dedicated_connection()

        # For heartbeats and for kernel changes that are not final. Agents repeat them if a crash
        # loses them.
        self._kernel_connection = db.dedicated_connection(durable=False)
        self._heartbeat_connection = db.dedicated_connection(durable=False)
        self._reports: BatchWriter[AgentUpdate, int | ReportRefused]
        self._reports = BatchWriter("report", self._write_reports, clock)
        self._unknown = UnknownKernels(self.connection)
        self._reloads = ReloadStore(db, notifier)
        self._lost = LostPlacements(self.connection, notifier, keep_unknown=keep_unknown)
        self._heartbeats: dict[AgentId, tuple[str, int]] = {}  # incarnation, stream

        # Until when an agent's full report is valid (monotonic seconds), and the connection's loss
        # count when the report was applied.
        self._complete: dict[AgentId, tuple[float, int]] = {}

    async def apply(self, update: AgentUpdate) -> int:
        """Apply an update. Returns how many kernels changed. Repeating an update changes nothing.

        If the update is a ``contact``, it has been stored when this returns. Raises
        ``ReportRefused`` without changing anything for a stream that does not represent its agent.
        """
        if update.is_heartbeat:
            self._heartbeats[update.agent_id] = (update.incarnation, update.stream)
            return 0

        result = await self._reports.submit(update)
        if isinstance(result, ReportRefused):
            raise result

        return result

    def needs_full_report(self, agent_id: AgentId) -> bool:
        """Whether the effect of the agent's reports so far may be missing."""
        valid_until, losses = self._complete.get(agent_id, (0.0, 0))
        return self._clock.monotonic() > valid_until or losses != self._kernel_connection.losses

    async def write_heartbeats(self) -> None:
        """Write the heartbeats of agents whose reports have not changed.

        An agent that was silent, or now has a newer stream, must send a full report. Its last
        report is not applied again, because it may be older than what another manager has received.
        """
        heartbeats = self._heartbeats
        self._heartbeats = {}
        if not heartbeats:
            return

        try:
            rows = await self._heartbeat_connection.fetch(
                SQL["agent_heartbeat"],
                list(heartbeats),
                *zip(*heartbeats.values(), strict=True),
                self._manager_id,
            )
        except StoreUnavailable:
            self._heartbeats = heartbeats | self._heartbeats
            return

        returned = [AgentId(row["id"]) for row in rows if row["was_away"]]
        self.invalidate([*returned, *(heartbeats.keys() - {row["id"] for row in rows})])
        self._notifier.notify_capacity(returned)
        await self._announce_endpoints(returned)

    async def _announce_endpoints(self, agents: Collection[AgentId]) -> None:
        """Announce that the replicas on these agents are counted again."""
        if agents:
            rows = await self._heartbeat_connection.fetch(SQL["endpoints_of_agents"], list(agents))
            self._notifier.notify_endpoints({EndpointId(row["id"]) for row in rows})

    def invalidate(self, agents: Iterable[AgentId]) -> None:
        """Require full reports from these agents."""
        for agent_id in agents:
            self._complete.pop(agent_id, None)

    def invalidate_all(self) -> None:
        """Require a full report from every agent, because the database has lost commits."""
        self._complete.clear()
        self._heartbeats.clear()

    async def _write_reports(self, items: Sequence[AgentUpdate]) -> Sequence[int | ReportRefused]:
        """Apply the batch in rounds, so that two reports of one agent are applied one after the
        other."""
        results: dict[int, int | ReportRefused] = {}
        remaining = list(enumerate(items))
        while remaining:
            this_round: dict[AgentId, int] = {}
            for index, item in remaining:
                this_round.setdefault(item.agent_id, index)

            applied = await self._apply([items[index] for index in this_round.values()])
            results |= {index: applied.get(agent_id, 0) for agent_id, index in this_round.items()}
            remaining = [item for item in remaining if item[0] not in results]

        return [results[index] for index in range(len(items))]

    async def _apply(self, items: Sequence[AgentUpdate]) -> dict[AgentId, int | ReportRefused]:
        """Apply one update per agent. Returns, for each, how many kernels changed, or why it was
        refused."""
        now = self._clock.monotonic()
        losses = self._kernel_connection.losses
        for item in items:
            if item.whole:
                every_s = max(FULL_EVERY_S, FULL_EVERY * item.info.report_interval_s)
                self._complete[item.agent_id] = now + every_s * self._clock.jitter(0.3), losses

        freed, refused, stored = await self._receive(items)
        self.invalidate(refused)
        items = await self._know_absence(
            [item for item in items if item.agent_id in stored], stored
        )
        changes = {item.agent_id: kernel_changes(stored[item.agent_id], item) for item in items}
        written = await self._write_changes(items, changes)
        await self._reloads.observe(
            (i.agent_id, seen) for i in items for seen in i.observed.values()
        )
        freed |= await self._release(
            [
                (kernel_id, item.agent_id, item.stream)
                for item in items
                for kernel_id in ended_kernels(stored[item.agent_id], changes[item.agent_id], item)
            ]
        )
        ids = {row["id"] for row in written}
        self.invalidate(
            [a for a, found in changes.items() if any(c.kernel_id not in ids for c in found)]
        )
        self._notifier.notify_kernels({SessionId(row["session_id"]) for row in written})
        self._notifier.notify_pending(
            {SessionId(row["session_id"]) for row in written if row["was_stopping"]}
        )
        self._notifier.notify_capacity(freed)
        self._notifier.notify_routes(
            {SessionId(row["session_id"]) for row in written if row["in_routes"]}
        )
        self._notifier.notify_endpoints(
            {EndpointId(row["endpoint_id"]) for row in written if row["endpoint_id"] is not None}
        )

        return refused | {agent_id: len(found) for agent_id, found in changes.items()}

    async def _receive(
        self, items: Sequence[AgentUpdate]
    ) -> tuple[set[AgentId], dict[AgentId, ReportRefused], dict[AgentId, list[StoredKernel]]]:
        """Register the agents whose info may not be current, and read the kernels that may have to
        change.

        Returns the agents that are new, have returned or offer other slots; the refusals; and the
        stored kernels of the other agents.
        """
        changed, refused = await self._register(
            [i for i in items if i.whole or i.info_changed or self._unknown.have_ended(i)]
        )
        stored = await self._touch([item for item in items if item.agent_id not in refused])
        if missing := [i for i in items if i.agent_id not in stored and i.agent_id not in refused]:
            # They were silent or deleted, so more may have happened to them than this update
            # reports.
            self.invalidate([item.agent_id for item in missing if not item.whole])
            more_changed, more_refused = await self._register(missing)
            stored |= await self._touch(
                [item for item in missing if item.agent_id not in more_refused]
            )
            changed = changed | more_changed
            refused = refused | more_refused

        # Between the two statements, a newer stream may have registered.
        outdated = [
            i.agent_id for i in items if i.agent_id not in stored and i.agent_id not in refused
        ]
        return (
            changed,
            refused | {a: ReportRefused.by_its_newer_stream(a) for a in outdated},
            stored,
        )

    async def _know_absence(
        self, items: Sequence[AgentUpdate], stored: Mapping[AgentId, list[StoredKernel]]
    ) -> list[AgentUpdate]:
        """A stored kernel that an update lacks counts as absent only if the agent has listed all
        kernels of its runtime; otherwise it is UNKNOWN."""
        missing = {
            item.agent_id: [
                k.kernel_id for k in stored[item.agent_id] if k.kernel_id not in item.observed
            ]
            for item in items
            if item.info.runtime_states
        }
        ids = [kernel_id for found in missing.values() for kernel_id in found]
        rows = await self._kernel_connection.fetch(SQL["kernel_runtimes"], ids) if ids else []
        runtimes = {row["id"]: row["runtime"] for row in rows}

        return [
            item.with_unknown(
                k for k in missing.get(item.agent_id, ()) if not item.info.lists(runtimes[k])
            )
            for item in items
        ]

    async def _register(
        self, items: Sequence[AgentUpdate]
    ) -> tuple[set[AgentId], dict[AgentId, ReportRefused]]:
        """Write the agents' info and slots. Returns the agents that are new, have returned, offer
        other slots or have become ready, and the refusals."""
        if not items:
            return set(), {}

        await self._lost.settle(items)
        unknown = await self._unknown.of(items)
        columns = [_columns(item) | {"unknown_kernels": unknown[item.agent_id]} for item in items]
        rows = await self.connection.fetch(SQL["agent_upsert"], columns, self._manager_id)
        before = {AgentId(row["id"]): row for row in rows}
        refused = {
            item.agent_id: refusal_of(item, before[item.agent_id])
            for item in items
            if not before[item.agent_id]["accepted"]
        }
        items = [item for item in items if item.agent_id not in refused]
        changed = {
            item.agent_id
            for item in items
            if before[item.agent_id]["was_away"]
            or before[item.agent_id]["old_incarnation"] != item.incarnation
            or before[item.agent_id]["readiness_changed"]
            or before[item.agent_id]["old_address"] != item.info.address
        }
        offers = [(item.agent_id, offer) for item in items for offer in item.info.offers]
        changed_slots = await self.connection.fetch(
            SQL["agent_slots_put"],
            [item.agent_id for item in items],
            [agent_id for agent_id, _ in offers],
            [o.slot for _, o in offers],
            [o.device_id for _, o in offers],
            [o.capacity for _, o in offers],
            [o.model for _, o in offers],
            [o.memory_bytes for _, o in offers],
            [o.healthy for _, o in offers],
            [item.stream for item in items],
            [o.numa for _, o in offers],
            [o.nvlink_domain for _, o in offers],
            [o.parent for _, o in offers],
            [o.unhealthy_reason.replace("\0", "") for _, o in offers],
        )

        return changed | {AgentId(row["agent_id"]) for row in changed_slots}, refused

    async def _touch(self, items: Sequence[AgentUpdate]) -> dict[AgentId, list[StoredKernel]]:
        """Update when the agents were last seen. Returns the kernels that may have to change, by
        agent; agents whose stream is not registered have no entry."""
        found: dict[AgentId, list[StoredKernel]] = {}
        partial = [item for item in items if not item.whole]
        named = [(k, item.agent_id) for item in partial for k in {*item.observed, *item.absent}]
        rows = await self._kernel_connection.fetch(
            SQL["agent_touch"],
            [item.agent_id for item in items],
            [item.incarnation for item in items],
            [item.stream for item in items],
            [item.agent_id for item in items if item.whole],
            [kernel_id for kernel_id, _ in named],
            [agent_id for _, agent_id in named],
            self._manager_id,
        )
        for row in rows:
            found.setdefault(AgentId(row["agent_id"]), [])

        # A kernel that cannot be read stays as it is stored; its agent's report about it is
        # ignored.
        known = [row for row in rows if row["id"] is not None]
        for agent_id, kernel in self._unreadable.each("kernel", known, _stored_kernel):
            found[agent_id].append(kernel)

        return found

    async def _write_changes(
        self, items: Sequence[AgentUpdate], changes: dict[AgentId, list[KernelChange]]
    ) -> list[Any]:
        """Write changes. Returns rows with the session of each changed kernel, and whether routes
        may be affected."""
        streams = {item.agent_id: item.stream for item in items}
        every = [(agent_id, change) for agent_id, found in changes.items() for change in found]
        if not every:
            return []

        seen = [change.observation for _, change in every]
        # Once a kernel's end is written, its agent may forget the kernel, so that write must be
        # durable. All other changes are reported again. Changes that the session controller derives
        # from them are written later, and durably. A crash of Postgres never loses an earlier
        # commit while keeping a later one.
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
            [o.unhealthy for o in seen],
            [o.expected_start for o in seen],
            [o.ends_at for o in seen],
            [o.kept_until for o in seen],
        )
        offering = [(agent_id, change) for agent_id, change in every if change.observation.apps]
        if offering and await self._put_service_ports(offering, streams):
            offered = {change.kernel_id for _, change in offering}
            self._notifier.notify_routes(
                {SessionId(row["session_id"]) for row in written if row["id"] in offered}
            )

        return written

    async def _put_service_ports(
        self, offering: Sequence[tuple[AgentId, KernelChange]], streams: Mapping[AgentId, int]
    ) -> int:
        """Write the service ports of kernels. Returns the number of ports that belong to them."""
        every = [
            (agent_id, c.observation, app) for agent_id, c in offering for app in c.observation.apps
        ]
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
            conflicting = [
                a.port for a in change.observation.apps if (agent_id, a.port) not in owned
            ]
            if conflicting and change.new not in TERMINAL:
                log.error(
                    "service ports of a kernel belong to another live kernel and are not routed",
                    agent=agent_id,
                    kernel=change.kernel_id,
                    ports=conflicting,
                )

        return len(kept)

    async def _release(self, released: Sequence[tuple[KernelId, AgentId, int]]) -> set[AgentId]:
        """Free the allocations of ended kernels. Returns the agents that gained free capacity."""
        if not released:
            return set()
        rows = await self.connection.fetch(SQL["allocation_release"], *zip(*released, strict=True))
        return {AgentId(row["agent_id"]) for row in rows}


def _stored_kernel(row: Row) -> tuple[AgentId, StoredKernel]:
    status = Status(row["status"])
    detail = row["start_detail"]
    ids = KernelId(row["id"]), SessionId(row["session_id"])
    times = row["expected_start"] or 0.0, row["ends_at"] or 0.0
    seen = StoredKernel(*ids, status, detail, row["unhealthy"], *times)

    return AgentId(row["agent_id"]), seen._replace(
        address=(row["host"], row["port"]),
        is_silent=row["is_silent"],
        kept_until=row["kept_until"] or 0.0,
    )


def _columns(update: AgentUpdate) -> dict[str, object]:
    info = update.info
    return {
        "id": info.agent_id,
        "resource_group": info.resource_group,
        "identity": info.identity,
        "incarnation": update.incarnation,
        "stream": update.stream,
        "address": info.address,
        "version": info.version,
        "arch": info.arch,
        "runtimes": list(info.runtimes),
        "engines": list(info.engines),
        "labels": info.labels,
        "max_kernels": info.max_kernels,
        "share_quantum": info.share_quantum,
        "share_minimum": info.share_minimum,
        "report_interval_s": info.report_interval_s,
        "silence_grace_s": {
            r.name: r.silence_grace_s for r in info.runtime_states if r.silence_grace_s
        },
        "draining": update.draining,
        "refuses_orders": update.refuses_orders,
        "whole": update.whole,
        "lease_runtimes": list(info.lease_runtimes),
        "suspend_runtimes": list(info.suspend_runtimes),
        "doubtful_jobs": [asdict(job) for job in info.doubtful_jobs],
        "site_nodes": [asdict(nodes) for nodes in info.site_nodes],
        "reach_why": update.reach_why,
        "undialed": info.undialed,
        "not_ready": info.not_ready.replace("\0", "")[:_LONGEST_WHY],
    }
