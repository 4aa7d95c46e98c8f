"""Coalescing windows: when one ends, a delayed change is reported even if no other change has
joined it."""

from __future__ import annotations

from pathlib import Path

import agent_harness as h

from moorage.common.model.status import ObservedState as S
from moorage.common.model.status import SessionType


async def test_delayed_changes_are_reported_when_their_window_ends(tmp_path: Path) -> None:
    """A kernel that stays in CREATING, and the removal of a kernel. Heartbeats are too rare to
    carry them."""
    spec = h.kernel("sleep", "60", session_type=SessionType.INFERENCE, probe_path="/never")
    async with (
        h.run_fake_manager() as manager,
        h.make_agent(manager, tmp_path, report_interval_s=30),
    ):
        manager.order(spec)
        await manager.wait_for_kernel(spec.kernel_id, S.CREATING, timeout_s=10)
        manager.order()
        await manager.wait_for_report(
            lambda r: h.find_kernel(r, spec.kernel_id) is None, timeout_s=10
        )
