"""Sessions and models as jobs of a real Slurm, through manager, agent and proxy as processes."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.views.resources import SessionView
from moorage.demo.model import write_tiny_gguf
from moorage.sdk import Client
from tests.e2e.harness import Platform, until
from tests.hpc.slurm import SlurmCluster

pytestmark = pytest.mark.hpc
GROUP = "default"
ENGINE = str(Path(__file__).parent.parent / "e2e" / "slow_engine.py")
WITHIN_S = 90.0


@pytest.fixture
def platform(reachable_dir: Path, slurm_cluster: SlurmCluster) -> Iterator[Platform]:
    home = Path(tempfile.mkdtemp(prefix="site-", dir=reachable_dir))
    running = Platform(home)
    running.env |= {
        "MOORAGE_AGENT__RUNTIMES": '["slurm"]',
        "MOORAGE_AGENT__RESOURCE_GROUP": GROUP,
        "MOORAGE_AGENT__SLURM_COMMANDS": str(slurm_cluster.commands),
        "MOORAGE_AGENT__SLURM_POLL_S": "1",
        "MOORAGE_AGENT__SLURM_MAX_JOBS": "6",
    }
    running.start("manager")
    running.start("proxy")
    yield running
    running.close()
    assert not slurm_cluster.jobs(), "no job is left in the queue"


async def ready(platform: Platform, **options: str) -> Client:
    await platform.wait_until_ready()
    given = {"hpc.runtime": "slurm", "hpc.walltime_s": "600"} | options

    async def is_set() -> bool:
        done = platform.run("groups", "set", GROUP, *(f"{name}={value}" for name, value in given.items()))
        assert done.returncode == 0, done.stderr
        return True

    await until("the group is one of a site", is_set)
    platform.start("agent")  # a group with agents keeps its kind
    return platform.client()


async def ended(client: Client, name: str) -> SessionView:
    async def view() -> SessionView | None:
        seen = await client.get_session(name)
        return seen if seen.status in ("TERMINATED", "ERROR", "CANCELLED") else None

    found: SessionView = await until(f"{name} has ended", view, WITHIN_S)
    return found


async def is_ready(client: Client, name: str, count: int = 1) -> bool:
    return (await client.get_endpoint(name)).ready >= count


@asynccontextmanager
async def load(platform: Platform, model: str, rate: int = 5) -> AsyncIterator[Counter[str]]:
    """Requests at a constant rate, each with a stream of half a second. Every answer must be whole."""
    seen, over, running = Counter[str](), asyncio.Event(), set[asyncio.Task[None]]()
    body = {"model": model, "max_tokens": 10, "stream": True, "messages": [{"role": "user", "content": "hi"}]}

    async def ask(http: aiohttp.ClientSession) -> None:
        try:
            async with http.post(f"{platform.openai_url}/chat/completions", json=body) as answer:
                text = await answer.text()
                whole = answer.status == 200 and "[DONE]" in text
                seen["ok" if whole else f"{answer.status} {text[-200:]}"] += 1
        except aiohttp.ClientError as error:
            seen[repr(error)] += 1

    async def clients() -> None:
        async with aiohttp.ClientSession(headers=platform.auth) as http:
            while not over.is_set():
                running.add(asyncio.create_task(ask(http)))
                await asyncio.sleep(1 / rate)
            await asyncio.gather(*running)

    asking = asyncio.create_task(clients())
    try:
        yield seen
    finally:
        over.set()
        await asking
    assert set(seen) == {"ok"}, seen


def scripted(**fields: object) -> EndpointSpec:
    return EndpointSpec.model_validate(
        {
            "name": "slow",
            "engine": "custom",
            "command": [sys.executable, ENGINE, "{port}", "{host}"],
            "probe": {"path": "/health"},
            "resource_group": GROUP,
            "resources": {"cpu": 1, "mem": "64MiB"},
        }
        | fields
    )


async def test_batch_session_and_its_log(platform: Platform) -> None:
    async with await ready(platform) as client:
        for name, command, result in (
            ("fine", ["sh", "-c", "echo hello; pwd"], "SUCCESS"),
            ("bad", ["sh", "-c", "exit 3"], "FAILED"),
        ):
            spec = {"name": name, "command": command, "resource_group": GROUP, "resources": {"cpu": 1}}
            await client.create_session(SessionSpec.model_validate(spec))
            seen = await ended(client, name)
            assert seen.result == result, seen
        done = platform.run("logs", "fine")
        assert done.stdout.startswith("hello\n"), done


async def nothing_left(cluster: SlurmCluster) -> bool:
    return not cluster.jobs()


async def test_llama_model_is_served_by_a_job(
    platform: Platform, slurm_cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_gguf(model)
    tiny = {"name": "tiny", "engine": "llamacpp", "model": str(model), "resource_group": GROUP,
            "resources": {"cpu": 1, "mem": "512MiB"}}  # fmt: skip
    async with await ready(platform) as client:
        await client.create_endpoint(EndpointSpec.model_validate(tiny))
        await until("it is ready", lambda: is_ready(client, "tiny"), WITHIN_S)
        async with aiohttp.ClientSession(headers=platform.auth) as http:
            body = {"model": "tiny", "prompt": "Hi", "max_tokens": 4}
            async with http.post(f"{platform.openai_url}/completions", json=body) as answer:
                assert answer.status == 200, await answer.text()
        await client.delete_endpoint("tiny")
        await until("no job is left", lambda: nothing_left(slurm_cluster), WITHIN_S)


async def test_model_is_served_while_components_are_killed(
    platform: Platform, slurm_cluster: SlurmCluster
) -> None:
    async with await ready(platform) as client:
        await client.create_endpoint(scripted())
        await until("it is ready", lambda: is_ready(client, "slow"), WITHIN_S)
        before = slurm_cluster.jobs()
        async with load(platform, "slow"):
            for part in ("agent", "manager"):
                platform.kill(part)
                await asyncio.sleep(3)
                platform.start(part)
                await until("the manager answers", lambda: client.health(), WITHIN_S)
            slurm_cluster.kill("slurmd")
            slurm_cluster.start_slurmd()
            await asyncio.sleep(10)
            await until("it is ready", lambda: is_ready(client, "slow"), WITHIN_S)
        assert slurm_cluster.jobs() == before, "the same job serves"
        await client.delete_endpoint("slow")
        await until("no job is left", lambda: nothing_left(slurm_cluster), WITHIN_S)


@pytest.mark.slow
async def test_walltime_is_passed_under_load(platform: Platform, slurm_cluster: SlurmCluster) -> None:
    async with await ready(
        platform, **{"hpc.walltime_s": "60", "hpc.partition": "short", "hpc.successor_at": "0.5"}
    ) as client:
        await client.create_endpoint(scripted())
        await until("it is ready", lambda: is_ready(client, "slow"), WITHIN_S)
        first = slurm_cluster.jobs()
        async with load(platform, "slow", 20) as seen:

            async def is_replaced() -> bool:
                return not set(first) & set(slurm_cluster.jobs())

            await until("the first job is over", is_replaced, 150)
            await asyncio.sleep(5)
        assert seen["ok"] > 300
        await client.delete_endpoint("slow")
        await until("no job is left", lambda: nothing_left(slurm_cluster), WITHIN_S)
