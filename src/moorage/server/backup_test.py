"""Test of a backup: restores it into a temporary Postgres."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from moorage.common.aio.clock import Clock
from moorage.manager.postgres import EmbeddedPostgres, backup
from moorage.manager.postgres.clients import client_programs
from moorage.manager.store import Store
from moorage.manager.store.database.state import database_state
from moorage.manager.store.platform.integrity import Drift
from moorage.manager.store.platform.restored import prepare_restored
from moorage.manager.store.schema.migrate import UNPREPARED, check_revision


@dataclass(frozen=True, slots=True)
class TestedBackup:
    """A backup that was restored for a test. ``taken_at``: in pg_dump's format. ``size``: the
    file's size in bytes."""

    taken_at: str
    sessions: int
    size: int
    drifts: list[Drift]


async def restore_temporarily(file: Path, bin_dir: Path | None, clock: Clock) -> TestedBackup:
    """Restore the backup. Raises ``InvalidInput`` if the file is not a backup, and ``StartupError``
    if it cannot be restored."""
    with tempfile.TemporaryDirectory(prefix="moorage-verify-") as directory:
        place = Path(directory)
        os.chmod(place, 0o711)  # the server runs as another user
        async with EmbeddedPostgres(
            place / "postgres",
            bin_dir=bin_dir,
            clock=clock,
            extra={"fsync": "off"},
            fallback_root=place / "fallback",
        ) as postgres:
            url = postgres.manager_dsn
            programs = await client_programs(url, (await database_state(url)).major, bin_dir)
            archive = await backup.inspect(programs, file)
            check_revision(archive.revision)
            await backup.load(programs, archive, unprepared=UNPREPARED)
            found = await prepare_restored(url)
            async with Store(url, clock) as store:
                drifts = list(await store.integrity.check())

            return TestedBackup(archive.taken_at, found.sessions, file.stat().st_size, drifts)  # noqa: ASYNC240 - a command
