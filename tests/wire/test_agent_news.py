"""News that wait for company (``agent.news``) go without it in the end."""

from __future__ import annotations

from pathlib import Path

import agent_harness as h

from moorage.common.model.status import ObservedState as S
from moorage.common.model.status import SessionType


async def test_what_waits_for_company_goes_without_it_in_the_end(tmp_path: Path) -> None:
    """Heartbeats are too rare to carry them: that one stays on its way, and that it was cleared away."""
    spec = h.kernel("sleep", "60", session_type=SessionType.INFERENCE, probe_path="/never")
    async with h.manager() as boss, h.make_agent(boss, tmp_path, report_interval_s=30):
        boss.order(spec)
        await boss.until_kernel(spec.kernel_id, S.CREATING, timeout_s=10)
        boss.order()
        await boss.until(lambda r: h.seen(r, spec.kernel_id) is None, timeout_s=10)
