"""Decision log reader: restores the planner's exact snapshots and its decisions."""

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
    """The stored decisions cannot be read: they are damaged, incomplete, or written in another
    format."""

    code = "corrupt-decision-log"


@dataclass(frozen=True, slots=True)
class RecordedPass:
    """One recorded scheduling pass. Times are in microseconds.

    ``placed``: how many of ``places`` were committed; the others were stale. ``held``: the number
    of sessions on hold, by reason. ``idle_passes``: the number of passes before this one that saw
    no change and changed nothing.
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


class SegmentReader:
    """Reads the segments of one group in order. The first must be complete, that is, readable
    without others."""

    def __init__(self) -> None:
        self._has_base = False
        self._reset()

    def _reset(self) -> None:
        self._session_templates: list[encoding.Json] = []
        self._allocations: list[tuple[Allocation, ...]] = []
        self._owners: list[list[Any]] = []
        self._agent_templates: dict[int, encoding.Json] = {}
        self._devices: dict[int, tuple[DeviceState, ...]] = {}
        self._agents: dict[int, AgentState] = {}
        self._running: dict[int, dict[str, Running]] = {}
        self._sessions: dict[int, Pending] = {}
        self._serials: dict[SessionId, int] = {}
        self._next_serial = 0
        self._policy: Policy | None = None
        self._quotas: tuple[Quota, ...] = ()
        self._cursors: Mapping[str, AgentId] = {}
        self._usage: Mapping[str, Mapping[str, int]] | None = None
        self._held: Mapping[str, int] = {}

    def read(self, body: bytes) -> Iterator[RecordedPass]:
        """The passes of one segment. Raises ``CorruptDecisionLog``."""
        try:
            header, *lines = zlib.decompress(body).splitlines()
            segment = json.loads(header)
            if segment["format"] != FORMAT:
                raise CorruptDecisionLog(
                    f"the decision log has format {segment['format']}; this version reads {FORMAT}",
                    next_step="read it with the version that wrote it",
                )

            if segment["whole"]:
                self._reset()
                self._has_base = True

            if not self._has_base:
                raise CorruptDecisionLog(
                    "the first segment is not complete: it can only be read after the segments "
                    "before it"
                )

            for line in lines:
                found = self._read_line(json.loads(line), segment["group"], segment["base"])
                if found is not None:
                    yield found
        except (zlib.error, ValueError, LookupError, TypeError) as error:
            raise CorruptDecisionLog(
                f"the decision log cannot be read: {type(error).__name__}: {error}"
            ) from error

    def _read_line(self, line: encoding.Json, group: str, base: int) -> RecordedPass | None:
        self._session_templates += line.get("kinds", ())
        self._allocations += map(encoding.decode_allocations, line.get("takes", ()))
        owners = line.get("owners", ())
        stop_times = line.get("stop_times", [None] * len(owners))  # absent in older logs
        self._owners += [[*owner, stops] for owner, stops in zip(owners, stop_times, strict=True)]
        for number, template in line.get("makes", ()):
            self._devices[number] = encoding.decode_devices(template)
            self._agent_templates[number] = template
        for row in line.get("agents", ()):
            self._update_agent(row, base)
        for row in line.get("wait", ()):
            self._add_pending(row, base)

        if "at" not in line:
            return None

        for number in line.get("left", ()):
            del self._agents[number]
            self._running.pop(number, None)
        for serial in line.get("gone", ()):
            del self._serials[self._sessions.pop(serial).session_id]

        if "policy" in line:
            self._policy = encoding.decode_policy(line["policy"])

        if "quotas" in line:
            elsewhere = line.get("elsewhere", [()] * len(line["quotas"]))  # absent in older logs
            node_hours = line.get("node_hours", [()] * len(line["quotas"]))  # likewise
            parts = zip(line["quotas"], elsewhere, node_hours, strict=True)
            self._quotas = tuple(encoding.decode_quota(*each) for each in parts)

        self._cursors = line.get("cursors", self._cursors)
        (self._usage,) = line.get("usage", [self._usage])
        self._held = line.get("held", self._held)
        return self._decision(line, group, base)

    def _decision(self, line: encoding.Json, group: str, base: int) -> RecordedPass:
        agents = tuple(self._agents.values())
        pending = tuple(self._sessions.values())
        if [len(agents), len(pending)] != line["of"] or self._policy is None:
            raise CorruptDecisionLog(
                f"the decision log is inconsistent: {len(agents)} agents and {len(pending)} "
                f"sessions instead of {line['of'][0]} and {line['of'][1]}"
            )

        places = tuple(map(self._place, line.get("places", ())))
        decision = RecordedPass(
            at=base + line["at"],
            took=line["took"],
            snapshot=Snapshot(
                group,
                agents,
                pending=pending,
                quotas=self._quotas,
                cursors=self._cursors,
                usage=self._usage,
            ),
            policy=self._policy,
            places=places,
            placed=line["placed"],
            held=self._held,
            victims=tuple(Victim(*victim) for victim in line.get("victims", ())),
            idle_passes=line.get("alike", 0),
        )
        for place in places:
            del self._sessions[self._serials.pop(place.session_id)]

        return decision

    def _add_pending(self, row: list[Any], base: int) -> None:
        item = encoding.decode_pending(row, self._session_templates[row[2]], base)
        if (old := self._serials.get(item.session_id)) is not None:
            del self._sessions[old]
        self._sessions[self._next_serial], self._serials[item.session_id] = item, self._next_serial
        self._next_serial += 1

    def _update_agent(self, row: list[Any], base: int) -> None:
        number, free, changes, kernels, *running_changes = row
        known = self._running.setdefault(number, {})
        if running_changes:
            added, ended = running_changes
            for kernel_id in ended:
                del known[kernel_id]

            for encoded in added:
                kernel = encoding.decode_running(
                    encoded, self._allocations[encoded[2]], self._owners[encoded[3]], base
                )
                known[kernel.kernel_id] = kernel

        running = tuple(known.values())
        devices = self._devices[number] = encoding.apply_free_devices(
            self._devices[number], changes
        )
        self._agents[number] = encoding.decode_agent(
            self._agent_templates[number], free, devices=devices, kernels=kernels, running=running
        )

    def _place(self, row: list[Any]) -> Place:
        serial, agent, held, *sub_kernels = row
        item = self._sessions[serial]
        return Place(
            item.session_id,
            item.kernel_id,
            item.revision,
            self._agents[agent].agent_id,
            allocations=self._allocations[held],
            sub_kernels=tuple(
                KernelPlace(
                    kernel.kernel_id, self._agents[agent_number].agent_id, self._allocations[number]
                )
                for kernel, (agent_number, number) in zip(
                    item.sub_kernels, sub_kernels, strict=True
                )
            ),
        )
