"""Decision recorder: records each scheduling pass, and writes the records to the decision log every
second.

Recording costs a comparison with the previous pass. The scheduler never waits for the database:
passes that cannot be written in time are dropped and counted, and the next segment records how many
are missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.errors import StoreUnavailable
from moorage.manager.decision_log import PassDelta, Segment, Writer
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.scheduling import Plan, Policy, Snapshot
from moorage.manager.store import Store

log = structlog.get_logger("moorage.recorder")

WRITE_EVERY_S = 1.0
# Interval between complete snapshots. Reading can begin at any of them.
SNAPSHOT_EVERY_S = 300.0
# Limits on unwritten agents, sessions and places: above the first, records are written immediately;
# above the second, they are dropped.
WRITE_NOW_ITEMS = 20_000
MAX_ITEMS = 200_000
MAX_UNSENT_BYTES = 16_000_000  # encoded, but not yet in the database
# After this time, encoding yields to other tasks.
YIELD_AFTER_S = 0.003
FINAL_WRITE_TIMEOUT_S = 2.0


@dataclass(slots=True)
class _Group:
    """``unsent``: encoded segments that are not yet in the database, each with its term and number.
    ``dropped``: passes lost since the last segment. ``drops``: the number of losses."""

    writer: Writer
    term: int = 0
    snapshot_at: float = 0.0
    passes: list[PassDelta] = field(default_factory=list)
    terms: list[int] = field(default_factory=list)
    weight: int = 0
    unsent: list[tuple[Segment, int, int]] = field(default_factory=list)
    number: int = 0
    dropped: int = 0
    drops: int = 0

    def drop(self) -> int:
        """Discard the unwritten records, and start again. Returns the number of discarded
        passes."""
        lost = len(self.passes) + sum(segment.passes for segment, _, _ in self.unsent)
        self.dropped += lost + sum(segment.dropped for segment, _, _ in self.unsent)
        self.passes = []
        self.terms = []
        self.unsent = []
        self.weight = 0
        self.drops += 1
        self.writer.restart()

        return lost


class DecisionRecorder:
    """The scheduler calls ``note``; all other work runs in the recorder's own loop."""

    def __init__(self, store: Store, metrics: ManagerMetrics, clock: Clock) -> None:
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._run = clock.new_id()
        self._groups: dict[str, _Group] = {}
        self.loop = Loop("recorder", self.write, interval_s=WRITE_EVERY_S, clock=clock)

    async def __aenter__(self) -> DecisionRecorder:
        await self.loop.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.loop.__aexit__()
        try:
            async with asyncio.timeout(FINAL_WRITE_TIMEOUT_S):
                await self.write()
        except (StoreUnavailable, TimeoutError) as error:
            log.warning("the last decisions were not written", error=str(error))

    def note(
        self,
        snapshot: Snapshot,
        policy: Policy,
        made: Plan,
        *,
        at: int,
        took: int,
        placed: int,
        term: int,
    ) -> None:
        """Record a finished pass. ``at``: time of its plan (Unix microseconds). ``took``: its
        duration in microseconds."""
        group = self._groups.get(snapshot.group)
        if group is None:
            group = self._groups[snapshot.group] = _Group(Writer(snapshot.group))

        now = self._clock.monotonic()
        if group.term != term or now - group.snapshot_at >= SNAPSHOT_EVERY_S:
            group.term = term
            group.writer.restart()

        passed = group.writer.note(snapshot, policy, made=made, at=at, took=took, placed=placed)
        if passed is None:
            return
        if passed.whole:
            group.snapshot_at = now

        group.passes.append(passed)
        group.terms.append(term)
        group.weight += passed.weight

        if group.weight > MAX_ITEMS and len(group.passes) > 1:
            self._drop(snapshot.group, group, "writing is slower than scheduling")
        elif group.weight > WRITE_NOW_ITEMS:
            self.loop.nudge()

    def _drop(self, name: str, group: _Group, why: str) -> None:
        lost = group.drop()
        self._metrics.decisions_dropped(lost)
        log.warning("decisions dropped", group=name, passes=lost, why=why)

    async def write(self) -> None:
        """Write all records. If the database does not accept some of them, they are retried next
        time."""
        for name, group in list(self._groups.items()):
            if group.passes:
                await self._encode(group)
            while group.unsent:
                segment, term, number = group.unsent.pop(0)
                await self._send(name, group, segment, term, number=number)

    async def _send(
        self, name: str, group: _Group, segment: Segment, term: int, *, number: int
    ) -> None:
        drops = group.drops
        sent = False
        try:
            await self._store.decisions.append(
                name, segment, term=term, run=self._run, number=number
            )
            sent = True
            self._metrics.decisions_kept(segment.passes, len(segment.body))
        finally:
            if not sent and group.drops == drops:
                group.unsent.insert(0, (segment, term, number))
                if sum(len(waiting.body) for waiting, _, _ in group.unsent) > MAX_UNSENT_BYTES:
                    self._drop(name, group, "the database does not accept them")
            elif not sent:  # its successors have already been dropped
                self._metrics.decisions_dropped(segment.passes)
                group.dropped += segment.passes + segment.dropped

    async def _encode(self, group: _Group) -> None:
        """Encode the records as segments, yielding to other tasks."""
        passes = group.passes
        terms = group.terms
        drops = group.drops
        group.passes = []
        group.terms = []
        group.weight = 0
        remaining = len(passes)
        try:
            for batch, term in _split_at_snapshots(passes, terms):
                body = await self._body(group.writer, batch, term)
                if group.drops != drops:  # records were dropped since, and this one builds on them
                    return

                begin = batch[0].at
                end = max(passed.at for passed in batch)
                segment = Segment(
                    begin,
                    end,
                    whole=batch[0].whole,
                    passes=len(batch),
                    dropped=group.dropped,
                    body=body,
                )
                group.unsent.append((segment, term, group.number))
                remaining = remaining - len(batch)
                group.dropped = 0
                group.number = group.number + 1
        finally:
            if remaining:
                # Passes recorded since then build on records that were never written, unless a drop
                # has restarted the log.
                lost = group.drop() if group.drops == drops else 0
                self._metrics.decisions_dropped(lost + remaining)
                group.dropped += remaining

    async def _body(self, writer: Writer, passes: list[PassDelta], term: int) -> bytes:
        body = bytearray()
        started = self._clock.monotonic()
        for piece in writer.write(passes, {"term": term, "run": self._run}):
            body += piece
            if self._clock.monotonic() - started > YIELD_AFTER_S:
                await asyncio.sleep(0)
                started = self._clock.monotonic()
        return bytes(body)


def _split_at_snapshots(
    passes: list[PassDelta], terms: list[int]
) -> Iterator[tuple[list[PassDelta], int]]:
    """Split into batches that start with complete snapshots, each with its term."""
    begins = [number for number, passed in enumerate(passes) if passed.whole or number == 0]
    for begin, end in zip(begins, [*begins[1:], len(passes)], strict=True):
        yield passes[begin:end], terms[begin]
