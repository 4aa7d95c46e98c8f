"""The lock on an agent's state directory."""

from __future__ import annotations

import os
from pathlib import Path

from moorage.agent.state_lock import StateLock


async def test_lock_ends_while_a_forked_process_still_has_its_file(tmp_path: Path) -> None:
    async with StateLock(tmp_path, "one"):
        [lock] = [fd for fd in Path("/proc/self/fd").iterdir() if fd.resolve() == tmp_path / "lock"]
        inherited = os.dup(int(lock.name))
    try:
        async with StateLock(tmp_path, "one"):
            pass
    finally:
        os.close(inherited)
