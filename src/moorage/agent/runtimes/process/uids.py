"""Uids of sandboxed kernels: one for each session, from the agent's range.

A uid is in use while a kernel of its session has a directory, or the session has a kept workspace,
because nothing else on the node can belong to it. The directories are therefore the record, and
nothing is lost in a restart.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

from moorage.agent.runtimes.base import CreateFailed
from moorage.common.model.ids import KernelId
from moorage.common.model.reasons import Reason


class KernelUids:
    """An agent's uids. ``kept``: the directory with the kept workspaces, by session id."""

    def __init__(self, uids: range, kept: Path) -> None:
        self.uids = uids
        self._kept = kept
        self._lock = threading.Lock()
        self._of_kernels: dict[KernelId, tuple[str, int]] = {}

    def load(self, found: Mapping[KernelId, tuple[str, int]]) -> None:
        """Load the existing kernels, each with its session and uid."""
        with self._lock:
            self._of_kernels = dict(found)

    def acquire(self, kernel_id: KernelId, session: str) -> int:
        """Acquire the session's uid. It is derived from the session's id if possible, so that
        agents on the same node mostly agree. Raises ``CreateFailed``."""
        with self._lock:
            owners = self._kept_workspaces() | {
                uid: owner for owner, uid in self._of_kernels.values()
            }
            uid = next((uid for uid, owner in owners.items() if owner == session), None)
            if uid is None:
                start = crc32(session.encode()) % len(self.uids)
                count = len(self.uids)
                candidates = (self.uids[(start + n) % count] for n in range(count))
                uid = next((uid for uid in candidates if uid not in owners), None)

            if uid is None:
                raise CreateFailed(
                    f"all {len(self.uids)} uids of this agent are in use",
                    reason=Reason.NOT_ISOLATED,
                    clean=True,
                    next_step=(
                        "remove kept workspaces (`moorage workspaces`), or widen agent.process_uids"
                    ),
                )

            self._of_kernels[kernel_id] = session, uid
            return uid

    def release(self, kernel_id: KernelId) -> None:
        with self._lock:
            self._of_kernels.pop(kernel_id, None)

    def _kept_workspaces(self) -> dict[int, str]:
        try:
            with os.scandir(self._kept) as entries:
                owners = {entry.stat(follow_symlinks=False).st_uid: entry.name for entry in entries}
        except FileNotFoundError:
            return {}
        return {uid: name for uid, name in owners.items() if uid in self.uids}
