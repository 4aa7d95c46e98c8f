"""Keeps what the scheduler decided: noted at each pass, written about once a second, beside the passes.

What is noted costs a comparison with the pass before. Should the database not take it in time it is dropped,
never waited for: that is counted, kept with what comes next, and told by whoever reads it.
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
from moorage.manager.metrics import Metrics
from moorage.manager.scheduling import Plan, Policy, Snapshot
from moorage.manager.store import Store

log = structlog.get_logger("moorage.recorder")

WRITE_EVERY_S = 1.0
# Everything is told again so often, so that reading may begin there.
WHOLE_EVERY_S = 300.0
# Agents, sessions and places that wait to be written: then it is written at once, and then it is dropped.
ENOUGH, TOO_MUCH = 20_000, 200_000
TOO_MANY_BYTES = 16_000_000  # made, and not yet taken by the database
# So long others wait at most while bytes are made.
GIVE_WAY_S = 0.003
LAST_WORDS_S = 2.0


@dataclass(slots=True)
class _Group:
    """``ready``: segments that the database has not taken yet, each with its term and number. ``dropped``:
    passes since what was kept last."""

    writer: Writer
    term: int = 0
    whole_at: float = 0.0
    passes: list[PassDelta] = field(default_factory=list)
    terms: list[int] = field(default_factory=list)
    weight: int = 0
    ready: list[tuple[Segment, int, int]] = field(default_factory=list)
    number: int = 0
    dropped: int = 0
    drops: int = 0

    def drop(self) -> int:
        """Forget what has not been written; what comes is told whole. Returns how many passes that were."""
        lost = len(self.passes) + sum(segment.passes for segment, _, _ in self.ready)
        self.dropped += lost + sum(segment.dropped for segment, _, _ in self.ready)
        self.passes, self.terms, self.ready, self.weight = [], [], [], 0
        self.drops += 1
        self.writer.begin_anew()
        return lost


class DecisionRecorder:
    """``note`` is called by the scheduler; everything else is its own."""

    def __init__(self, store: Store, metrics: Metrics, clock: Clock) -> None:
        self._store, self._metrics, self._clock = store, metrics, clock
        self._run = clock.new_id()
        self._groups: dict[str, _Group] = {}
        self.loop = Loop("recorder", self.write, interval_s=WRITE_EVERY_S, clock=clock)

    async def __aenter__(self) -> DecisionRecorder:
        await self.loop.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.loop.__aexit__()
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                await self.write()
        except (StoreUnavailable, TimeoutError) as error:
            log.warning("the last decisions were not kept", error=str(error))

    def note(
        self, snapshot: Snapshot, policy: Policy, made: Plan, *, at: int, took: int, placed: int, term: int
    ) -> None:
        """A pass is done. ``at``: when it was planned (unix microseconds), ``took``: microseconds."""
        group = self._groups.get(snapshot.group)
        if group is None:
            group = self._groups[snapshot.group] = _Group(Writer(snapshot.group))
        now = self._clock.monotonic()
        if group.term != term or now - group.whole_at >= WHOLE_EVERY_S:
            group.term = term
            group.writer.begin_anew()
        passed = group.writer.note(snapshot, policy, made, at, took, placed)
        if passed is None:
            return
        if passed.whole:
            group.whole_at = now
        group.passes.append(passed)
        group.terms.append(term)
        group.weight += passed.weight
        if group.weight > TOO_MUCH and len(group.passes) > 1:
            self._drop(snapshot.group, group, "there was no time to write them")
        elif group.weight > ENOUGH:
            self.loop.nudge()

    def _drop(self, name: str, group: _Group, why: str) -> None:
        lost = group.drop()
        self._metrics.decisions_dropped(lost)
        log.warning("decisions are not kept", group=name, passes=lost, why=why)

    async def write(self) -> None:
        """All that was noted. What the database does not take now is tried again with the next."""
        for name, group in list(self._groups.items()):
            if group.passes:
                await self._make(group)
            while group.ready:
                await self._send(name, group, *group.ready.pop(0))

    async def _send(self, name: str, group: _Group, segment: Segment, term: int, number: int) -> None:
        drops, taken = group.drops, False
        try:
            await self._store.keep_decisions(name, segment, term=term, run=self._run, number=number)
            taken = True
            self._metrics.decisions_kept(segment.passes, len(segment.body))
        finally:
            if not taken and group.drops == drops:
                group.ready.insert(0, (segment, term, number))
                if sum(len(one.body) for one, _, _ in group.ready) > TOO_MANY_BYTES:
                    self._drop(name, group, "the database does not take them")
            elif not taken:  # what followed it is dropped already
                self._metrics.decisions_dropped(segment.passes)
                group.dropped += segment.passes + segment.dropped

    async def _make(self, group: _Group) -> None:
        """Bytes of what was noted. Giving way, because nobody waits for them."""
        passes, terms, drops = group.passes, group.terms, group.drops
        group.passes, group.terms, group.weight = [], [], 0
        left = len(passes)
        try:
            for some, term in _cut(passes, terms):
                body = await self._bytes(group.writer, some, term)
                if group.drops != drops:  # meanwhile: it goes on from what is not kept
                    return
                begin, end = some[0].at, max(passed.at for passed in some)
                segment = Segment(begin, end, some[0].whole, len(some), group.dropped, body)
                group.ready.append((segment, term, group.number))
                group.dropped, group.number, left = 0, group.number + 1, left - len(some)
        finally:
            if left:
                # What was noted meanwhile goes on from what was never written; after a drop it begins anew.
                lost = group.drop() if group.drops == drops else 0
                self._metrics.decisions_dropped(lost + left)
                group.dropped += left

    async def _bytes(self, writer: Writer, passes: list[PassDelta], term: int) -> bytes:
        body, begun = bytearray(), self._clock.monotonic()
        for piece in writer.write(passes, {"term": term, "run": self._run}):
            body += piece
            if self._clock.monotonic() - begun > GIVE_WAY_S:
                await asyncio.sleep(0)
                begun = self._clock.monotonic()
        return bytes(body)


def _cut(passes: list[PassDelta], terms: list[int]) -> Iterator[tuple[list[PassDelta], int]]:
    """Before each that is whole."""
    begins = [number for number, passed in enumerate(passes) if passed.whole or number == 0]
    for begin, end in zip(begins, [*begins[1:], len(passes)], strict=True):
        yield passes[begin:end], terms[begin]
