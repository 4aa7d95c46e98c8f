"""Decision log writer: encodes each pass as its difference from the previous one, as compressed
lines of JSON.

It works in two steps, because a pass must not wait for its record. ``note`` compares the snapshot
with the previous one, mostly by identity, and keeps references. ``write`` encodes them later and
yields after each line, so that the caller can let other tasks run in between.

Facts that follow from the inputs are not stored: repeating ``plan`` explains a refusal. Neither are
facts that the reader already has: placed sessions leave the queue, and templates are referred to by
number.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moorage.common.model.ids import AgentId, SessionId
from moorage.manager.decision_log import encoding
from moorage.manager.scheduling import AgentState, Pending, Plan, Policy, Snapshot
from moorage.manager.scheduling.core.model import Allocation, Quota, Running
from moorage.manager.scheduling.core.results import KernelPlace

FORMAT = 2
# Items per line, so that encoding a line takes at most a few milliseconds: sessions, or agents and
# the kernels that run there.
_SESSIONS = 1_000
_AGENTS = 200

Usage = Mapping[str, Mapping[str, int]] | None
_Change = tuple[AgentState | None, AgentState]  # previous, current
_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Segment:
    """``passes`` passes from ``begin`` to ``end`` (Unix microseconds): one row of the store.

    ``whole``: it starts with a complete snapshot, so it can be read without the segments before it.
    ``dropped``: the number of passes before it that were not recorded.
    """

    begin: int
    end: int
    whole: bool
    passes: int
    dropped: int
    body: bytes


@dataclass(slots=True)
class PassDelta:
    """One pass, as its difference from the previous pass. ``whole``: it is complete, independent of
    earlier passes."""

    at: int
    took: int
    whole: bool
    agents: list[_Change]
    gone_agents: list[AgentId]
    changed: list[Pending]  # new sessions and those that differ
    gone: list[SessionId]
    counts: tuple[int, int]  # agents and pending sessions in the snapshot
    plan: Plan
    placed: int
    idle_passes: int  # number of passes before it that saw no change and changed nothing
    policy: Policy | None = None
    quotas: tuple[Quota, ...] | None = None
    cursors: Mapping[str, AgentId] | None = None
    usage: tuple[Usage] | None = None

    @property
    def weight(self) -> int:
        return 1 + len(self.agents) + len(self.changed) + len(self.plan.places)


@dataclass(slots=True)
class _NotedState:
    """The state after the last noted pass. ``number`` is the change number of its pending sessions,
    and ``agents_number`` that of its agents."""

    agents: dict[AgentId, AgentState] = field(default_factory=dict)
    pending: dict[SessionId, Pending] = field(default_factory=dict)
    policy: Policy | None = None
    quotas: tuple[Quota, ...] = ()
    cursors: Mapping[str, AgentId] = field(default_factory=dict)
    usage: Usage = None
    number: int | None = None
    agents_number: int | None = None

    def update_agents(self, snapshot: Snapshot) -> tuple[list[_Change], list[AgentId]]:
        """Update the agents. Returns the changed and new agents, and those that are gone."""
        known = self.agents
        changes = snapshot.agent_changes
        number = self.agents_number
        self.agents_number = None if changes is None else changes.number

        if changes is not None and changes.number - 1 == number:
            candidates = changes.changed
            gone = [agent_id for agent_id in changes.gone if known.pop(agent_id, None) is not None]
        else:
            candidates = snapshot.agents
            present = {agent.agent_id for agent in snapshot.agents}
            gone = [agent_id for agent_id in known if agent_id not in present]
            for agent_id in gone:
                del known[agent_id]

        found = [(known.get(agent.agent_id), agent) for agent in candidates]
        known.update({agent.agent_id: agent for agent in candidates})
        return [(old, new) for old, new in found if old is not new], gone

    def update_pending(self, snapshot: Snapshot) -> tuple[list[Pending], list[SessionId]]:
        """Update the sessions. Returns the changed and new sessions, and those that are gone."""
        known = self.pending
        changes = snapshot.changes
        number = self.number
        self.number = None if changes is None else changes.number

        if changes is not None and changes.number - 1 == number:
            changed = [
                item for item in changes.changed if _differs(known.get(item.session_id), item)
            ]
            gone = [
                session_id for session_id in changes.gone if known.pop(session_id, None) is not None
            ]
            known.update({item.session_id: item for item in changes.changed})
            return changed, gone

        self.pending = {item.session_id: item for item in snapshot.pending}
        changed = [item for item in snapshot.pending if _differs(known.get(item.session_id), item)]
        return changed, [session_id for session_id in known if session_id not in self.pending]


@dataclass(slots=True)
class _Numbering:
    """Numbers by which later lines refer to values that have been written."""

    serials: dict[SessionId, int] = field(default_factory=dict)
    next_serial: int = 0
    agents: dict[AgentId, int] = field(default_factory=dict)
    templates: dict[encoding.Key, int] = field(default_factory=dict)
    allocations: dict[tuple[Allocation, ...], int] = field(default_factory=dict)
    owners: dict[encoding.Key, int] = field(default_factory=dict)


class Writer:
    """Encodes the passes of one resource group."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._noted: _NotedState | None = None
        self._numbers = _Numbering()
        self._idle_passes = 0
        # The reason for each held session. Incremental planners do not repeat holds.
        self._reasons: dict[SessionId, str] = {}
        self._held: Counter[str] = Counter()

    def restart(self) -> None:
        """Encode the next pass as a complete snapshot."""
        self._noted = None
        self._idle_passes = 0

    def note(
        self, snapshot: Snapshot, policy: Policy, made: Plan, at: int, *, took: int, placed: int
    ) -> PassDelta | None:
        """Note a pass, and return it if it must be written, or None if nothing changed and nothing
        was placed."""
        noted = self._noted
        whole = noted is None
        if noted is None:
            noted = _NotedState()
            self._noted = noted

        agents, gone_agents = noted.update_agents(snapshot)
        sessions, gone = noted.update_pending(snapshot)
        counts = len(snapshot.agents), len(snapshot.pending)
        passed = PassDelta(
            at,
            took,
            whole=whole,
            agents=agents,
            gone_agents=gone_agents,
            changed=sessions,
            gone=gone,
            counts=counts,
            plan=made,
            placed=placed,
            idle_passes=self._idle_passes,
        )
        changed = whole or agents or gone_agents or sessions or gone or made.places or made.victims
        if noted.policy != policy:
            noted.policy = policy
            passed.policy = policy
            changed = True

        if noted.quotas != snapshot.quotas:
            noted.quotas = snapshot.quotas
            passed.quotas = noted.quotas
            changed = True

        if noted.cursors != snapshot.cursors:
            noted.cursors = dict(snapshot.cursors)
            passed.cursors = noted.cursors
            changed = True

        if noted.usage != snapshot.usage:
            noted.usage = snapshot.usage
            passed.usage = (snapshot.usage,)
            changed = True

        for place in made.places:
            # Placed sessions are no longer pending, or will be encoded again.
            noted.pending.pop(place.session_id, None)

        self._idle_passes = 0 if changed else self._idle_passes + 1
        return passed if changed else None

    def write(self, passes: list[PassDelta], header: Mapping[str, Any]) -> Iterator[bytes]:
        """Write the body of a segment in pieces. Only the first of ``passes`` may be whole."""
        if passes[0].whole:
            self._numbers = _Numbering()

        base = passes[0].at
        compressor = zlib.compressobj(1)
        begin = {
            "format": FORMAT,
            "group": self._group,
            "base": base,
            "whole": passes[0].whole,
            **header,
        }
        yield compressor.compress(_encode(begin).encode())
        for passed in passes:
            for line in self._lines(passed, base):
                yield compressor.compress(b"\n" + _encode(line).encode())

        yield compressor.flush()

    def _lines(self, passed: PassDelta, base: int) -> Iterator[dict[str, Any]]:
        numbers = self._numbers
        for some in _in_lines(passed.agents):
            line: dict[str, Any] = {}
            rows = [self._encode_agent(line, old, new, base) for old, new in some]
            yield line | {"agents": rows}

        for start in range(0, len(passed.changed), _SESSIONS):
            line = {}
            rows = [
                self._encode_session(line, item, base)
                for item in passed.changed[start : start + _SESSIONS]
            ]
            yield line | {"wait": rows}

        last: dict[str, Any] = {}
        if passed.gone_agents:
            last["left"] = [numbers.agents[agent_id] for agent_id in passed.gone_agents]
        if passed.gone:
            last["gone"] = [numbers.serials.pop(session_id) for session_id in passed.gone]

        made = passed.plan
        if made.places:
            last["places"] = [
                [
                    numbers.serials[place.session_id],
                    numbers.agents[place.agent_id],
                    self._number_of(last, place.allocations),
                    *(self._encode_kernel(last, kernel) for kernel in place.sub_kernels),
                ]
                for place in made.places
            ]

        if made.victims:
            last["victims"] = [[v.session_id, v.for_session, v.how, v.grace] for v in made.victims]
        if (held := self._count_holds(passed)) is not None:
            last["held"] = held
        if passed.policy is not None:
            last["policy"] = encoding.encode_policy(passed.policy)

        if passed.quotas is not None:
            last["quotas"] = [encoding.encode_quota(quota) for quota in passed.quotas]
            last["elsewhere"] = [encoding.encode_elsewhere(quota) for quota in passed.quotas]
            last["node_hours"] = [encoding.encode_node_hours(quota) for quota in passed.quotas]

        if passed.cursors is not None:
            last["cursors"] = passed.cursors
        if passed.usage is not None:
            (usage,) = passed.usage
            last["usage"] = [None if usage is None else encoding.encode_usage(usage)]

        counts = {
            "at": passed.at - base,
            "took": passed.took,
            "of": passed.counts,
            "placed": passed.placed,
        }
        yield last | counts | ({"alike": passed.idle_passes} if passed.idle_passes else {})

    def _encode_session(self, line: dict[str, Any], item: Pending, base: int) -> list[Any]:
        numbers = self._numbers
        numbers.serials[item.session_id] = numbers.next_serial
        numbers.next_serial += 1
        key = encoding.session_template_key(item)
        number = numbers.templates.get(key)
        if number is None:
            number = numbers.templates[key] = len(numbers.templates)
            line.setdefault("kinds", []).append(encoding.session_template(item))

        since = item.waiting_since - item.created if item.waiting_since else None
        row = [item.session_id, item.kernel_id, number, item.revision, item.created - base, since]
        extras = encoding.session_extras(item)
        return [*row, extras] if extras else row

    def _encode_agent(
        self, line: dict[str, Any], old: AgentState | None, new: AgentState, base: int
    ) -> list[Any]:
        numbers = self._numbers
        number = numbers.agents.get(new.agent_id)
        if number is None:
            number = numbers.agents[new.agent_id] = len(numbers.agents)

        changes = None if old is None else encoding.changed_free_devices(old, new)
        if changes is None:
            line.setdefault("makes", []).append([number, encoding.agent_template(new)])

        row = [number, list(new.free.values()), changes or [], new.kernels]
        known = old.running if old is not None else ()
        if known or new.running:
            before = {kernel.kernel_id: kernel for kernel in known}
            added = [r for r in new.running if before.pop(r.kernel_id, None) != r]
            row += [[self._encode_running(line, kernel, base) for kernel in added], list(before)]

        return row

    def _encode_running(self, line: dict[str, Any], kernel: Running, base: int) -> list[Any]:
        whose = (
            kernel.priority,
            kernel.user,
            kernel.project,
            kernel.endpoint_id,
            kernel.preemptible,
        )
        key = (*whose, kernel.stop_time)
        owner = self._numbers.owners.get(key)
        if owner is None:
            owner = self._numbers.owners[key] = len(self._numbers.owners)
            line.setdefault("owners", []).append(whose)
            line.setdefault("stop_times", []).append(kernel.stop_time)  # older readers skip it

        held = self._number_of(line, kernel.allocations)
        ends = None if kernel.ends_at is None else kernel.ends_at - base
        return [
            kernel.kernel_id,
            kernel.session_id,
            held,
            owner,
            kernel.started_at - base,
            ends,
            kernel.terminating,
        ]

    def _encode_kernel(self, line: dict[str, Any], place: KernelPlace) -> list[int]:
        return [self._numbers.agents[place.agent_id], self._number_of(line, place.allocations)]

    def _number_of(self, line: dict[str, Any], allocations: tuple[Allocation, ...]) -> int:
        number = self._numbers.allocations.get(allocations)
        if number is None:
            number = self._numbers.allocations[allocations] = len(self._numbers.allocations)
            line.setdefault("takes", []).append(allocations)
        return number

    def _count_holds(self, passed: PassDelta) -> dict[str, int] | None:
        """Held sessions by reason, or None if unchanged."""
        held = self._held
        reasons = self._reasons
        before = self._held.copy()
        ended = [*passed.gone, *(place.session_id for place in passed.plan.places)]
        if passed.whole:
            ended += reasons.keys() - {item.session_id for item in passed.changed}

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

        counts = {reason: count for reason, count in held.items() if count}
        return counts if passed.whole or held != before else None


def _in_lines(agents: Sequence[_Change]) -> Iterator[list[_Change]]:
    some: list[_Change] = []
    count = 0
    for old, new in agents:
        count += 1 + len(new.running)
        if some and count > _AGENTS:
            yield some
            some = []
            count = 1 + len(new.running)

        some.append((old, new))

    if some:
        yield some


def _differs(known: Pending | None, item: Pending) -> bool:
    if known is item:
        return False

    # All fields that change without a new revision. Comparing every field costs several times as
    # much.
    return known is None or (
        known.revision != item.revision
        or known.retries != item.retries
        or known.bypassed != item.bypassed
        or known.dependencies != item.dependencies
        or known.waits_on != item.waits_on
        or known.earlier_agents != item.earlier_agents
        or known.waiting_since != item.waiting_since
    )
