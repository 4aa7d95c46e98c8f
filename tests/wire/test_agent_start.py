"""How an agent starts, or says why it does not."""

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
async def boss() -> AsyncIterator[h.Manager]:
    async with h.manager() as boss:
        yield boss


async def test_two_agents_do_not_share_a_state_directory(boss: h.Manager, tmp_path: Path) -> None:
    async with h.make_agent(boss, tmp_path):
        with pytest.raises(StartupError, match=f"process {os.getpid()}"):
            async with h.make_agent(boss, tmp_path):
                pass
    async with h.make_agent(boss, tmp_path):
        pass


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"inventory": "8xH100"}, ConfigError),
        ({"inventory": "auto", "reserved_mem": "a bit"}, ConfigError),
        ({"id": "../elsewhere"}, ConfigError),
        ({"address": "192.0.2.1"}, StartupError),
    ],
)
async def test_bad_settings(
    boss: h.Manager, tmp_path: Path, settings: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"agent\."):
        async with h.make_agent(boss, tmp_path, **settings):
            pass


async def test_a_wrong_token_is_said(
    boss: h.Manager, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = AgentSettings(id="one", inventory="fake:1xL4", manager=boss.target)
    agent = h.Agent(settings, CommonSettings(), clock=h.CLOCK, link_token="wrong", home=tmp_path)
    async with agent, asyncio.timeout(10):
        said = ""
        while "link token" not in said:
            await asyncio.sleep(0.02)
            captured = capsys.readouterr()
            said += captured.out + captured.err
    assert boss.reports == []
