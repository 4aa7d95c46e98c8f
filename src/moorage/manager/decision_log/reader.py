"""From bytes to passes: the same snapshots that the planner was given."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from moorage.common.model.errors import MoorageError
from moorage.common.model.ids import AgentId, SessionId
from moorage.manager.decision_log import encoding
from moorage.manager.decision_log.writer import FORMAT
from moorage.manager.scheduling import AgentState, DeviceState, Pending, Place, Policy, Snapshot
from moorage.manager.scheduling.core.model import Allocation, Quota, Running
from moorage.manager.scheduling.core.results import KernelPlace, Victim


class CorruptDecisionLog(MoorageError):
    """The stored decisions cannot be read: damaged, incomplete, or written in another format."""

    code = "damaged-decisions"


@dataclass(frozen=True, slots=True)
class Decision:
    """One recorded scheduling pass. Times in microseconds.

    ``placed``: how many of ``places`` were committed; the others were stale. ``held``: the number of sessions
    on hold, by reason. ``idle_passes``: the passes before this one that saw no change and changed nothing.
    """

    at: int
    took: int
    snapshot: Snapshot
    policy: Policy
    places: tuple[Place, ...]
    placed: int
    held: Mapping[str, int]
    victims: tuple[Victim, ...]
    idle_passes: int


class Reader:
    """Give it the segments of one group in their order; the first must be whole."""

    def __init__(self) -> None:
        self._begun = False
        self._start()

    def _start(self) -> None:
        self._kinds: list[encoding.Json] = []
        self._takes: list[tuple[Allocation, ...]] = []
        self._owners: list[list[Any]] = []
        self._makes: dict[int, encoding.Json] = {}
        self._devices: dict[int, tuple[DeviceState, ...]] = {}
        self._agents: dict[int, AgentState] = {}
        self._running: dict[int, dict[str, Running]] = {}
        self._sessions: dict[int, Pending] = {}
        self._serials: dict[SessionId, int] = {}
        self._met = 0
        self._policy: Policy | None = None
        self._quotas: tuple[Quota, ...] = ()
        self._cursors: Mapping[str, AgentId] = {}
        self._usage: Mapping[str, Mapping[str, int]] | None = None
        self._held: Mapping[str, int] = {}

    def read(self, body: bytes) -> Iterator[Decision]:
        """The passes of one segment. Raises ``CorruptDecisionLog``."""
        try:
            header, *lines = zlib.decompress(body).splitlines()
            begin = json.loads(header)
            if begin["format"] != FORMAT:
                raise CorruptDecisionLog(
                    f"the decision log has format {begin['format']}; this version reads {FORMAT}",
                    next_step="read them with the version that wrote them",
                )
            if begin["whole"]:
                self._start()
                self._begun = True
            if not self._begun:
                raise CorruptDecisionLog(
                    "the first segment is not complete: it can only be read after the segments before it"
                )
            for line in lines:
                if (found := self._line(json.loads(line), begin["group"], begin["base"])) is not None:
                    yield found
        except (zlib.error, ValueError, LookupError, TypeError) as error:
            raise CorruptDecisionLog(
                f"the decision log cannot be read: {type(error).__name__}: {error}"
            ) from error

    def _line(self, line: encoding.Json, group: str, base: int) -> Decision | None:
        self._kinds += line.get("kinds", ())
        self._takes += map(encoding.allocations, line.get("takes", ()))
        self._owners += line.get("owners", ())
        for number, make in line.get("makes", ()):
            self._makes[number], self._devices[number] = make, encoding.devices(make)
        for row in line.get("agents", ()):
            self._agent(row, base)
        for row in line.get("wait", ()):
            self._wait(row, base)
        if "at" not in line:
            return None
        for number in line.get("left", ()):
            del self._agents[number]
            self._running.pop(number, None)
        for serial in line.get("gone", ()):
            del self._serials[self._sessions.pop(serial).session_id]
        if "policy" in line:
            self._policy = encoding.policy(line["policy"])
        if "quotas" in line:
            self._quotas = tuple(map(encoding.quota, line["quotas"]))
        self._cursors = line.get("cursors", self._cursors)
        (self._usage,) = line.get("usage", [self._usage])
        self._held = line.get("held", self._held)
        return self._decision(line, group, base)

    def _decision(self, line: encoding.Json, group: str, base: int) -> Decision:
        agents, pending = tuple(self._agents.values()), tuple(self._sessions.values())
        if [len(agents), len(pending)] != line["of"] or self._policy is None:
            raise CorruptDecisionLog(
                f"the record does not add up: {len(agents)} agents and {len(pending)} sessions where "
                f"{line['of'][0]} and {line['of'][1]} were"
            )
        places = tuple(map(self._place, line.get("places", ())))
        made = Decision(
            at=base + line["at"],
            took=line["took"],
            snapshot=Snapshot(group, agents, pending, self._quotas, self._cursors, self._usage),
            policy=self._policy,
            places=places,
            placed=line["placed"],
            held=self._held,
            victims=tuple(Victim(*victim) for victim in line.get("victims", ())),
            idle_passes=line.get("alike", 0),
        )
        for place in places:
            del self._sessions[self._serials.pop(place.session_id)]
        return made

    def _wait(self, row: list[Any], base: int) -> None:
        item = encoding.pending(row, self._kinds[row[2]], base)
        if (old := self._serials.get(item.session_id)) is not None:
            del self._sessions[old]
        self._sessions[self._met], self._serials[item.session_id] = item, self._met
        self._met += 1

    def _agent(self, row: list[Any], base: int) -> None:
        number, free, changes, kernels, *more = row
        known = self._running.setdefault(number, {})
        if more:
            fresh, ended = more
            for kernel in ended:
                del known[kernel]
            for one in fresh:
                made = encoding.running(one, self._takes[one[2]], self._owners[one[3]], base)
                known[made.kernel_id] = made
        running = tuple(known.values())
        devices = self._devices[number] = encoding.changed_devices(self._devices[number], changes)
        self._agents[number] = encoding.agent_state(self._makes[number], free, devices, kernels, running)

    def _place(self, row: list[Any]) -> Place:
        serial, agent, held, *others = row
        item = self._sessions[serial]
        return Place(
            item.session_id,
            item.kernel_id,
            item.revision,
            self._agents[agent].agent_id,
            self._takes[held],
            tuple(
                KernelPlace(kernel.kernel_id, self._agents[where].agent_id, self._takes[number])
                for kernel, (where, number) in zip(item.sub_kernels, others, strict=True)
            ),
        )
