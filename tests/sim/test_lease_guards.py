"""Mutations of the leases of kernels. The simulation must detect each by the violation named.

Each check begins shortly before a seed that finds it, and looks only at seeds whose nodes hold leases.
"""

from __future__ import annotations

import pytest

from moorage.common.link.messages import Contact, Report, ReportDelta
from moorage.manager.lifecycle.kernel_leases import LeasedKernel
from moorage.manager.rpc.agent_link import AgentLinks
from moorage.manager.rpc.agent_stream import AgentStream

from .database import Postgres
from .test_simulation import first_failure

LEASES = 5


async def test_contact_before_newer_orders_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that waits for contact starts after its lease has counted as over."""
    real = AgentLinks.apply_report

    async def apply_and_confirm(
        links: AgentLinks, stream: AgentStream, message: Report | ReportDelta
    ) -> bool:
        applied = await real(links, stream, message)
        if message.sent_at:
            stream.send_request(Contact(message.sent_at))
        return applied

    monkeypatch.setattr(AgentLinks, "apply_report", apply_and_confirm)
    found = await first_failure(postgres, start=93, step=LEASES)
    assert "is stored as GONE" in found.splitlines()[-2], found


async def test_ending_leases_early_is_detected(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """They count as over as soon as the agent is silent."""
    monkeypatch.setattr(LeasedKernel, "ends_within_s", property(lambda kernel: kernel.stop_grace_s))
    found = await first_failure(postgres, start=3, step=LEASES)
    assert "is stored as GONE" in found.splitlines()[-2], found
