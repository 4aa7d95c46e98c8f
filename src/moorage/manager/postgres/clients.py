"""Client programs of Postgres (pg_dump, pg_restore, psql): how they are found and run on a
database."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from moorage.common.model.errors import StartupError
from moorage.manager.postgres.binaries import binary_directories

_PROGRAMS = ("pg_dump", "pg_restore", "psql")


class ClientPrograms:
    """Programs in one directory, of major version ``major``, for the database ``dsn`` on a server
    of version ``server``, which may differ."""

    def __init__(self, directory: Path, major: int, dsn: str, server: int) -> None:
        self.directory = directory
        self.major = major
        self.server = server
        self._dsn = dsn

    async def run(self, program: str, *arguments: str, on_database: bool = True) -> bytes:
        """Run a program to completion, and return its output. Raises ``StartupError`` with the
        program's errors."""
        url, password = _without_password(self._dsn)

        # The password is in the environment, because arguments are public.
        environment = {
            name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ
        }
        process = await asyncio.create_subprocess_exec(
            str(self.directory / program),
            *([f"--dbname={url}"] if on_database else []),
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment | {"LC_ALL": "C", "PGPASSWORD": password, "PGAPPNAME": "moorage db"},
        )
        try:
            output, errors = await process.communicate()
        except BaseException:
            process.kill()
            await process.wait()
            raise

        if process.returncode != 0:
            message = errors.decode(errors="replace").strip().replace(password or "\0", "***")
            raise StartupError(
                f"{program} failed: {message or f'exit code {process.returncode}'}",
                next_step="nothing was changed; correct the cause and run the command again",
            )

        return output


async def client_programs(dsn: str, server: int, bin_dir: Path | None) -> ClientPrograms:
    """Find programs for a server of major version ``server``: of that version if available,
    otherwise of a newer one.

    ``bin_dir``: the only directory to look in. Raises ``StartupError`` if there are none.
    """
    found = await asyncio.to_thread(lambda: list(_find(bin_dir)))
    usable = sorted((major, n) for n, (_, major) in enumerate(found) if major >= server)
    if usable:
        directory, major = found[usable[0][1]]
        return ClientPrograms(directory, major, dsn, server)

    available = ", ".join(f"{major} in {directory}" for directory, major in found) or "none"
    raise StartupError(
        f"the server is Postgres {server}, and {', '.join(_PROGRAMS)} must not be older; this "
        "machine has: "
        f"{available}",
        next_step=f"install postgresql-client-{server}, or set manager.postgres_bin to the "
        "directory of its "
        "programs",
    )


def _find(bin_dir: Path | None) -> Iterator[tuple[Path, int]]:
    on_path = shutil.which("pg_dump")
    candidates: Sequence[Path] = (
        [bin_dir.expanduser().absolute()]
        if bin_dir
        else [*binary_directories(), *([Path(on_path).parent] if on_path else [])]
    )
    for directory in dict.fromkeys(candidates):
        if all((directory / program).is_file() for program in _PROGRAMS):
            try:
                command = [str(directory / "pg_dump"), "--version"]
                run = subprocess.run(
                    command, capture_output=True, text=True, timeout=30, check=False
                )
            except (OSError, subprocess.TimeoutExpired):
                continue

            if version := re.search(r"\(PostgreSQL\) (\d+)", run.stdout):
                yield directory, int(version[1])


def _without_password(dsn: str) -> tuple[str, str]:
    """Split the URL into a URL without the password, and the password."""
    parts = urlsplit(dsn)
    if parts.password is None:
        return dsn, os.environ.get("PGPASSWORD", "")
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}@{host}")), unquote(
        parts.password
    )
