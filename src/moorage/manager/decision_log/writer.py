"""From passes to bytes: what each changed against the one before, as lines of JSON, compressed.

Two steps, because a pass must not wait for its record. ``note`` compares the pass with the one before, mostly
by identity, and keeps references; ``write`` makes bytes of them later, line by line, so that whoever calls it
can give way in between.

What follows from the inputs is not kept: why a session was refused is what ``plan`` answers when it is asked
again. Nor is what was kept already: those that were placed wait no longer, kinds and makes are numbers.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from moorage.common.model.ids import AgentId, SessionId
from moorage.manager.decision_log import encoding
from moorage.manager.scheduling import AgentState, Pending, Plan, Policy, Snapshot
from moorage.manager.scheduling.core.model import Allocation, Quota, Running
from moorage.manager.scheduling.core.results import KernelPlace

FORMAT = 2
# So much is told in a line, so that none takes longer than a few milliseconds.
_SESSIONS, _AGENTS = 1_000, 200

Usage = Mapping[str, Mapping[str, int]] | None
_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Segment:
    """What is kept in one row: ``passes`` of them, from ``begin`` to ``end`` (unix microseconds).

    ``whole``: it begins with everything, and needs none before it. ``dropped``: so many passes before it are
    not kept.
    """

    begin: int
    end: int
    whole: bool
    passes: int
    dropped: int
    body: bytes


@dataclass(slots=True)
class PassDelta:
    """One pass, as what changed against the one before. ``whole``: against nothing."""

    at: int
    took: int
    whole: bool
    agents: list[tuple[AgentState | None, AgentState]]
    left: list[AgentId]
    fresh: list[Pending]
    gone: list[SessionId]
    counts: tuple[int, int]  # agents and sessions that there were
    plan: Plan
    placed: int
    idle_passes: int  # passes before it that neither found nor changed anything
    policy: Policy | None = None
    quotas: tuple[Quota, ...] | None = None
    cursors: Mapping[str, AgentId] | None = None
    usage: tuple[Usage] | None = None

    @property
    def weight(self) -> int:
        return 1 + len(self.agents) + len(self.fresh) + len(self.plan.places)


@dataclass(slots=True)
class _Told:
    """What has been noted so far."""

    agents: tuple[AgentState, ...] = ()
    pending: dict[SessionId, Pending] = field(default_factory=dict)
    policy: Policy | None = None
    quotas: tuple[Quota, ...] = ()
    cursors: Mapping[str, AgentId] = field(default_factory=dict)
    usage: Usage = None


@dataclass(slots=True)
class _Numbers:
    """What has been written so far, and is referred to by number."""

    serials: dict[SessionId, int] = field(default_factory=dict)
    met: int = 0
    agents: dict[AgentId, int] = field(default_factory=dict)
    kinds: dict[encoding.Key, int] = field(default_factory=dict)
    allocations: dict[tuple[Allocation, ...], int] = field(default_factory=dict)
    owners: dict[encoding.Key, int] = field(default_factory=dict)


class Writer:
    """The record of one resource group."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._told: _Told | None = None
        self._numbers = _Numbers()
        self._alike = 0
        # Why each waits, as it was told last: a planner that stays does not say it again.
        self._reasons: dict[SessionId, str] = {}
        self._held: Counter[str] = Counter()

    def begin_anew(self) -> None:
        """The next pass is told whole."""
        self._told, self._alike = None, 0

    def note(
        self, snapshot: Snapshot, policy: Policy, made: Plan, at: int, took: int, placed: int
    ) -> PassDelta | None:
        """What is to be written of it; None where nothing changed and nothing was placed."""
        told = self._told
        whole = told is None
        if told is None:
            told = self._told = _Told()
        agents, left = _agents(told.agents, snapshot.agents)
        pending = {item.session_id: item for item in snapshot.pending}
        known = told.pending
        fresh = [item for item in snapshot.pending if _other(known.get(item.session_id), item)]
        gone = [] if known.keys() <= pending.keys() else [name for name in known if name not in pending]
        passed = PassDelta(
            at, took, whole, agents, left, fresh, gone, (len(snapshot.agents), len(pending)), made, placed,
            self._alike,
        )  # fmt: skip
        changed = whole or agents or left or fresh or gone or made.places or made.victims
        if told.policy != policy:
            told.policy = passed.policy = policy
            changed = True
        if told.quotas != snapshot.quotas:
            told.quotas = passed.quotas = snapshot.quotas
            changed = True
        if told.cursors != snapshot.cursors:
            told.cursors = passed.cursors = dict(snapshot.cursors)
            changed = True
        if told.usage != snapshot.usage:
            told.usage, passed.usage = snapshot.usage, (snapshot.usage,)
            changed = True
        for place in made.places:
            # It waits no longer, or is told again.
            pending.pop(place.session_id, None)
        told.agents, told.pending = snapshot.agents, pending
        self._alike = 0 if changed else self._alike + 1
        return passed if changed else None

    def write(self, passes: list[PassDelta], header: Mapping[str, Any]) -> Iterator[bytes]:
        """The body of a segment in pieces. Where the first of ``passes`` is whole, only that one may be."""
        if passes[0].whole:
            self._numbers = _Numbers()
        base = passes[0].at
        squeeze = zlib.compressobj(1)
        begin = {"format": FORMAT, "group": self._group, "base": base, "whole": passes[0].whole, **header}
        yield squeeze.compress(_encode(begin).encode())
        for passed in passes:
            for line in self._lines(passed, base):
                yield squeeze.compress(b"\n" + _encode(line).encode())
        yield squeeze.flush()

    def _lines(self, passed: PassDelta, base: int) -> Iterator[dict[str, Any]]:
        numbers = self._numbers
        for start in range(0, len(passed.agents), _AGENTS):
            line: dict[str, Any] = {}
            rows = [self._agent(line, old, new, base) for old, new in passed.agents[start : start + _AGENTS]]
            yield line | {"agents": rows}
        for start in range(0, len(passed.fresh), _SESSIONS):
            line = {}
            rows = [self._session(line, item, base) for item in passed.fresh[start : start + _SESSIONS]]
            yield line | {"wait": rows}
        last: dict[str, Any] = {}
        if passed.left:
            last["left"] = [numbers.agents[agent_id] for agent_id in passed.left]
        if passed.gone:
            last["gone"] = [numbers.serials.pop(session_id) for session_id in passed.gone]
        made = passed.plan
        if made.places:
            last["places"] = [
                [
                    numbers.serials[place.session_id],
                    numbers.agents[place.agent_id],
                    self._allocations(last, place.allocations),
                    *(self._kernel(last, kernel) for kernel in place.sub_kernels),
                ]
                for place in made.places
            ]
        if made.victims:
            last["victims"] = [[v.session_id, v.for_session, v.how, v.grace] for v in made.victims]
        if (held := self._count(passed)) is not None:
            last["held"] = held
        if passed.policy is not None:
            last["policy"] = encoding.policy_form(passed.policy)
        if passed.quotas is not None:
            last["quotas"] = [encoding.quota_form(quota) for quota in passed.quotas]
        if passed.cursors is not None:
            last["cursors"] = passed.cursors
        if passed.usage is not None:
            (usage,) = passed.usage
            last["usage"] = [None if usage is None else encoding.usage_form(usage)]
        counts = {"at": passed.at - base, "took": passed.took, "of": passed.counts, "placed": passed.placed}
        yield last | counts | ({"alike": passed.idle_passes} if passed.idle_passes else {})

    def _session(self, line: dict[str, Any], item: Pending, base: int) -> list[Any]:
        numbers = self._numbers
        numbers.serials[item.session_id] = numbers.met
        numbers.met += 1
        key = encoding.kind_key(item)
        number = numbers.kinds.get(key)
        if number is None:
            number = numbers.kinds[key] = len(numbers.kinds)
            line.setdefault("kinds", []).append(encoding.kind(item))
        since = item.waiting_since - item.created if item.waiting_since else None
        row = [item.session_id, item.kernel_id, number, item.revision, item.created - base, since]
        rest = encoding.rest(item)
        return [*row, rest] if rest else row

    def _agent(self, line: dict[str, Any], old: AgentState | None, new: AgentState, base: int) -> list[Any]:
        numbers = self._numbers
        number = numbers.agents.get(new.agent_id)
        if number is None:
            number = numbers.agents[new.agent_id] = len(numbers.agents)
        changes = None if old is None else encoding.changed_free_devices(old, new)
        if changes is None:
            line.setdefault("makes", []).append([number, encoding.make(new)])
        row = [number, list(new.free.values()), changes or [], new.kernels]
        known = old.running if old is not None else ()
        if known or new.running:
            before = {kernel.kernel_id: kernel for kernel in known}
            fresh = [r for r in new.running if before.pop(r.kernel_id, None) != r]
            row += [[self._running(line, kernel, base) for kernel in fresh], list(before)]
        return row

    def _running(self, line: dict[str, Any], kernel: Running, base: int) -> list[Any]:
        key = (kernel.priority, kernel.user, kernel.project, kernel.endpoint_id, kernel.preemptible)
        owner = self._numbers.owners.get(key)
        if owner is None:
            owner = self._numbers.owners[key] = len(self._numbers.owners)
            line.setdefault("owners", []).append(key)
        held, ends = (
            self._allocations(line, kernel.allocations),
            None if kernel.ends_at is None else kernel.ends_at - base,
        )
        return [
            kernel.kernel_id,
            kernel.session_id,
            held,
            owner,
            kernel.started_at - base,
            ends,
            kernel.terminating,
        ]

    def _kernel(self, line: dict[str, Any], place: KernelPlace) -> list[int]:
        return [self._numbers.agents[place.agent_id], self._allocations(line, place.allocations)]

    def _allocations(self, line: dict[str, Any], allocations: tuple[Allocation, ...]) -> int:
        number = self._numbers.allocations.get(allocations)
        if number is None:
            number = self._numbers.allocations[allocations] = len(self._numbers.allocations)
            line.setdefault("takes", []).append(allocations)
        return number

    def _count(self, passed: PassDelta) -> dict[str, int] | None:
        """How many wait for which reason, where that changed."""
        held, reasons, before = self._held, self._reasons, self._held.copy()
        ended = [*passed.gone, *(place.session_id for place in passed.plan.places)]
        if passed.whole:
            ended += reasons.keys() - {item.session_id for item in passed.fresh}
        for session_id in ended:
            self._numbers.serials.pop(session_id, None)
            if (old := reasons.pop(session_id, None)) is not None:
                held[old] -= 1
        for hold in passed.plan.holds:
            old = reasons.get(hold.session_id)
            if old != hold.reason:
                if old is not None:
                    held[old] -= 1
                reasons[hold.session_id] = hold.reason
                held[hold.reason] += 1
        told = {reason: count for reason, count in held.items() if count}
        return told if passed.whole or held != before else None


def _agents(
    known: tuple[AgentState, ...], now: tuple[AgentState, ...]
) -> tuple[list[tuple[AgentState | None, AgentState]], list[AgentId]]:
    """What changed, as (before, now), and who is not there any more. Most are the very objects of before, in
    the same order."""
    if len(known) == len(now):
        changed = [(old, new) for old, new in zip(known, now, strict=True) if old is not new]
        if all(old.agent_id == new.agent_id for old, new in changed):
            return [(old, new) for old, new in changed], []
    before = {agent.agent_id: agent for agent in known}
    found = [(before.pop(agent.agent_id, None), agent) for agent in now]
    return [(old, new) for old, new in found if old is not new], list(before)


def _other(known: Pending | None, item: Pending) -> bool:
    if known is item:
        return False
    # All that changes without a new revision: to compare the rest costs several times as much.
    return known is None or (
        known.revision != item.revision
        or known.retries != item.retries
        or known.bypassed != item.bypassed
        or known.dependencies != item.dependencies
        or known.waits_on != item.waits_on
        or known.waiting_since != item.waiting_since
    )
