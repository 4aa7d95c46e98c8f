"""What an agent remembers on disk: a file per kernel, written before it is acted upon.

STATE/ledger/<kernel id>.json (mode 0600: it holds the kernel's secret), STATE/agent.json and
STATE/identity.json. Each is replaced by an atomic rename after fsync. A file of the first two kinds that
cannot be read is moved aside to ``*.corrupt`` and said so; its kernel is then found again by looking
(``Runtime.find``).
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog

from moorage.agent.kernel.outcome import Doom, Outcome
from moorage.agent.runtimes.base import Handle
from moorage.common.aio.clock import Clock
from moorage.common.model.cluster import ClusterMember, ClusterMembership
from moorage.common.model.errors import InvalidInput, StartupError
from moorage.common.model.ids import DeviceId, EndpointId, KernelId, SessionId
from moorage.common.model.kernel import DeviceGrant, KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.service_ports import AppPort, ServicePort
from moorage.common.model.status import ObservedState, SessionType

log = structlog.get_logger("moorage.agent.state.checkpoint")
VERSION = 1
_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One kernel. No ``handle``: it was meant to be started, and perhaps was.

    ``created_at`` in unix seconds. ``ready``: it was ready once. ``doom``: the agent decided to end it.
    """

    spec: KernelSpec
    created_at: float
    port: int = 0
    apps: tuple[AppPort, ...] = ()
    handle: Handle | None = None
    ready: bool = False
    doom: Doom | None = None
    outcome: Outcome | None = None
    log_tail: str = ""

    @property
    def kernel_id(self) -> KernelId:
        return self.spec.kernel_id

    @property
    def held(self) -> tuple[int, ...]:
        """The ports of the node that are its."""
        return tuple(filter(None, (self.port, *(app.port for app in self.apps))))


@dataclasses.dataclass(frozen=True, slots=True)
class Begun:
    """One start of an agent: whose it is, and its number."""

    identity: str
    start: int

    def streams(self) -> Iterator[int]:
        """The numbers of its streams, each greater than all before, those of earlier starts included."""
        return itertools.count((self.start << 20) + 1)


def check_id(kernel_id: str) -> None:
    """A kernel id becomes a file name. Raises ``InvalidInput`` for one that must not."""
    if not _ID.fullmatch(kernel_id):
        raise InvalidInput(f"kernel id {kernel_id!r} is not made of 1 to 64 letters, digits, - and _")


class Ledger:
    """All methods block (fsync): call them in a thread. One writer per kernel at a time, which is its own
    task."""

    def __init__(self, state: Path) -> None:
        self._folder, self._agent = state / "ledger", state / "agent.json"
        self._identity = state / "identity.json"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def load(self) -> dict[KernelId, Entry]:
        entries: dict[KernelId, Entry] = {}
        for path in sorted(self._folder.glob("*.json")):
            try:
                entry = entry_from_json(json.loads(path.read_text()))
                if f"{entry.kernel_id}.json" != path.name:
                    raise ValueError(f"it is about kernel {entry.kernel_id}")
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                _set_aside(path, error)
            else:
                entries[entry.kernel_id] = entry
        for leftover in self._folder.glob("*.tmp"):
            leftover.unlink(missing_ok=True)  # a write that a crash cut short
        return entries

    def write(self, entry: Entry) -> None:
        check_id(entry.kernel_id)
        self._replace(self._folder / f"{entry.kernel_id}.json", entry_to_json(entry))

    def remove(self, kernel_id: KernelId) -> None:
        check_id(kernel_id)
        (self._folder / f"{kernel_id}.json").unlink(missing_ok=True)
        _sync_folder(self._folder)

    def begin(self, clock: Clock) -> Begun:
        """Note a start of the agent. Its number is greater than that of every start before, and follows the
        clock: of two copies of one state directory the one that was started later counts.

        Raises ``StartupError`` for a file that cannot be read: a new identity would be another agent's.
        """
        try:
            known = json.loads(self._identity.read_text())
            identity, before = str(known["identity"]), int(known["start"])
        except FileNotFoundError:
            identity, before = clock.new_id(), 0
        except (ValueError, KeyError, TypeError) as error:
            raise StartupError(
                f"the agent's identity in {self._identity} cannot be read: {error!r}",
                next_step="restore that file; without it, this is another agent, which the manager takes in "
                "once the known one is LOST, or was forgotten (`moorage agents forget ID`)",
            ) from None
        start = max(before + 1, int(clock.now().timestamp() * 1000))
        self._replace(self._identity, {"version": VERSION, "identity": identity, "start": start})
        return Begun(identity, start)

    def generation(self) -> int:
        """The newest generation of orders that was ever taken in; 0 for none."""
        try:
            return int(json.loads(self._agent.read_text())["generation"])
        except FileNotFoundError:
            return 0
        except (ValueError, KeyError, TypeError) as error:
            _set_aside(self._agent, error)
            return 0

    def write_generation(self, generation: int) -> None:
        self._replace(self._agent, {"version": VERSION, "generation": generation})

    def _replace(self, path: Path, value: dict[str, Any]) -> None:
        temporary = path.with_name(f"{path.name}.tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(json.dumps(value))  # at once: json.dump writes piece by piece, ten times slower
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _set_aside(path: Path, error: Exception) -> None:
    aside = path.with_name(f"{path.name}.corrupt")
    path.replace(aside)
    log.error("unreadable ledger file, moved aside", file=str(path), to=str(aside), error=repr(error))


def entry_to_json(entry: Entry) -> dict[str, Any]:
    return {"version": VERSION, **dataclasses.asdict(entry)}


def entry_from_json(data: dict[str, Any]) -> Entry:
    """Raises ``ValueError``, ``KeyError`` or ``TypeError`` for what is not an entry."""
    if data["version"] != VERSION:
        raise ValueError(f"ledger version {data['version']} is not {VERSION}")
    handle, doom, outcome = data["handle"], data["doom"], data["outcome"]
    return Entry(
        spec=_spec(data["spec"]),
        created_at=float(data["created_at"]),
        port=int(data["port"]),
        # An agent of before that wrote none.
        apps=tuple(AppPort(**app) for app in data.get("apps", ())),
        handle=_handle(handle) if handle else None,
        ready=bool(data["ready"]),
        doom=Doom(Reason(doom["reason"]), doom["detail"]) if doom else None,
        outcome=_outcome(outcome) if outcome else None,
        log_tail=data["log_tail"],
    )


def _handle(data: dict[str, Any]) -> Handle:
    apps = tuple(AppPort(**app) for app in data.get("apps", ()))
    return Handle(**data | {"apps": apps, "started": False})  # it was, when this was written


def _outcome(data: dict[str, Any]) -> Outcome:
    return Outcome(ObservedState(data["state"]), data["exit_code"], Reason(data["reason"]), data["detail"])


def _spec(data: dict[str, Any]) -> KernelSpec:
    endpoint = data["endpoint_id"]
    return KernelSpec(
        **data
        | {
            "kernel_id": KernelId(data["kernel_id"]),
            "session_id": SessionId(data["session_id"]),
            "session_type": SessionType(data["session_type"]),
            "args": tuple(data["args"]),
            "command": tuple(data["command"]),
            "devices": tuple(
                DeviceGrant(d["slot"], DeviceId(d["device_id"]), d["amount"]) for d in data["devices"]
            ),
            "endpoint_id": EndpointId(endpoint) if endpoint else None,
            "cluster": _membership(data["cluster"]) if data.get("cluster") else None,
            "ports": tuple(ServicePort(**port) for port in data.get("ports", ())),
        }
    )


def _membership(data: dict[str, Any]) -> ClusterMembership:
    members = tuple(ClusterMember(member["hostname"], member["address"]) for member in data["members"])
    return ClusterMembership(**data | {"group": KernelId(data["group"]), "members": members})
