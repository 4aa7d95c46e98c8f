"""The setting for how proxies reach an agent: its default, and the meaning of the former
default."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from moorage.agent.dialout.client import dial_out
from moorage.common.aio.clock import SystemClock
from moorage.common.config.dialout_settings import Reach
from moorage.common.config.settings import AgentSettings
from moorage.common.link.dial import Dialer

CLOCK = SystemClock()


def test_agents_are_reached_directly_by_default() -> None:
    assert AgentSettings().reach == "direct"


@pytest.mark.parametrize(("reach", "warnings"), [("direct", 0), ("dial-out", 0), ("auto", 1)])
async def test_automatic_reach_is_accepted_with_a_warning(reach: Reach, warnings: int) -> None:
    settings = AgentSettings(reach=reach)
    dialer = Dialer("127.0.0.1:1", token="link-token", clock=CLOCK)
    with capture_logs() as logs:
        await dial_out(settings, "node-1", list, dialer, clock=CLOCK).close()

    assert len(logs) == warnings
    for entry in logs:
        assert entry["log_level"] == "warning"
        assert 'agent.reach = "auto"' in entry["event"]
        assert '"direct"' in entry["next_step"]
        assert '"dial-out"' in entry["next_step"]
