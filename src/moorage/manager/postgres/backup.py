"""Backup of the database to a single file, and restore from it.

The file is a pg_dump archive in the custom format. A backup is consistent and does not disturb a
running manager. A restore is one transaction: it succeeds, or leaves the database as it was.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from moorage.common.model.errors import ConfigError, Conflict, InvalidInput, StartupError
from moorage.manager.postgres.clients import ClientPrograms

# All of Moorage's objects in a database. Restoring over another release's objects would leave some
# of them in place.
_DROP = """
DO $$ DECLARE place text; statement text; BEGIN
    SELECT schemaname INTO place FROM pg_tables WHERE tablename = 'alembic_version';
    FOR statement IN
        SELECT format('DROP TABLE %I.%I CASCADE', schemaname, tablename)
        FROM pg_tables WHERE schemaname = place
        UNION ALL
        SELECT format('DROP SEQUENCE IF EXISTS %I.%I CASCADE', schemaname, sequencename)
        FROM pg_sequences WHERE schemaname = place
        UNION ALL
        SELECT format('DROP FUNCTION %s CASCADE', p.oid::regprocedure)
        FROM pg_proc p WHERE p.pronamespace = to_regnamespace(place)
          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
    LOOP EXECUTE statement; END LOOP;
END $$;
"""
_PSQL = ("--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1")


@dataclass(frozen=True, slots=True)
class Archive:
    """A backup: its file, the time at which it was taken (as pg_dump writes it), and the revision
    of its schema."""

    path: Path
    taken_at: str
    revision: str


async def dump(programs: ClientPrograms, path: Path) -> int:
    """Write the database to ``path``, readable only by its owner. Returns its size in bytes.

    The file appears when it is complete. Raises ``ConfigError`` if it exists or cannot be written,
    ``StartupError`` if pg_dump fails.
    """
    if path.exists():  # noqa: ASYNC240 - a command
        raise ConfigError(f"{path} exists", next_step="choose another name, or remove that file")

    partial = path.with_name(f".{path.name}.partial")
    try:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}",
            next_step="choose a directory that you can write to",
        ) from error

    try:
        await programs.run(
            "pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--file={partial}"
        )
        with partial.open("rb") as file:
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size

        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)

    return size


async def inspect(programs: ClientPrograms, path: Path) -> Archive:
    """Inspect a backup. Raises ``InvalidInput`` for a file that is not a backup of a Moorage
    database."""
    next_step = "name a file that `moorage db backup` wrote"
    if not path.is_file():  # noqa: ASYNC240 - a command
        raise InvalidInput(f"there is no file {path}", next_step=next_step)

    try:
        listed = await programs.run("pg_restore", "--list", str(path), on_database=False)
        rows = await programs.run(
            "pg_restore",
            "--data-only",
            "--table=alembic_version",
            "--file=-",
            str(path),
            on_database=False,
        )
    except StartupError as error:
        raise InvalidInput(
            f"{path} cannot be read as a backup: {error}", next_step=next_step
        ) from error

    lines = rows.decode().splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith("COPY ")), None)
    if start is None or lines[start + 1] == r"\.":
        raise InvalidInput(f"{path} is not a backup of a Moorage database", next_step=next_step)

    created = next((x for x in listed.decode().splitlines() if "Archive created at" in x), "")
    return Archive(
        path, created.partition("created at ")[2].strip() or "an unknown time", lines[start + 1]
    )


def check_target(
    tables: Collection[str], clients: Collection[str], ours: Collection[str], *, overwrite: bool
) -> None:
    """Raise ``Conflict`` if the database is in use by ``clients``, contains ``tables`` that are not
    in ``ours``, or is not empty and must not be overwritten."""
    check_unused(clients)
    if foreign := sorted(set(tables) - set(ours)):
        raise Conflict(
            "the database has tables that this release of Moorage does not know: "
            f"{', '.join(foreign)}",
            next_step="restore into a separate database",
        )

    if tables and not overwrite:
        raise Conflict(
            "the database is not empty",
            next_step=(
                "restore into an empty database, or use --overwrite, which replaces everything "
                "in the database"
            ),
        )


def check_unused(clients: Collection[str]) -> None:
    """Raise ``Conflict`` while other clients are connected to the database."""
    if clients:
        raise Conflict(
            f"the database is in use: {', '.join(clients)}",
            next_step="stop every manager of the database, then try again",
        )


async def load(programs: ClientPrograms, archive: Archive, *, unprepared: str) -> None:
    """Replace our tables with those of the archive, in one transaction. The revision gets the
    suffix ``unprepared``."""
    with _private_directory() as directory:
        script = directory / "archive.sql"
        options = ("--no-owner", "--no-privileges", f"--file={script}")
        await programs.run("pg_restore", *options, str(archive.path), on_database=False)
        if programs.server < 17 <= programs.major:
            _blank(script, b"SET transaction_timeout = 0;")

        mark = f"UPDATE public.alembic_version SET version_num = version_num || '{unprepared}'"
        await programs.run(
            "psql", *_PSQL, f"--command={_DROP}", f"--file={script}", f"--command={mark}"
        )


async def clear(programs: ClientPrograms) -> None:
    """Remove what a restore has written to a database that was empty before."""
    await programs.run("psql", *_PSQL, f"--command={_DROP}")


def _blank(script: Path, statement: bytes) -> None:
    """Remove from the beginning of a script the statement that newer programs write and older
    servers refuse."""
    with script.open("r+b") as file:
        head = file.read(4096)
        file.seek(0)
        file.write(head.replace(statement, b" " * len(statement)))


@contextmanager
def _private_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="moorage-restore-") as name:
        yield Path(name)
