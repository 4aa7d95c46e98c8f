"""What agents report, into Postgres: many reports share each statement, and no news costs next to nothing.

A report that says what the last one said is only a heartbeat: it is noted in memory, and all heartbeats are
written together twice a second. What could give the same report another meaning (a stop, a placement, a mark
of silence) notifications for that agent; and after ``REFRESH_S`` it is looked at in full anyhow: a notify
may be lost.
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
from moorage.manager.lifecycle import KernelChange, kernel_changes
from moorage.manager.store.batch_writer import Coalescer
from moorage.manager.store.database import Database
from moorage.manager.store.notifier import Notifier, Topic
from moorage.manager.store.queries import SQL
from moorage.manager.store.report_fencing import ReportRefused, why_refused

log = structlog.get_logger("moorage.store.reports")
REFRESH_S = 20.0
BEATS_EVERY_S = 0.5

_ENDED = (ObservedState.EXITED, ObservedState.GONE)


@dataclass(frozen=True, slots=True)
class _Item:
    report: Report
    accepted: Collection[KernelId] | None

    @property
    def agent_id(self) -> AgentId:
        return self.report.info.agent_id

    def says_the_same(self, other: _Item) -> bool:
        a, b = self.report, other.report
        return (
            (a.incarnation, a.stream, a.draining) == (b.incarnation, b.stream, b.draining)
            and a.kernels == b.kernels
            and self.accepted == other.accepted
            and a.info == b.info
        )


@dataclass(frozen=True, slots=True)
class _Facts:
    """Who an agent is, as written at ``at`` (monotonic seconds)."""

    info: AgentInfo
    speaks: tuple[str, int, bool]  # incarnation, stream, draining
    at: float


class Reports:
    """Part of ``Store``."""

    def __init__(self, db: Database, notifier: Notifier, clock: Clock) -> None:
        self._db, self._notifier, self._clock = db, notifier, clock
        self._report_line = db.line()
        # Heartbeats, and what kernels do before they end.
        self._hear_line, self._beat_line = db.line(durable=False), db.line(durable=False)
        self._reports: Coalescer[_Item, int | ReportRefused] = Coalescer("report", self._write_reports, clock)
        self._facts: dict[AgentId, _Facts] = {}
        self._taken: dict[AgentId, tuple[_Item, float]] = {}
        self._beats: dict[AgentId, tuple[str, int]] = {}  # incarnation, stream
        # Agents whose reports are being looked at, and those of them that were notified for meanwhile.
        self._in_hand: set[AgentId] = set()
        self._notified: set[AgentId] = set()
        notifier.on_orders(self._look_again)

    async def observe(self, report: Report, accepted: Collection[KernelId] | None) -> int:
        """Take in a whole report; returns how many kernels changed. The same report again changes nothing.

        ``accepted``: the kernels named by the orders that the report says it has taken in, if we know them.
        Raises ``ReportRefused`` for a stream that does not speak for its agent: nothing is changed.
        """
        item = _Item(report, accepted)
        last = self._taken.get(item.agent_id)
        if last is not None and self._clock.monotonic() - last[1] < REFRESH_S and last[0].says_the_same(item):
            self._beats[item.agent_id] = (report.incarnation, report.stream)
            return 0
        answer = await self._reports.submit(item)
        if isinstance(answer, ReportRefused):
            raise answer
        return answer

    async def write_beats(self) -> None:
        """Write the heartbeats of agents without news. The next report of one that was silent, or speaks
        through another stream by now, is looked at in full; never again the last one, which may be older than
        what the agent told another manager."""
        beats, self._beats = self._beats, {}
        if not beats:
            return
        try:
            found = await self._beat_line.fetch(
                SQL["agent_heard"], list(beats), *zip(*beats.values(), strict=True)
            )
        except StoreUnavailable:
            self._beats = beats | self._beats
            return
        back = [AgentId(row["id"]) for row in found if row["was"] != "ALIVE"]
        self._look_again([*back, *(beats.keys() - {row["id"] for row in found})])
        self._notifier.notify_capacity(back)

    def _look_again(self, agents: Collection[AgentId] | None) -> None:
        """The next reports of these may mean something new, whatever they say. None: of all."""
        if agents is None:
            agents = [*self._taken, *self._in_hand]
        for agent_id in agents:
            self._taken.pop(agent_id, None)
        self._notified.update(self._in_hand.intersection(agents))

    async def _write_reports(self, items: Sequence[_Item]) -> Sequence[int | ReportRefused]:
        """In rounds: two reports of one agent are taken in one after the other."""
        answers: dict[int, int | ReportRefused] = {}
        waiting = list(enumerate(items))
        while waiting:
            now: dict[AgentId, int] = {}
            for place, item in waiting:
                now.setdefault(item.agent_id, place)
            changed = await self._take([items[place] for place in now.values()])
            answers |= {place: changed.get(agent_id, 0) for agent_id, place in now.items()}
            waiting = [one for one in waiting if one[0] not in answers]
        return [answers[place] for place in range(len(items))]

    async def _take(self, items: Sequence[_Item]) -> dict[AgentId, int | ReportRefused]:
        """One report each of some agents; returns by agent how many kernels changed, or why not."""
        self._in_hand, self._notified = {item.agent_id for item in items}, set()
        for agent_id in self._in_hand:
            self._taken.pop(agent_id, None)
        room, refused, stored = await self._hear(items)
        items = [item for item in items if item.agent_id in stored]
        changes = {item.agent_id: _changes(item, stored[item.agent_id]) for item in items}
        written = await self._write_changes(items, changes)
        room |= await self._release(
            [
                (kernel_id, item.agent_id, item.report.stream)
                for item in items
                for kernel_id in _given_back(item, stored[item.agent_id], changes[item.agent_id])
            ]
        )
        at = self._clock.monotonic()
        self._taken |= {item.agent_id: (item, at) for item in items if item.agent_id not in self._notified}
        self._tell([agent_id for agent_id, found in changes.items() if found], written, room)
        return refused | {agent_id: len(found) for agent_id, found in changes.items()}

    async def _hear(
        self, items: Sequence[_Item]
    ) -> tuple[set[AgentId], dict[AgentId, ReportRefused], dict[AgentId, list[Any]]]:
        """Which agents are new, back or changed; who may not speak; of the others what ``_look`` finds."""
        room, refused = await self._introduce([item for item in items if not self._is_known(item)])
        stored = await self._look([item for item in items if item.agent_id not in refused])
        if missed := [i for i in items if i.agent_id not in stored and i.agent_id not in refused]:
            came, no = await self._introduce(missed)
            stored |= await self._look([item for item in missed if item.agent_id not in no])
            room, refused = room | came, refused | no
        # Between being introduced and looked at, a newer stream may have come.
        passed = [i.agent_id for i in items if i.agent_id not in stored and i.agent_id not in refused]
        return room, refused | {a: ReportRefused.by_its_newer_stream(a) for a in passed}, stored

    def _tell(self, changed: Sequence[AgentId], written: Sequence[Any], room: Collection[AgentId]) -> None:
        sessions = {SessionId(row["session_id"]) for row in written}
        routed = any(row["routed"] for row in written)
        # Not heard by ourselves: what these reports mean has just been written.
        self._notifier.notify_others_orders(changed)
        self._notifier.notify_kernels(sessions)
        self._notifier.notify_capacity(room)
        if routed:
            self._notifier.notify([Topic.ROUTES])

    def _is_known(self, item: _Item) -> bool:
        facts = self._facts.get(item.agent_id)
        return (
            facts is not None
            and self._clock.monotonic() - facts.at < REFRESH_S
            and facts.speaks == _speaks(item.report)
            and facts.info == item.report.info
        )

    async def _introduce(self, items: Sequence[_Item]) -> tuple[set[AgentId], dict[AgentId, ReportRefused]]:
        """Write who they are and what they offer; returns those that are new, back, or offer other things,
        and those who may not speak."""
        if not items:
            return set(), {}
        asked = {item.agent_id: item.report for item in items}
        answers = await self._report_line.fetch(SQL["agent_upsert"], [_facts_of(r) for r in asked.values()])
        refused = {
            agent_id: why_refused(asked[agent_id], row)
            for row in answers
            if not row["taken"] and (agent_id := AgentId(row["id"]))
        }
        found = [row for row in answers if row["taken"]]
        reports = [report for agent_id, report in asked.items() if agent_id not in refused]
        came = {AgentId(row["id"]) for row in found if row["old_status"] != "ALIVE"}
        old = {row["id"]: row["old_incarnation"] for row in found}
        came |= {r.info.agent_id for r in reports if old.get(r.info.agent_id) != r.incarnation}
        offers = [(report.info.agent_id, offer) for report in reports for offer in report.info.offers]
        changed = await self._report_line.fetch(
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
            self._facts[r.info.agent_id] = _Facts(r.info, _speaks(r), at)
        return came | {AgentId(row["agent_id"]) for row in changed}, refused

    async def _look(self, items: Sequence[_Item]) -> dict[AgentId, list[Any]]:
        """Note that they were heard; returns the kernels that may have to change, by agent that was known."""
        found: dict[AgentId, list[Any]] = {}
        for row in await self._hear_line.fetch(
            SQL["agent_beat"],
            [item.agent_id for item in items],
            [item.report.incarnation for item in items],
            [item.report.stream for item in items],
        ):
            kernels = found.setdefault(AgentId(row["agent_id"]), [])
            if row["id"] is not None:
                kernels.append(row)
        return found

    async def _write_changes(
        self, items: Sequence[_Item], changes: dict[AgentId, list[KernelChange]]
    ) -> list[Any]:
        """Returns the session of each kernel that changed, and whether proxies may care."""
        streams = {item.agent_id: item.report.stream for item in items}
        every = [(agent_id, change) for agent_id, found in changes.items() for change in found]
        if not every:
            return []
        seen = [change.observation for _, change in every]
        # An agent may forget an end once that is written, and says all else again. What follows from a start
        # is written durably after this, and Postgres never loses the earlier of two writes alone.
        ends = any(change.new in TERMINAL for _, change in every)
        written = await (self._report_line if ends else self._hear_line).fetch(
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
        """Write what kernels offer; returns how many of their ports are theirs."""
        every = [(agent_id, c.observation, app) for agent_id, c in offering for app in c.observation.apps]
        kept = await self._report_line.fetch(
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
        theirs = {(row["agent_id"], row["port"]) for row in kept}
        for agent_id, change in offering:
            taken = [a.port for a in change.observation.apps if (agent_id, a.port) not in theirs]
            if taken and change.new not in TERMINAL:
                log.error(
                    "ports of a kernel belong to another that lives: nobody is led there",
                    agent=agent_id, kernel=change.kernel_id, ports=taken,
                )  # fmt: skip
        return len(kept)

    async def _release(self, given_back: Sequence[tuple[KernelId, AgentId, int]]) -> set[AgentId]:
        """Free what ended kernels held; returns the agents that have room again."""
        if not given_back:
            return set()
        found = await self._report_line.fetch(SQL["allocation_release"], *zip(*given_back, strict=True))
        return {AgentId(row["agent_id"]) for row in found}


def _speaks(report: Report) -> tuple[str, int, bool]:
    return report.incarnation, report.stream, report.draining


def _facts_of(report: Report) -> dict[str, object]:
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


def _changes(item: _Item, stored: Sequence[Any]) -> list[KernelChange]:
    live = [
        (KernelId(row["id"]), SessionId(row["session_id"]), status)
        for row in stored
        if (status := Status(row["status"])) not in TERMINAL
    ]
    doing = {KernelId(row["id"]): row["doing"] for row in stored if row["doing"] is not None}
    return kernel_changes(live, {k.kernel_id: k for k in item.report.kernels}, item.accepted, doing)


def _given_back(item: _Item, stored: Iterable[Any], changes: Iterable[KernelChange]) -> list[KernelId]:
    """Kernels that have ended and hold nothing any more: those that this report shows ended, or has lost, and
    those that were given up before (agent lost) once the agent's orders are known not to name them. One that
    the report merely leaves out may still be started, by orders that are under way.
    """
    shown = {k.kernel_id: k.state in _ENDED for k in item.report.kernels}
    named = item.accepted
    before = [KernelId(row["id"]) for row in stored if Status(row["status"]) in TERMINAL]
    now = [change.kernel_id for change in changes if change.new in TERMINAL]
    return [k for k in now if shown.get(k, True)] + [
        k for k in before if shown.get(k, named is not None and k not in named)
    ]
