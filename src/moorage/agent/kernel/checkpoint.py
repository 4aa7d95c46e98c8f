"""Checkpoint of an agent on disk: one record per kernel, written before the agent acts on it.

The files are STATE/checkpoint/<kernel id>.json (mode 0600: they hold the kernels' secrets),
STATE/agent.json and STATE/identity.json. Each is replaced by an atomic rename after fsync. An
unreadable file of the first two kinds is renamed to ``*.corrupt`` and logged; its kernel is then
recovered through ``Runtime.find``.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog

from moorage.agent.kernel.outcome import KernelOutcome, TerminationCause
from moorage.agent.runtimes.base import Handle
from moorage.common.aio.clock import Clock
from moorage.common.link.messages import Observation
from moorage.common.model.cluster import ClusterMember, ClusterMembership
from moorage.common.model.errors import InvalidInput, StartupError
from moorage.common.model.ids import DeviceId, EndpointId, KernelId, SessionId
from moorage.common.model.kernel import (
    DeviceGrant,
    HpcJob,
    KernelInput,
    KernelReload,
    KernelSpec,
    KernelTasks,
    Reloaded,
)
from moorage.common.model.reasons import Reason
from moorage.common.model.service_ports import AppPort, ServicePort
from moorage.common.model.status import ObservedState, SessionType

log = structlog.get_logger("moorage.agent.kernel.checkpoint")
VERSION = 1
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclasses.dataclass(frozen=True, slots=True)
class KernelRecord:
    """The record of one kernel. Without ``handle``, the kernel was about to be started and may have
    been.

    ``created_at``: when its creation started, in unix seconds. ``ready``: whether it has been
    ready. ``termination``: why the agent terminates it. ``reload``: the outcome of the last reload,
    which has the same generation as ``spec``.
    """

    spec: KernelSpec
    created_at: float
    port: int = 0
    apps: tuple[AppPort, ...] = ()
    handle: Handle | None = None
    ready: bool = False
    termination: TerminationCause | None = None
    outcome: KernelOutcome | None = None
    log_tail: str = ""
    reload: Reloaded | None = None

    @property
    def kernel_id(self) -> KernelId:
        return self.spec.kernel_id

    @property
    def node_ports(self) -> tuple[int, ...]:
        """The node's ports that the kernel holds."""
        return tuple(filter(None, (self.port, *(app.port for app in self.apps))))

    def observation(self, state: ObservedState, host: str, activity: str) -> Observation:
        """The kernel's state for a report. ``activity``: what it is currently doing, for users."""
        outcome = self.outcome or KernelOutcome(state)
        return Observation(
            kernel_id=self.kernel_id,
            session_id=self.spec.session_id,
            state=state,
            host=host if self.node_ports else "",
            port=self.port,
            exit_code=outcome.exit_code,
            reason=outcome.reason,
            detail=outcome.detail or activity,
            log_tail=self.log_tail,
            apps=self.apps,
            reload=self.reload,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class AgentStart:
    """One start of an agent. ``identity`` belongs to the state directory. ``start`` increases with
    each start."""

    identity: str
    start: int

    def stream_numbers(self) -> Iterator[int]:
        """Numbers for the agent's streams, which also increase across restarts."""
        return itertools.count((self.start << 20) + 1)


def validate_kernel_id(kernel_id: str) -> None:
    """Validate an id. Raises ``InvalidInput`` if it must not be used as a file name."""
    if not _ID.fullmatch(kernel_id):
        raise InvalidInput(
            f"kernel id {kernel_id!r} does not consist of 1 to 64 letters, digits, - and _"
        )


class CheckpointFiles:
    """The files of the checkpoint. All methods block (fsync): call them in a thread. Each kernel's
    record is written only by that kernel's task."""

    def __init__(self, state: Path) -> None:
        self._records = state / "checkpoint"
        self._generation_file = state / "agent.json"
        self._identity_file = state / "identity.json"
        try:
            self._records.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise _cannot_write(state, error) from None

    def load(self) -> dict[KernelId, KernelRecord]:
        records: dict[KernelId, KernelRecord] = {}
        for path in sorted(self._records.glob("*.json")):
            try:
                record = record_from_json(json.loads(path.read_text()))
                if f"{record.kernel_id}.json" != path.name:
                    raise ValueError(f"it holds the record of kernel {record.kernel_id}")
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                _quarantine(path, error)
            else:
                records[record.kernel_id] = record

        for leftover in self._records.glob("*.tmp"):
            leftover.unlink(missing_ok=True)  # left behind by a write that a crash interrupted

        return records

    def write(self, record: KernelRecord) -> None:
        validate_kernel_id(record.kernel_id)
        self._replace(self._records / f"{record.kernel_id}.json", record_to_json(record))

    def remove(self, kernel_id: KernelId) -> None:
        validate_kernel_id(kernel_id)
        (self._records / f"{kernel_id}.json").unlink(missing_ok=True)
        _sync_folder(self._records)

    def record_start(self, clock: Clock) -> AgentStart:
        """Record a start of the agent. Its number exceeds that of every earlier start and follows
        the clock, so that of two copies of one state directory, the one started later prevails.

        Raises ``StartupError`` for an unreadable file, because a new identity would make this a
        different agent. It also raises if nothing can be written, for example on a full disk.
        """
        try:
            known = json.loads(self._identity_file.read_text())
            identity = str(known["identity"])
            last_start = int(known["start"])
        except FileNotFoundError:
            identity = clock.new_id()
            last_start = 0
        except (ValueError, KeyError, TypeError) as error:
            raise StartupError(
                f"the agent's identity in {self._identity_file} cannot be read: {error!r}",
                next_step="restore that file; without it, this is a different agent, which the "
                "manager "
                "admits once the known one is LOST or removed with `moorage agents forget ID`",
            ) from None

        start = max(last_start + 1, int(clock.now().timestamp() * 1000))
        try:
            self._replace(
                self._identity_file, {"version": VERSION, "identity": identity, "start": start}
            )
        except OSError as error:
            raise _cannot_write(self._identity_file.parent, error) from None

        return AgentStart(identity, start)

    def generation(self) -> int:
        """The newest generation of orders ever applied; 0 means none."""
        try:
            return int(json.loads(self._generation_file.read_text())["generation"])
        except FileNotFoundError:
            return 0
        except (ValueError, KeyError, TypeError) as error:
            _quarantine(self._generation_file, error)
            return 0

    def write_generation(self, generation: int) -> None:
        self._replace(self._generation_file, {"version": VERSION, "generation": generation})

    def _replace(self, path: Path, value: dict[str, Any]) -> None:
        temporary = path.with_name(f"{path.name}.tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as file:
            # json.dump writes in small pieces, which takes ten times as long
            file.write(json.dumps(value))
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


def _cannot_write(state: Path, error: OSError) -> StartupError:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return StartupError(
        f"the agent cannot write its state in {state}: {os.strerror(error.errno or 0)}",
        next_step=f"free some space on the disk of {state}; the agent's kernels keep running"
        if is_full
        else "make the directory writable for the agent's user",
    )


def _quarantine(path: Path, error: Exception) -> None:
    corrupt = path.with_name(f"{path.name}.corrupt")
    path.replace(corrupt)
    log.error(
        "unreadable checkpoint file, renamed", file=str(path), to=str(corrupt), error=repr(error)
    )


def record_to_json(record: KernelRecord) -> dict[str, Any]:
    data = {"version": VERSION, **dataclasses.asdict(record)}
    # The previous release cannot read records that have these fields.
    if not record.spec.checkpoint_signal:
        del data["spec"]["checkpoint_signal"], data["spec"]["checkpoint_grace_s"]
    return data


def record_from_json(data: dict[str, Any]) -> KernelRecord:
    """Parse a record. Raises ``ValueError``, ``KeyError`` or ``TypeError`` if the data is not a
    record."""
    if data["version"] != VERSION:
        raise ValueError(f"checkpoint version {data['version']} is not {VERSION}")

    handle = data["handle"]
    termination = data["termination"]
    outcome = data["outcome"]
    return KernelRecord(
        spec=_spec(data["spec"]),
        created_at=float(data["created_at"]),
        port=int(data["port"]),
        # Absent from records written by agents that predate service ports.
        apps=tuple(AppPort(**app) for app in data.get("apps", ())),
        handle=_handle(handle) if handle else None,
        ready=bool(data["ready"]),
        termination=_termination(termination) if termination else None,
        outcome=_outcome(outcome) if outcome else None,
        log_tail=data["log_tail"],
        reload=Reloaded(**reload) if (reload := data.get("reload")) else None,
    )


def _handle(data: dict[str, Any]) -> Handle:
    apps = tuple(AppPort(**app) for app in data.get("apps", ()))
    # ``started`` is true only right after ``create``, so this handle must be observed again.
    return Handle(**data | {"apps": apps, "started": False})


def _termination(data: dict[str, Any]) -> TerminationCause:
    return TerminationCause(Reason(data["reason"]), data["detail"])


def _outcome(data: dict[str, Any]) -> KernelOutcome:
    return KernelOutcome(
        ObservedState(data["state"]), data["exit_code"], Reason(data["reason"]), data["detail"]
    )


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
                DeviceGrant(d["slot"], DeviceId(d["device_id"]), d["amount"])
                for d in data["devices"]
            ),
            "endpoint_id": EndpointId(endpoint) if endpoint else None,
            "cluster": _membership(data["cluster"]) if data.get("cluster") else None,
            "ports": tuple(ServicePort(**port) for port in data.get("ports", ())),
            "outputs": tuple(data.get("outputs", ())),
            "inputs": tuple(KernelInput(**input_) for input_ in data.get("inputs", ())),
            "hpc": HpcJob(**hpc) if (hpc := data.get("hpc")) else None,
            "reload": KernelReload(**reload) if (reload := data.get("reload")) else None,
            "tasks": _tasks(tasks) if (tasks := data.get("tasks")) else None,
        }
    )


def _tasks(data: dict[str, Any]) -> KernelTasks:
    return KernelTasks(**data | {"command": tuple(data["command"])})


def _membership(data: dict[str, Any]) -> ClusterMembership:
    members = tuple(
        ClusterMember(member["hostname"], member["address"]) for member in data["members"]
    )
    return ClusterMembership(**data | {"group": KernelId(data["group"]), "members": members})
