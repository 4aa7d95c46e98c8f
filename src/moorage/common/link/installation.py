"""Installation that an agent or a proxy belongs to, stored next to its identities.

On links with TLS, the CA identifies it. Without TLS, several installations may have the same link
token, and their orders would stop each other's kernels. The first one is therefore recorded, and
any other is refused.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from moorage.common.model.errors import ConfigError

if TYPE_CHECKING:
    from moorage.common.views.peers import PeerKind


class InstallationFile:
    """``kind``: the kind of the peer that owns the file. The file is read for each connection, so
    removing it takes effect immediately."""

    def __init__(self, path: Path, kind: PeerKind) -> None:
        self.path = path
        self._kind = kind

    def admit(self, found: str, manager: str) -> None:
        """Record this manager's installation if none is recorded.

        Raises ``ConfigError`` if a different one is recorded, or if the file cannot be used.
        Managers of the previous release do not name theirs, so "" is admitted."""
        if not found:
            return

        try:
            kept = self._load() or self._store(found)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"the installation of this {self._kind} cannot be stored in {self.path}: {error!r}",
                next_step="make it writable, or remove it if it is not valid",
            ) from error

        self._compare(kept, found, manager)

    def check(self, found: str, manager: str) -> None:
        """Like ``admit``, without recording anything."""
        try:
            kept = self._load()
        except (OSError, ValueError, KeyError, TypeError):
            return  # the daemon itself reports it
        if found and kept is not None:
            self._compare(kept, found, manager)

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)

    def _compare(self, kept: str, found: str, manager: str) -> None:
        if kept != found:
            raise ConfigError(
                f"{manager} is a manager of installation {found}, but this {self._kind} belongs "
                f"to installation {kept}",
                next_step=(
                    f"correct {self._kind}.manager; or, to move this {self._kind} to the other "
                    f"installation, which stops its kernels, remove {self.path}"
                ),
            )

    def _load(self) -> str | None:
        try:
            return str(json.loads(self.path.read_text())["installation"])
        except FileNotFoundError:
            return None

    def _store(self, found: str) -> str:
        """Write the file durably, unless another process was faster. Returns its content."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self.path.with_suffix(f".{os.getpid()}")
        with temporary.open("w") as out:
            json.dump({"installation": found}, out)
            out.flush()
            os.fsync(out.fileno())

        try:
            os.link(temporary, self.path)
        except FileExistsError:
            pass
        finally:
            temporary.unlink()

        return self._load() or found


def installation_file(home: Path, kind: PeerKind, name: str) -> InstallationFile:
    """File of the peer with this name in the state directory ``home``."""
    return InstallationFile(home / "joined" / f"{kind}-{name}.installation", kind)
