"""Process tree of a kernel whose supervisor is dead: finds its processes and kills them through
pidfds.

A process belongs to a kernel if its environment names the kernel, or if it is in the session
(setsid) of the kernel's main process. The second rule covers programs that overwrite their
environment to rename themselves, such as vLLM's workers.
"""

from __future__ import annotations

import select
import signal
from functools import partial

from moorage.agent.runtimes import procfs
from moorage.agent.runtimes.base import KERNEL_ID_VAR, OWNER_VAR, RuntimeFailed
from moorage.common.model.ids import KernelId

_KILL_ATTEMPTS = 100
_KILL_INTERVAL_MS = 50


class ProcessTree:
    """The processes of a kernel. ``engine``: the pid and start time of its main process, (0, 0) if
    unknown."""

    def __init__(self, kernel_id: KernelId, owner: str, engine: tuple[int, int]) -> None:
        self.kernel_id = kernel_id
        self.owner = owner
        self.engine = engine

    def pids(self) -> list[int]:
        return [pid for pid in procfs.pids() if self.contains(pid)]

    def contains(self, pid: int) -> bool:
        stat = procfs.stat(pid)
        if stat is None or not stat.alive:
            return False

        env = procfs.environ(pid)
        if env is None:
            return False
        if env.get(KERNEL_ID_VAR) == self.kernel_id and env.get(OWNER_VAR) == self.owner:
            return True

        # A session id is not reused while the session has processes, but it may be afterwards. A
        # process with a foreign environment therefore does not belong to the kernel.
        return not env and self._in_session(stat)

    def _in_session(self, stat: procfs.Stat) -> bool:
        leader, start = self.engine
        if not leader or stat.sid != leader or stat.start < start:
            return False
        leader_stat = procfs.stat(leader)
        return leader_stat is None or leader_stat.start == start

    def kill(self) -> None:
        """Send SIGKILL until no process is left. Raises ``RuntimeFailed`` if a process survives."""
        pids: list[int] = []
        for _ in range(_KILL_ATTEMPTS):
            pids = self.pids()
            if not pids:
                return

            for pid in pids:
                procfs.send_signal(pid, signal.SIGKILL, partial(self.contains, pid))

            select.select([], [], [], _KILL_INTERVAL_MS / 1000)

        raise RuntimeFailed(
            f"processes {pids} of kernel {self.kernel_id} survive SIGKILL",
            next_step="they are probably waiting for a device or a file system: check that node",
        )
