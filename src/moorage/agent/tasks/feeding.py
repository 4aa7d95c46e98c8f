"""Size of the supply of tasks that a kernel holds in advance. Pure."""

from __future__ import annotations

# The most that a kernel holds without having started them. If its node is lost, they are LOST.
MOST = 1000
# Short tasks: what is held lasts this long, so that the workers do not wait for the manager.
AHEAD_S = 1.5


def wanted(workers: int, held: int, ended_per_s: float) -> int:
    """How many more tasks to ask for. ``held``: those that the kernel has and has not ended.

    Long tasks are taken as workers become free, because what a lost node holds is lost."""
    ahead = min(MOST, round(ended_per_s * AHEAD_S))
    missing = workers + ahead - held
    # Not each end is worth a call: a kernel that holds enough for a while waits.
    return 0 if missing < max(1, ahead // 4) else missing
