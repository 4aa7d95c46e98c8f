"""Session workspaces on this node.

STATE/workspaces/kept/<session id> outlives the session's kernels.
STATE/workspaces/temporary/<kernel id> is removed with its container, and so is
STATE/progress/<kernel id>. A process kernel's temporary workspace is its working directory, which
the runtime removes.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from moorage.agent.runtimes.process.disks import remove_disk, workspace_disk
from moorage.agent.runtimes.process.files import make_directories
from moorage.common.model.ids import SessionId
from moorage.common.model.kernel import KernelSpec

# A container may run as any user, so everyone can write here. The parent directories keep the
# node's other users out.
_OPEN = 0o777
_OWN = 0o700


@dataclass(frozen=True, slots=True)
class KeptWorkspace:
    """A kept workspace. ``size``: total bytes of its files. ``changed_at``: when its newest file or
    directory changed, in unix seconds."""

    session_id: SessionId
    size: int
    changed_at: float


class Workspaces:
    """The workspaces on this node. ``state``: the agent's state directory. All methods block."""

    def __init__(self, state: Path) -> None:
        self._kept = state / "workspaces" / "kept"
        self._temporary = state / "workspaces" / "temporary"
        self._progress = state / "progress"
        self._disks = state / "disks"

    def path(self, spec: KernelSpec, contained: bool) -> Path | None:
        """The kernel's workspace; None if the kernel only needs its working directory."""
        if spec.workspace == "keep":
            return self._kept / spec.session_id
        return self._temporary / spec.kernel_id if spec.workspace == "drop" and contained else None

    def progress(self, spec: KernelSpec) -> Path:
        """The directory that holds only a container's progress."""
        return self._progress / spec.kernel_id

    def create_progress(self, spec: KernelSpec) -> None:
        """Raises ``OSError``."""
        folder = self.progress(spec)
        folder.mkdir(parents=True, exist_ok=True, mode=_OWN)
        folder.chmod(_OPEN)

    def create(self, spec: KernelSpec, contained: bool, work_dir: Path) -> None:
        """Create the workspace unless it exists. For a process, its working directory ``work_dir``
        becomes a link to it. Raises ``OSError``."""
        path = self.path(spec, contained)
        if path is None:
            return

        path.mkdir(parents=True, exist_ok=True, mode=_OWN)
        path.chmod(_OPEN if contained else _OWN)
        if contained:  # the engine would create them as root, and no other user could remove them
            make_directories(path, (input_.path for input_ in spec.inputs))
        if not contained and not work_dir.is_symlink():
            work_dir.parent.mkdir(parents=True, exist_ok=True, mode=_OWN)
            work_dir.symlink_to(path)

    def remove_temporary(self, spec: KernelSpec) -> None:
        """Remove the temporary workspace of a removed kernel."""
        shutil.rmtree(self._temporary / spec.kernel_id, ignore_errors=True)
        shutil.rmtree(self._progress / spec.kernel_id, ignore_errors=True)

    def kept(self, session_id: SessionId) -> Path | None:
        """The kept workspace of a session; None if there is none."""
        folder = self._kept / session_id
        is_name = (
            session_id not in ("", ".", "..") and "/" not in session_id and "\0" not in session_id
        )
        return folder if is_name and folder.is_dir() else None

    def list_kept(self) -> list[KeptWorkspace]:
        """All kept workspaces, by session id. Raises ``OSError``."""
        if not self._kept.is_dir():
            return []
        return [_measure(folder) for folder in sorted(self._kept.iterdir())]

    def remove_kept(self, session_id: SessionId) -> KeptWorkspace | None:
        """Remove a session's kept workspace and return its description; None if there is none.
        Raises ``OSError`` if part of it could not be removed."""
        folder = self.kept(session_id)
        if folder is None:
            return None
        workspace = _measure(folder)
        remove_disk(folder, self._disks / f"{workspace_disk(session_id)}.img")
        shutil.rmtree(folder)
        return workspace


def _measure(folder: Path) -> KeptWorkspace:
    size = 0
    newest = folder.stat().st_mtime
    for parent, directories, files in os.walk(folder):
        for name in (*directories, *files):
            try:
                stat = os.lstat(os.path.join(parent, name))
            except FileNotFoundError:  # already removed
                continue

            size += stat.st_size if name in files else 0
            newest = max(newest, stat.st_mtime)

    return KeptWorkspace(SessionId(folder.name), size, newest)
