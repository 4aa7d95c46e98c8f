"""Kernel directories on the file system that the login node shares with the site's nodes.

``WORK/<kernel id>/`` holds ``job.json`` (the agent's record of the job), ``spec.json`` (the
launcher's input, with the kernel's secret), ``job.sh`` (which starts the launcher), ``work`` (its
working directory), the launcher's marks ``started.json`` and ``exit.json``, the log, and
``slurm.out`` (the output of Slurm and the launcher).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeGuard

import structlog

from moorage.agent.runtimes.batch import launcher
from moorage.agent.runtimes.slurm.interpretation import Exit, Marks
from moorage.agent.state import log_writer
from moorage.agent.state.log_files import is_renamed, log_paths
from moorage.agent.state.log_times import LogRange, set_inode
from moorage.agent.state.logs import LogStore
from moorage.common.link.log_request import LogPiece
from moorage.common.model.ids import KernelId

HEARTBEAT = "heartbeat"
_JOB = "job.json"
_SPEC = "spec.json"
_STARTED = "started.json"
_EXIT = "exit.json"
_OUTPUT = "slurm.out"
log = structlog.get_logger("moorage.agent.slurm")
_STOPPED = "stopped"
_GRACE = "grace"
_SCRIPT = "job.sh"
_OUTPUT_BYTES = 500
_LATEST = 2.0**43  # unix seconds
_HOST = re.compile(r"[A-Za-z0-9_.:%-]{1,255}")


@dataclass(frozen=True, slots=True)
class SlurmRecord:
    """A record. ``job_id``: empty until the site has returned or listed it. ``doubt_since``: when a
    submission got no answer, in unix seconds; 0 if none did. ``ends_at``: the last known end of the
    walltime; 0 if unknown."""

    kernel_id: KernelId
    name: str
    job_id: str = ""
    doubt_since: float = 0.0
    ends_at: float = 0.0


class JobFolders:
    """The directories. All methods block, because the file system may be remote. ``logs``: where
    logs are finally kept."""

    def __init__(self, work: Path, logs: LogStore) -> None:
        self.work = work
        self._final = logs
        self.logs = LogStore(work)

    def prepare(self) -> Path:
        """Prepare the directory and return the path of the launcher for jobs. Raises
        ``OSError``."""
        self.work.mkdir(parents=True, exist_ok=True, mode=0o700)
        for module, name in ((log_writer, "kernel_log.py"), (launcher, "launcher.py")):
            path = self.work / name
            text = Path(str(module.__file__)).read_text()
            if not path.exists() or path.read_text() != text:
                launcher.write_private(str(path), text, 0o600)
        return path

    def beat(self, text: str) -> None:
        launcher.write_private(str(self.work / HEARTBEAT), text, 0o600)

    def path(self, kernel_id: KernelId) -> Path:
        return self.work / kernel_id

    def files(self, kernel_id: KernelId) -> Path:
        """The program's working directory."""
        return self.path(kernel_id) / "work"

    def output(self, kernel_id: KernelId) -> Path:
        return self.path(kernel_id) / _OUTPUT

    def script(self, kernel_id: KernelId) -> Path:
        return self.path(kernel_id) / _SCRIPT

    def create(self, record: SlurmRecord, spec: Mapping[str, Any], script: str) -> bool:
        """Create a kernel's directory. Returns False if it exists, which means that another call
        submits or has submitted its job. Raises ``OSError``."""
        folder = self.path(record.kernel_id)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            return False

        self.files(record.kernel_id).mkdir(mode=0o700)
        launcher.write_private(str(folder / _SPEC), json.dumps(spec), 0o600)
        launcher.write_private(str(folder / _SCRIPT), script, 0o700)
        self.save(record)

        return True

    def save(self, record: SlurmRecord) -> None:
        launcher.write_private(
            str(self.path(record.kernel_id) / _JOB), json.dumps(asdict(record)), 0o600
        )

    def load(self) -> dict[KernelId, SlurmRecord]:
        records = (self.record(KernelId(path.parent.name)) for path in self.work.glob(f"*/{_JOB}"))
        return {record.kernel_id: record for record in records if record is not None}

    def record(self, kernel_id: KernelId) -> SlurmRecord | None:
        found = _read_json(self.path(kernel_id) / _JOB)
        return SlurmRecord(**found | {"kernel_id": kernel_id}) if found else None

    def marks(self, record: SlurmRecord) -> Marks:
        folder = self.path(record.kernel_id)
        started = _read_json(folder / _STARTED)
        end = _read_json(folder / _EXIT)
        address, app_ports = _listens(started or {})

        return Marks(
            address=address,
            app_ports=app_ports,
            exit=_exit(end or {}),
            ends_at=record.ends_at or None,
            stopped=(folder / _STOPPED).exists(),
            output=_tail(folder / _OUTPUT),
        )

    def note_stop(self, kernel_id: KernelId, grace_s: float) -> None:
        """Record a stop. A failure to write the record, for example on a full disk, does not
        prevent the job from being stopped."""
        folder = self.path(kernel_id)
        if not folder.is_dir():
            return
        try:
            (folder / _STOPPED).touch()
            launcher.write_private(str(folder / _GRACE), str(grace_s), 0o600)
        except OSError as error:
            log.warning("the stop of a job was not recorded", kernel=kernel_id, error=str(error))

    def remove(self, kernel_id: KernelId) -> None:
        """Remove everything except the log, which moves to the place where logs outlive their
        kernels."""
        folder = self.path(kernel_id)
        target = self._final.folder(kernel_id)
        for path, times in log_paths(folder):
            target.mkdir(parents=True, exist_ok=True, mode=0o700)
            if times.exists():
                shutil.move(str(times), str(target / times.name))

            shutil.move(str(path), str(target / path.name))
            if is_renamed(path) and (moved := target / times.name).exists():
                set_inode(moved, target / path.name)

        shutil.rmtree(folder, ignore_errors=True)

    def has_exited(self, kernel_id: KernelId) -> bool:
        folder = self.path(kernel_id)
        return (folder / _EXIT).exists() or not folder.exists()

    def log_tail(self, kernel_id: KernelId, max_bytes: int) -> str:
        """The end of the log. For a job that never had a log, the output of Slurm and the
        launcher."""
        text = self.log_store(kernel_id).tail(kernel_id, max_bytes)
        return text or _tail(self.path(kernel_id) / _OUTPUT)[-max_bytes:]

    def open_log(
        self, kernel_id: KernelId, wanted: LogRange, is_running: Callable[[], bool]
    ) -> AsyncGenerator[LogPiece, None]:
        return self.log_store(kernel_id).read_range(
            kernel_id, wanted, lambda: is_running() and not self.has_exited(kernel_id)
        )

    def log_store(self, kernel_id: KernelId) -> LogStore:
        return self.logs if self.logs.exists(kernel_id) else self._final


def _read_json(path: Path) -> dict[str, Any] | None:
    """The contents of a JSON file, or None. Files are replaced atomically, but a network file
    system may show an old version."""
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _listens(started: Mapping[str, Any]) -> tuple[tuple[str, int] | None, Mapping[str, int]]:
    """Where the program listens. The program can also write this file, so values that the launcher
    would not write are ignored, because they would enter the agent's report."""
    host = started.get("host")
    port = started.get("port")
    ports = started.get("ports", {})
    if not (
        isinstance(host, str)
        and _HOST.fullmatch(host)
        and _is_int(port, 0, 65535)
        and isinstance(ports, dict)
    ):
        return None, {}

    usable = {str(name): number for name, number in ports.items() if _is_int(number, 1, 65535)}
    return (host, port), usable if len(usable) == len(ports) else {}


def _exit(end: Mapping[str, Any]) -> Exit | None:
    code = end.get("code")
    reason = end.get("reason")
    at = end.get("at")
    never_started = end.get("never_started")
    known = code is None or _is_int(code, -255, 255)
    if not (known and isinstance(reason, str) and isinstance(never_started, bool)):
        return None
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at < _LATEST:
        return None

    # An older release's launcher does not report whether memory ran out.
    return Exit(
        code,
        reason[:_OUTPUT_BYTES],
        never_started=never_started,
        at=float(at),
        oom=end.get("oom") is True,
    )


def _is_int(value: object, least: int, most: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _OUTPUT_BYTES))
            return file.read().decode(errors="replace").replace("\0", "").strip()
    except OSError:
        return ""
