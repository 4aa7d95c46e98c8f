"""Job records in the agent's state directory: data that HEAppE does not return, and our intent."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from moorage.common.model.ids import KernelId

_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class HeappeRecord:
    """A record. ``job_id`` is 0 until the job is created. Times are in unix seconds; 0 means never.
    ``submitting_at``: when its submission started; ``submitted``: whether the submission was
    confirmed. ``running_at``: when it was first seen running. ``ended_at``: when its end was first
    read; ``terminated``: whether it had received SIGTERM."""

    kernel_id: KernelId
    name: str
    job_id: int = 0
    task_id: int = 0
    cluster_id: int = 0
    walltime_s: float = 0.0
    serves: bool = False
    created_at: float = 0.0
    submitting_at: float = 0.0
    submitted: bool = False
    running_at: float = 0.0
    stopping: bool = False
    exit_code: int | None = None
    ended_at: float = 0.0
    terminated: bool = False


class JobRecords:
    """The records. All methods block and raise ``OSError``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def reserve(self, record: HeappeRecord) -> bool:
        """Write a kernel's first record. Returns False if there already is one, which means that
        another call creates its job."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            fd = os.open(self._path(record.kernel_id), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return False

        with os.fdopen(fd, "w") as file:
            file.write(json.dumps(asdict(record)))

        return True

    def save(self, record: HeappeRecord) -> None:
        """Write a newer record. A record that was removed stays removed."""
        path = self._path(record.kernel_id)
        if not path.exists():
            return

        # An abandoned write continues in its thread alongside the next one.
        new = path.with_suffix(f".{threading.get_ident()}.new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(json.dumps(asdict(record)))
            file.flush()
            os.fsync(file.fileno())

        os.replace(new, path)

    def read(self, kernel_id: KernelId) -> HeappeRecord | None:
        return _read(self._path(kernel_id))

    def load(self) -> dict[KernelId, HeappeRecord]:
        records = [_read(path) for path in self.folder.glob(f"*{_SUFFIX}")]
        return {record.kernel_id: record for record in records if record is not None}

    def remove(self, kernel_id: KernelId) -> None:
        self._path(kernel_id).unlink(missing_ok=True)

    def _path(self, kernel_id: KernelId) -> Path:
        return self.folder / f"{kernel_id}{_SUFFIX}"


def _read(path: Path) -> HeappeRecord | None:
    """Read a record. None if there is no record, or if an agent died while reserving it."""
    try:
        value: Any = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    known = HeappeRecord.__dataclass_fields__
    return HeappeRecord(**{name: item for name, item in value.items() if name in known})
