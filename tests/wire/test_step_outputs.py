"""Step outputs between real agents, relayed by a real manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from manager_harness import TOKEN, client, manager

from moorage.agent import Agent, service
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, CommonSettings
from moorage.common.model.errors import NotFound
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.pipelines import PipelineSpec
from moorage.common.views.pipelines import PipelineView, StepView
from moorage.manager import Manager
from moorage.sdk import Client
from moorage.sdk.pipelines import has_ended

__all__ = ["client", "manager"]  # fixtures
MAKE = "mkdir -p data/deep; echo 42 > data/deep/answer; ln -s deep/answer data/link; chmod 700 data/deep"
# Permissions do not keep root from writing; only a sandbox or a container does.
TAKE = "cat inputs/make/data/link; test $(id -u) = 0 || ! echo more > inputs/make/data/deep/answer"


SCAN_S = 0.3
# A manager and two agents take a minute to start next to the other work in a full test run.
LIMIT_S = 100.0
pytestmark = pytest.mark.timeout(360)


def make_agent(name: str, manager: Manager, home: Path) -> Agent:
    settings = AgentSettings(
        id=name,
        manager=manager.link_address,
        report_interval_s=0.2,
        runtimes=("process",),
        docker="off",
        stop_kernels_on_exit=True,
        output_max_bytes=1 << 20,
    )
    return Agent(settings, CommonSettings(), clock=SystemClock(), link_token=TOKEN, home=home)


@pytest_asyncio.fixture
async def agents(
    manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[dict[str, Agent]]:
    monkeypatch.setattr(service, "KERNEL_SCAN_S", SCAN_S)
    running = {name: make_agent(name, manager, tmp_path) for name in ("left", "right")}
    for agent in running.values():
        await agent.__aenter__()
    yield running
    for agent in running.values():
        await agent.__aexit__()


def step(name: str, script: str, on: str = "left", **more: Any) -> dict[str, Any]:
    spec = {
        "command": ["sh", "-c", script],
        "resources": {"cpu": 0.1, "mem": "16MiB"},
        "agents": [on],
    }
    return {"name": name, "spec": spec} | more


async def play(client: Client, name: str, *steps: dict[str, Any]) -> PipelineView:
    await client.pipelines.create(PipelineSpec.model_validate({"name": name, "steps": steps}))
    return await ended(client, name)


async def ended(client: Client, name: str) -> PipelineView:
    async with asyncio.timeout(LIMIT_S):
        while not has_ended(view := await client.pipelines.get(name)):
            await asyncio.sleep(0.1)
    return view


def one(view: PipelineView, name: str) -> StepView:
    return next(found for found in view.steps if found.name == name)


async def log_of(client: Client, view: PipelineView, name: str) -> str:
    return b"".join(
        [piece async for piece in client.sessions.logs(one(view, name).session_id)]
    ).decode()


def kept(agent: Agent) -> list[Path]:
    return sorted((agent.state / "outputs").glob("*/*/files"))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.05)


async def test_a_step_reads_the_output_of_another_on_its_node_and_on_another_one(
    client: Client, agents: dict[str, Agent], tmp_path: Path
) -> None:
    wait = f"until test -e {tmp_path}/go; do sleep 0.1; done"
    make = step("make", MAKE, outputs=["data"])
    near = step("near", f"{wait}; {TAKE}", inputs=["make"])
    here = [{"step": "make", "path": "here"}]
    far = step(
        "far", f"cat here/link; touch {tmp_path}/seen; {wait}; ls here/deep", "right", inputs=here
    )
    playing = asyncio.create_task(play(client, "shared", make, near, far))
    await until((tmp_path / "seen").exists)
    copies = {name: kept(agent) for name, agent in agents.items()}
    assert [len(found) for found in copies.values()] == [1, 1]

    for [files] in copies.values():
        assert (files / "deep" / "answer").read_text() == "42\n"
        assert (files / "deep" / "answer").stat().st_mode & 0o222 == 0
        assert files.stat().st_mode & 0o777 == 0o555

    assert len({(files.parent / "about").read_text() for [files] in copies.values()}) == 1
    await asyncio.sleep(3 * SCAN_S)
    assert all(map(kept, agents.values())), "steps that run still need them"
    (tmp_path / "go").touch()
    view = await playing
    assert view.state == "succeeded", view
    assert (await log_of(client, view, "near")).startswith("42\n")
    assert await log_of(client, view, "far") == "42\nanswer\n"
    await until(lambda: not any(map(kept, agents.values())))


async def test_a_step_without_its_output_fails_and_says_which(
    client: Client, agents: dict[str, Agent]
) -> None:
    cases = {
        "missing": ("true", "'data' is missing"),
        "file": ("echo > data", "'data' is not a directory"),
        "linked": ("ln -s /etc data", "'data' is a link"),
        "leaving": ("mkdir data; ln -s /etc/passwd data/users", "users points to /etc/passwd"),
        "large": (
            "mkdir data; dd if=/dev/zero of=data/zero bs=1M count=2",
            "agent.output_max_bytes = 1048576",
        ),
    }
    made = [step(name, script, outputs=["data"]) for name, (script, _) in cases.items()]
    after = step("after", "true", inputs=[{"step": name, "path": name} for name in cases])
    view = await play(client, "failing", *made, after)
    assert view.state == "failed"
    for name, (_, told) in cases.items():
        assert (one(view, name).state, one(view, name).reason) == ("failed", "output-failed")
        assert told in one(view, name).detail, one(view, name).detail

    assert one(view, "after").state == "skipped"
    failed = await play(client, "exit", step("make", "mkdir data; exit 3", outputs=["data"]))
    assert one(failed, "make").reason == "exit-nonzero"
    assert not any(map(kept, agents.values()))


async def test_an_array_gives_each_element_and_a_step_may_pass_on_what_it_took(
    client: Client, agents: dict[str, Agent]
) -> None:
    part = step(
        "part", "mkdir out; echo $JOB_COMPLETION_INDEX > out/n", outputs=["out"], array="1-3"
    )
    gather = step("gather", "mkdir all; cat parts/*/n > all/n", "right",
                  inputs=[{"step": "part", "path": "parts"}], outputs=["all"])  # fmt: skip
    view = await play(
        client, "sums", part, gather, step("show", "cat inputs/gather/all/n", inputs=["gather/all"])
    )
    assert view.state == "succeeded", view
    assert await log_of(client, view, "show") == "1\n2\n3\n"


async def test_an_input_that_is_gone_is_made_again_by_a_retry(
    client: Client, agents: dict[str, Agent], tmp_path: Path
) -> None:
    wait = f"touch {tmp_path}/began; until test -e {tmp_path}/go; do sleep 0.1; done"
    make = step("make", MAKE, outputs=["data"])
    hold = step("hold", wait, after=["make"])
    take = step("take", TAKE, "right", inputs=["make"], after=["hold"])
    playing = asyncio.create_task(play(client, "again", make, hold, take))
    await until((tmp_path / "began").exists)
    [files] = kept(agents["left"])
    files.parent.rename(tmp_path / "lost")
    (tmp_path / "go").touch()
    view = await playing
    assert (view.state, one(view, "take").reason) == ("failed", "input-unavailable"), view
    assert "is not on this node" in one(view, "take").detail
    await client.pipelines.retry("again")
    view = await ended(client, "again")
    assert view.state == "succeeded", view
    assert [(found.name, found.run) for found in view.steps] == [
        ("make", 2),
        ("hold", 2),
        ("take", 2),
    ]


async def test_an_input_that_arrives_changed_is_refused(
    client: Client, agents: dict[str, Agent], tmp_path: Path
) -> None:
    wait = f"touch {tmp_path}/began; until test -e {tmp_path}/go; do sleep 0.1; done"
    hold = step("hold", wait, after=["make"])
    take = step("take", TAKE, "right", inputs=["make"], after=["hold"])
    playing = asyncio.create_task(
        play(client, "changed", step("make", MAKE, outputs=["data"]), hold, take)
    )
    await until((tmp_path / "began").exists)
    [files] = kept(agents["left"])
    answer = files / "deep" / "answer"
    answer.chmod(0o600)
    answer.write_text("43\n")
    (tmp_path / "go").touch()
    view = await playing
    assert (one(view, "take").state, one(view, "take").reason) == ("failed", "input-unavailable"), (
        view
    )
    assert "the checksum of output" in one(view, "take").detail
    assert kept(agents["right"]) == []


async def test_a_fetch_goes_on_when_the_other_node_is_back_and_ends_with_its_step(
    manager: Manager, client: Client, agents: dict[str, Agent], tmp_path: Path
) -> None:
    wait = f"touch {tmp_path}/began; until test -e {tmp_path}/go; do sleep 0.1; done"
    make = step("make", MAKE, outputs=["data"])
    hold = step("hold", wait, "right", after=["make"])
    take, more = (step(name, TAKE, "right", inputs=["make"], after=["hold"])
                  for name in ("take", "more"))  # fmt: skip
    playing = asyncio.create_task(play(client, "back", make, hold, take, more))
    await until((tmp_path / "began").exists)
    await agents["left"].__aexit__()
    (tmp_path / "go").touch()
    async with asyncio.timeout(LIMIT_S):
        while one(view := await client.pipelines.get("back"), "take").state != "running":
            await asyncio.sleep(0.1)

    await client.sessions.stop(one(view, "more").session_id)
    async with asyncio.timeout(LIMIT_S):
        while one(view := await client.pipelines.get("back"), "more").state != "stopped":
            await asyncio.sleep(0.1)

    assert one(view, "take").state == "running"
    agents["left"] = make_agent("left", manager, tmp_path)
    await agents["left"].__aenter__()
    view = await playing
    assert one(view, "take").state == "succeeded", view


async def test_no_agent_gets_an_output_that_is_no_input_of_its_kernels(
    client: Client, agents: dict[str, Agent], tmp_path: Path
) -> None:
    wait = f"touch {tmp_path}/began; until test -e {tmp_path}/go; do sleep 0.1; done"
    make = step("make", MAKE, outputs=["data"])
    hold = step("hold", wait, "right", after=["make"])
    take = step("take", "true", inputs=["make"], after=["hold"])
    playing = asyncio.create_task(play(client, "foreign", make, hold, take))
    await until((tmp_path / "began").exists)
    view = await client.pipelines.get("foreign")
    kernel = (await client.sessions.get(one(view, "hold").session_id)).kernels[-1].id
    stolen = agents["right"].outputs.fetch(
        KernelId(kernel), SessionId(one(view, "make").session_id), "data"
    )
    with pytest.raises(NotFound, match="is not an input of that kernel"):
        [piece async for piece in stolen]

    (tmp_path / "go").touch()
    assert (await playing).state == "succeeded"
