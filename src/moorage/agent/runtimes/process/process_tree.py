"""Everything that is left of a kernel whose supervisor is dead: found by its marks, ended through pidfds.

A process belongs to a kernel if its environment says so, or if it is in the session that the engine began.
The second is needed because programs that rename themselves (vLLM's workers) overwrite their environment.
"""

from __future__ import annotations

import select
import signal
from functools import partial

from moorage.agent.runtimes import procfs
from moorage.agent.runtimes.base import KERNEL_ID_VAR, OWNER_VAR, RuntimeFailed
from moorage.common.model.ids import KernelId

_ROUNDS, _ROUND_MS = 100, 50


class Tree:
    """``engine`` is number and start time of the engine's main process, (0, 0) if unknown."""

    def __init__(self, kernel_id: KernelId, owner: str, engine: tuple[int, int]) -> None:
        self.kernel_id, self.owner, self.engine = kernel_id, owner, engine

    def members(self) -> list[int]:
        return [pid for pid in procfs.pids() if self.contains(pid)]

    def contains(self, pid: int) -> bool:
        now = procfs.stat(pid)
        if now is None or not now.alive:
            return False
        env = procfs.environ(pid)
        if env is None:
            return False
        if env.get(KERNEL_ID_VAR) == self.kernel_id and env.get(OWNER_VAR) == self.owner:
            return True
        # A session's number is not given again while anything is in the session, but it is afterwards: a
        # process that shows an environment which is not ours belongs to somebody else.
        return not env and self._in_session(now)

    def _in_session(self, now: procfs.Stat) -> bool:
        leader, start = self.engine
        if not leader or now.sid != leader or now.start < start:
            return False
        first = procfs.stat(leader)
        return first is None or first.start == start

    def kill(self) -> None:
        """SIGKILL until nothing is left. Raises ``RuntimeFailed`` when something does not end."""
        left: list[int] = []
        for _ in range(_ROUNDS):
            left = self.members()
            if not left:
                return
            for pid in left:
                procfs.send_signal(pid, signal.SIGKILL, partial(self.contains, pid))
            select.select([], [], [], _ROUND_MS / 1000)
        raise RuntimeFailed(
            f"processes {left} of kernel {self.kernel_id} do not end although they were killed",
            next_step="they probably wait for a device or a file system: look at that node",
        )
