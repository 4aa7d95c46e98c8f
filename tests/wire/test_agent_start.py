"""Agent start and its errors."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import agent_harness as h
import pytest
import pytest_asyncio

from moorage.agent import service
from moorage.agent.state import free_space
from moorage.common.config.settings import AgentSettings, CommonSettings
from moorage.common.model.errors import ConfigError, StartupError


@pytest_asyncio.fixture
async def manager() -> AsyncIterator[h.FakeManager]:
    async with h.run_fake_manager() as manager:
        yield manager


async def test_two_agents_do_not_share_a_state_directory(
    manager: h.FakeManager, tmp_path: Path
) -> None:
    async with h.make_agent(manager, tmp_path):
        with pytest.raises(StartupError, match=f"process {os.getpid()}"):
            async with h.make_agent(manager, tmp_path):
                pass
    async with h.make_agent(manager, tmp_path):
        pass


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"id": "../elsewhere"}, ConfigError),
        ({"address": "192.0.2.1"}, StartupError),
    ],
)
async def test_invalid_settings_are_rejected(
    manager: h.FakeManager, tmp_path: Path, settings: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"agent\."):
        async with h.make_agent(manager, tmp_path, **settings):
            pass


async def test_an_agent_without_space_for_its_state_says_so_until_it_has_some(
    manager: h.FakeManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This applies from the agent's first report on: nothing is placed there in the meantime."""
    monkeypatch.setattr(service, "FREE_SPACE_S", 0.05)
    for limit in ("LEAST_BYTES", "ENOUGH_BYTES"):
        monkeypatch.setattr(free_space, limit, 1 << 62)

    async with h.make_agent(manager, tmp_path, report_interval_s=30):
        report = await manager.wait_for_report(lambda r: True)
        assert report.info.not_ready.startswith("the disk of its state (")
        monkeypatch.setattr(free_space, "ENOUGH_BYTES", 0)
        await manager.wait_for_report(lambda r: r.info.not_ready == "")


async def test_wrong_link_token_is_logged(
    manager: h.FakeManager, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = AgentSettings(id="one", inventory="fake:1xL4", manager=manager.target)
    agent = h.Agent(
        settings, CommonSettings(link_tls="off"), clock=h.CLOCK, link_token="wrong", home=tmp_path
    )
    async with agent, asyncio.timeout(10):
        output = ""
        while "link token" not in output:
            await asyncio.sleep(0.02)
            captured = capsys.readouterr()
            output += captured.out + captured.err

    assert manager.reports == []
