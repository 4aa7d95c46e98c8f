"""Sessions' working directories on this node: STATE/workspaces/kept/<session id> outlives the session's
kernels, STATE/workspaces/passing/<kernel id> goes with its container. A process has a folder that goes with
it anyway."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from moorage.common.model.ids import SessionId
from moorage.common.model.kernel import KernelSpec

# A container's user is the image's to choose: it may be any. Nobody else gets there, by the folders above.
_OPEN, _OWN = 0o777, 0o700


@dataclass(frozen=True, slots=True)
class Kept:
    """``size``: bytes of its files. ``changed_at``: unix seconds, of the newest file or directory."""

    session_id: SessionId
    size: int
    changed_at: float


class Workspaces:
    """``state``: the agent's state directory. All methods block."""

    def __init__(self, state: Path) -> None:
        self._kept, self._passing = state / "workspaces" / "kept", state / "workspaces" / "passing"

    def path(self, spec: KernelSpec, contained: bool) -> Path | None:
        """None: it needs none beside what its runtime makes."""
        if spec.workspace == "keep":
            return self._kept / spec.session_id
        return self._passing / spec.kernel_id if spec.workspace == "drop" and contained else None

    def provide(self, spec: KernelSpec, contained: bool, work_dir: Path) -> None:
        """Make it, unless it is there. A process finds it where its own directory ``work_dir`` would be.
        Raises ``OSError``."""
        path = self.path(spec, contained)
        if path is None:
            return
        path.mkdir(parents=True, exist_ok=True, mode=_OWN)
        path.chmod(_OPEN if contained else _OWN)
        if not contained and not work_dir.is_symlink():
            work_dir.parent.mkdir(parents=True, exist_ok=True, mode=_OWN)
            work_dir.symlink_to(path)

    def let_go(self, spec: KernelSpec) -> None:
        """Its kernel is gone."""
        shutil.rmtree(self._passing / spec.kernel_id, ignore_errors=True)

    def listing(self) -> list[Kept]:
        """All that are kept, by the sessions' ids. Raises ``OSError``."""
        if not self._kept.is_dir():
            return []
        return [_measured(folder) for folder in sorted(self._kept.iterdir())]

    def remove(self, session_id: SessionId) -> Kept | None:
        """What it was; None: there is none. Raises ``OSError`` when something of it could not be removed."""
        folder = self._kept / session_id
        if session_id in ("", ".", "..") or "/" in session_id or not folder.is_dir():
            return None
        was = _measured(folder)
        shutil.rmtree(folder)
        return was


def _measured(folder: Path) -> Kept:
    size, newest = 0, folder.stat().st_mtime
    for inner, folders, files in os.walk(folder):
        for name in (*folders, *files):
            try:
                found = os.lstat(os.path.join(inner, name))
            except FileNotFoundError:  # it went away meanwhile
                continue
            size += found.st_size if name in files else 0
            newest = max(newest, found.st_mtime)
    return Kept(SessionId(folder.name), size, newest)
