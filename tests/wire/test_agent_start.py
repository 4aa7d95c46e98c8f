"""Agent start and its errors."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import agent_harness as h
import pytest
import pytest_asyncio

from moorage.common.config.settings import AgentSettings, CommonSettings
from moorage.common.model.errors import ConfigError, StartupError


@pytest_asyncio.fixture
async def manager() -> AsyncIterator[h.FakeManager]:
    async with h.run_fake_manager() as manager:
        yield manager


async def test_two_agents_do_not_share_a_state_directory(manager: h.FakeManager, tmp_path: Path) -> None:
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


async def test_wrong_link_token_is_logged(
    manager: h.FakeManager, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = AgentSettings(id="one", inventory="fake:1xL4", manager=manager.target)
    agent = h.Agent(settings, CommonSettings(), clock=h.CLOCK, link_token="wrong", home=tmp_path)
    async with agent, asyncio.timeout(10):
        output = ""
        while "link token" not in output:
            await asyncio.sleep(0.02)
            captured = capsys.readouterr()
            output += captured.out + captured.err
    assert manager.reports == []
