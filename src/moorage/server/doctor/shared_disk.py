"""Check whether sessions and the embedded Postgres of this machine share a disk."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from moorage.common.config.settings import Settings
from moorage.common.model.slots import parse_size
from moorage.server.doctor.checks import CheckResult

_NAME = "disk of Postgres"


def check_shared_disk(settings: Settings, home: Path) -> list[CheckResult]:
    """Check for a shared disk. Returns no result if Postgres is elsewhere, or if the agent runs no
    programs on this machine."""
    agent = settings.agent
    if settings.manager.dsn is not None or not {"process", "docker"}.intersection(agent.runtimes):
        return []

    written = {"the agent's state": home / f"agent-{agent.id or socket.gethostname()}"}
    if agent.model_cache is not None:
        written["agent.model_cache"] = Path(agent.model_cache)

    database = database_directory(home)
    shared = {what: path for what, path in written.items() if _disk(path) == _disk(database)}
    if not shared:
        return [CheckResult("ok", _NAME, f"{database}, separate from the data of sessions")]

    return [_shared(shared, database, agent.process_disk)]


def database_directory(home: Path) -> Path:
    """The present or future data directory of the embedded Postgres."""
    folder = home / "postgres"
    try:
        return Path((folder / "place").read_text().strip()) / "data"
    except OSError:
        return folder / "data"


def _shared(shared: Mapping[str, Path], database: Path, limit: str) -> CheckResult:
    places = " and ".join(f"{what} ({path})" for what, path in shared.items())
    bound = (
        f"processes of members at most {limit} each" if parse_size(limit) else "without any limit"
    )
    detail = f"sessions can fill the disk of {database}, which also holds {places}, {bound}"
    places = " and ".join(map(str, shared.values()))
    next_step = f"mount a separate disk at {places}, or use a Postgres elsewhere (manager.dsn)"
    return CheckResult("warn", _NAME, detail, next_step)


def _disk(path: Path) -> int:
    """The file system of a path, or of the directory in which the path would be created."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return os.stat(path).st_dev
