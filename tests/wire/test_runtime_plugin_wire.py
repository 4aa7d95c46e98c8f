"""A runtime from another package, from the agent's settings to a session that runs in it."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import manager_harness as h
import pytest
import pytest_asyncio
from manager_harness import client as client
from manager_harness import manager as manager
from test_usage_wire import eventually

from moorage.agent import Agent
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, CommonSettings
from moorage.common.model.errors import ConfigError
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.manager import Manager
from moorage.sdk import Client

EXAMPLE = Path(__file__).parents[2] / "examples" / "runtime_plugin"


@pytest.fixture
def nice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the example as a package."""
    about = tmp_path / "site" / "nice_runtime-1.0.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: nice-runtime\nVersion: 1.0.0\n")
    (about / "entry_points.txt").write_text("[moorage.runtimes]\nnice = nice_runtime:plugin\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield
    sys.modules.pop("nice_runtime", None)


def settings(manager: Manager, **plugins: dict[str, object]) -> AgentSettings:
    return AgentSettings(
        id="node-1",
        manager=manager.link_address,
        docker="off",
        report_interval_s=0.5,
        runtimes=("process", "custom:nice"),
        plugins=plugins,
    )


@pytest_asyncio.fixture
async def agent(manager: Manager, nice: None, tmp_path: Path) -> AsyncIterator[Agent]:
    given = settings(manager, nice={"level": 3})
    common = CommonSettings(link_tls="off")
    async with Agent(
        given, common, clock=SystemClock(), link_token=h.TOKEN, home=tmp_path / "agent"
    ) as agent:
        yield agent


async def test_session_runs_in_the_runtime_of_a_plug_in(client: Client, agent: Agent) -> None:
    async def offered() -> bool:
        groups = await client.groups.list()
        return any("custom:nice" in group.runtimes for group in groups)

    await eventually(offered)
    (agent_view,) = await client.agents.list()

    # not isolated
    assert [name for name in agent_view.runtimes if "nice" in name] == ["custom:nice"]
    command = ["/bin/sh", "-c", "echo priority:$(nice); sleep 600"]
    await client.sessions.create(SessionSpec(name="one", command=command, runtime="custom:nice"))

    expected = f"priority:{min(19, os.nice(0) + 3)}\n".encode()

    async def logged() -> bool:
        return expected in b"".join([part async for part in client.sessions.logs("one")])

    async def runs() -> bool:
        return (await client.sessions.get("one")).status is Status.RUNNING

    await eventually(runs)
    await eventually(logged)
    await client.sessions.stop("one")

    async def ended() -> bool:
        return (await client.sessions.get("one")).status is Status.TERMINATED

    await eventually(ended)


async def test_agent_with_wrong_settings_of_a_plug_in_does_not_start(
    manager: Manager, nice: None, tmp_path: Path
) -> None:
    for given, said in (
        ({"nice": {"level": 99}}, "agent.plugins.nice.level"),
        ({"other": {}}, "plugins.other"),
    ):
        with pytest.raises(ConfigError, match=said):
            async with Agent(
                settings(manager, **given),
                CommonSettings(link_tls="off"),
                clock=SystemClock(),
                link_token=h.TOKEN,
                home=tmp_path / "agent",
            ):
                pass
