"""Sessions and models as jobs on a real Slurm, with manager, agent and proxy as processes:
directly, and through HEAppE's protocol."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import TERMINAL
from moorage.common.views.resources import GroupOptions, SessionView
from moorage.demo.model import write_tiny_gguf
from moorage.sdk import Client
from tests.addresses import agent_ports, port_range
from tests.e2e.harness import Platform, until
from tests.hpc.load import Load, constant_load
from tests.hpc.sites import DirectSite, HeappeSite

pytestmark = [pytest.mark.hpc, pytest.mark.timeout(420)]
GROUP = "default"
ENGINE = str(Path(__file__).parent.parent / "e2e" / "slow_engine.py")
WITHIN_S = 120.0


@asynccontextmanager
async def ready(
    platform: Platform, site: DirectSite, partition: str = "main", **options: object
) -> AsyncIterator[Client]:
    await platform.wait_until_ready()
    given = {"walltime_s": 600} | site.group(partition) | options
    async with platform.client() as client:
        await client.groups.update(GROUP, GroupOptions.model_validate({"hpc": given}))
        platform.start("agent")  # a group with agents keeps its kind
        yield client


async def ended(client: Client, name: str) -> SessionView:
    async def view() -> SessionView | None:
        seen = await client.sessions.get(name)
        return seen if seen.status in ("TERMINATED", "ERROR", "CANCELLED") else None

    found: SessionView = await until(f"{name} has ended", view, WITHIN_S)
    return found


async def is_ready(client: Client, name: str, count: int = 1) -> bool:
    return (await client.endpoints.get(name)).ready >= count


async def nothing_left(site: DirectSite) -> bool:
    return not site.cluster.jobs()


def load(
    platform: Platform, model: str, rate: float = 5, **words: int
) -> AbstractAsyncContextManager[Load]:
    return constant_load(platform.openai_url, platform.auth, model, rate, **words)


def scripted(name: str = "slow", **fields: object) -> EndpointSpec:
    given = {
        "name": name,
        "engine": "custom",
        "command": [sys.executable, ENGINE, "{port}", "{host}"],
        "probe": {"path": "/health"},
        "resource_group": GROUP,
        "resources": {"cpu": 1, "mem": "64MiB"},
    }
    return EndpointSpec.model_validate(given | fields)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_spill_over_to_the_site_and_return(platform: Platform, site: DirectSite) -> None:
    """Processes on one node are preferred. While it is full, the site serves; a group is considered
    full for minutes."""
    local = "local"
    cpus = os.cpu_count() or 1
    node = {"cpu": cpus, "mem": "64MiB"}
    async with ready(platform, site) as client:
        await client.groups.update(local, GroupOptions())
        start_node(platform, local)
        full = {
            "name": "full",
            "command": ["sleep", "100000"],
            "resource_group": local,
            "resources": node,
        }
        await client.sessions.create(SessionSpec.model_validate(full))

        async def runs() -> bool:
            return (await client.sessions.get("full")).status == "RUNNING"

        async def groups(*wanted: str) -> bool:
            """Whether each of these groups has one ready replica, and no other group has any."""
            sessions = await client.sessions.list(endpoint="slow")
            live = [one for one in sessions if one.status not in TERMINAL]
            found = sorted(one.resource_group for one in live)
            return found == sorted(wanted) and await is_ready(client, "slow", len(wanted))

        await until("the node is full", runs, WITHIN_S)
        groups_in_order = {"resource_group": local, "resource_groups": [local, GROUP]}
        await client.endpoints.create(scripted(resources=node, **groups_in_order))
        await until("the site serves", lambda: groups(GROUP), WITHIN_S)

        async with load(platform, "slow") as seen:
            await client.sessions.stop("full")
            await until("it has returned", lambda: groups(local), 400 + WITHIN_S)
            await until("no job is left", lambda: nothing_left(site), WITHIN_S)
            assert len(seen.requests) > 100
            await client.endpoints.scale("slow", 2)
            await until("the site serves as well", lambda: groups(local, GROUP), WITHIN_S)
            await client.endpoints.scale("slow", 1)
            await until("the node serves alone", lambda: groups(local), WITHIN_S)

        await client.endpoints.delete("slow")
        await until("no job is left", lambda: nothing_left(site), WITHIN_S)


def start_node(platform: Platform, group: str) -> None:
    env = {
        "ID": "node-2",
        "PORT_RANGE": port_range(agent_ports()),
        "RUNTIMES": '["process"]',
        "RESOURCE_GROUP": group,
    }
    given = {f"MOORAGE_AGENT__{name}": value for name, value in env.items()}
    platform.start("agent", env=given, known_as="agent-2")


@pytest.mark.slow
async def test_walltime_is_passed_under_load(platform: Platform, site: DirectSite) -> None:
    """Streams that began up to ``drain_timeout_s`` before the end of the walltime are also
    complete."""
    async with ready(platform, site, "short", walltime_s=60, successor_at=0.4) as client:
        await client.endpoints.create(scripted(rollout={"drain_timeout_s": 15}))
        await until("it is ready", lambda: is_ready(client, "slow"), WITHIN_S)
        first = set(site.cluster.jobs())
        async with load(platform, "slow", 20, long_words=280) as seen:

            async def is_replaced() -> bool:
                return not first & set(site.cluster.jobs())

            await until("the first job is over", is_replaced, 150)
            assert site.cluster.jobs(), "its successor runs"
            await asyncio.sleep(5)

        assert len(seen.requests) > 300
        await client.endpoints.delete("slow")
        await until("no job is left", lambda: nothing_left(site), WITHIN_S)


async def test_model_is_served_while_parts_are_killed(platform: Platform, site: DirectSite) -> None:
    async with ready(platform, site) as client:
        await client.endpoints.create(scripted())
        await until("it is ready", lambda: is_ready(client, "slow"), WITHIN_S)
        before = site.cluster.jobs()

        async with load(platform, "slow") as seen:

            async def answers(count: int = 10) -> None:
                """The next requests are answered."""
                goal = len(seen.requests) + count

                async def are_answered() -> bool:
                    return len(seen.requests) >= goal

                await until("requests are answered", are_answered, WITHIN_S)

            for kill in (kill_manager, kill_agent, kill_proxy, kill_slurm, *site_kills(site)):
                await answers()
                print(f"{kill.__name__}: ", end="", flush=True)
                await kill(platform, site, seen)
                await answers()
                print(seen.summary(), flush=True)
                assert not seen.failed(), seen.failed()[:3]

            await until("it is ready", lambda: is_ready(client, "slow"), WITHIN_S)

        assert site.cluster.jobs() == before, "the same job serves"
        await client.endpoints.delete("slow")
        await until("no job is left", lambda: nothing_left(site), WITHIN_S)


@pytest.mark.slow
@pytest.mark.parametrize("site", [HeappeSite], indirect=True, ids=["heappe"])
async def test_a_login_node_is_away_for_a_minute_under_load(
    platform: Platform, site: HeappeSite
) -> None:
    """Only requests whose answer had begun fail, the same job serves afterwards, and the site is
    called as often as attempts are due, regardless of the number of requests."""
    async with ready(platform, site) as client:
        await client.endpoints.create(scripted())
        await until("it is ready", lambda: is_ready(client, "slow"), WITHIN_S)
        before = site.cluster.jobs()

        async with load(platform, "slow", strict=False) as seen:
            await asyncio.sleep(5)
            assert len(seen.requests) > 10
            with seen.cut():
                site.server.switches.maintenance = True
                await site.server.tunnels.kill()

            calls = site.server.calls.total()
            await asyncio.sleep(60)
            calls = site.server.calls.total() - calls
            site.server.switches.maintenance = False
            held = len(seen.requests)

            async def are_answered() -> bool:
                return len(seen.requests) > held + 200 and await is_ready(client, "slow")

            await until("what waited is answered", are_answered, WITHIN_S)

        assert not seen.failed(), (len(seen.failed()), seen.failed()[:3])
        print(f"{calls} calls in a minute")
        assert calls <= 120
        assert site.cluster.jobs() == before, "the same job serves"
        sessions = await client.sessions.list(endpoint="slow")
        assert len(sessions) == 1, "no replica was replaced"
        await client.endpoints.delete("slow")
        await until("no job is left", lambda: nothing_left(site), WITHIN_S)


@pytest.mark.slow
async def test_a_job_outlives_restarts_of_each_part_while_it_waits_and_starts(
    platform: Platform, site: DirectSite, tmp_path: Path
) -> None:
    """The previous case covers a running job. The queue is longer than the start timeout, and the
    model loads for longer than all restarts take."""
    gate = tmp_path / "gate"
    nobody = Load()
    async with ready(platform, site) as client:

        async def statuses() -> list[str]:
            return [one.status for one in await client.sessions.list(endpoint="slow")]

        async def restart_each(status: str) -> None:
            async def is_there() -> bool:
                return await statuses() == [status]

            await until(f"it is {status}", is_there, WITHIN_S)
            site_restart = kill_heappe if isinstance(site, HeappeSite) else restart_slurmctld
            for kill in (kill_manager, kill_agent, kill_proxy, site_restart):
                await kill(platform, site, nobody)
                await until("the manager answers", lambda: answers(client), WITHIN_S)
                print(f"{status}, {kill.__name__}: {await statuses()}", flush=True)
                assert await statuses() == [status]

        with site.cluster.drained():
            spec = scripted(start_timeout_s=60, env={"WAIT_FOR": str(gate)})
            await client.endpoints.create(spec)
            began = asyncio.get_running_loop().time()
            await restart_each("QUEUED")
            await asyncio.sleep(max(0.0, began + 65 - asyncio.get_running_loop().time()))
            assert await statuses() == ["QUEUED"]

        await restart_each("CREATING")
        gate.touch()
        await until("it is ready", lambda: is_ready(client, "slow"), WITHIN_S)
        assert await statuses() == ["RUNNING"], "no replica was replaced"
        assert len(site.cluster.jobs()) == 1, "no job was submitted again"
        await client.endpoints.delete("slow")
        await until("no job is left", lambda: nothing_left(site), WITHIN_S)


async def answers(client: Client) -> bool:
    return (await client.health()).status == "ok"


async def restart_slurmctld(platform: Platform, site: DirectSite, seen: Load) -> None:
    site.cluster.kill("slurmctld", signal.SIGTERM)
    await asyncio.sleep(3)
    site.cluster.start_slurmctld()
    await asyncio.sleep(5)


async def kill_manager(platform: Platform, site: DirectSite, seen: Load) -> None:
    platform.kill("manager")
    await asyncio.sleep(3)
    platform.start("manager")
    await platform.wait_until_ready()


async def kill_agent(platform: Platform, site: DirectSite, seen: Load) -> None:
    """If answers pass through it, those in progress are cut off, and others wait until it is
    back."""
    if site.relays:
        with seen.cut():
            platform.kill("agent")
    else:
        platform.kill("agent")
    await asyncio.sleep(3)
    platform.start("agent")
    await asyncio.sleep(10)


async def kill_proxy(platform: Platform, site: DirectSite, seen: Load) -> None:
    with seen.outage():
        platform.kill("proxy")
        platform.start("proxy")

        async def answers() -> bool:
            url = f"{platform.openai_url}/models"
            async with (
                aiohttp.ClientSession(headers=platform.auth) as http,
                http.get(url) as answer,
            ):
                return answer.status == 200

        await until("the proxy answers", answers)


async def kill_slurm(platform: Platform, site: DirectSite, seen: Load) -> None:
    """slurmctld is asked to exit, because it then saves its state. If it were killed, it would
    forget that recently started jobs run, and kill them itself."""
    site.cluster.kill("slurmd")
    site.cluster.start_slurmd()
    await asyncio.to_thread(site.cluster.wait_idle)
    site.cluster.kill("slurmctld", signal.SIGTERM)
    await asyncio.sleep(3)
    site.cluster.start_slurmctld()
    await asyncio.sleep(5)
    await asyncio.to_thread(site.cluster.wait_idle)


async def kill_heappe(platform: Platform, site: DirectSite, seen: Load) -> None:
    assert isinstance(site, HeappeSite)
    with seen.cut():
        await site.server.interrupt()
    await asyncio.sleep(5)
    await site.server.resume()


async def kill_tunnel(platform: Platform, site: DirectSite, seen: Load) -> None:
    assert isinstance(site, HeappeSite)
    with seen.cut():
        await site.server.tunnels.kill()


def site_kills(site: DirectSite):
    return (kill_heappe, kill_tunnel) if isinstance(site, HeappeSite) else ()


async def test_llama_model_is_served_by_a_job(
    platform: Platform, site: DirectSite, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_gguf(model)
    tiny = {"name": "tiny", "engine": "llamacpp", "model": str(model), "resource_group": GROUP,
            "resources": {"cpu": 1, "mem": "512MiB"}}  # fmt: skip
    async with ready(platform, site) as client:
        await client.endpoints.create(EndpointSpec.model_validate(tiny))
        await until("it is ready", lambda: is_ready(client, "tiny"), WITHIN_S)
        async with aiohttp.ClientSession(headers=platform.auth) as http:
            body = {"model": "tiny", "prompt": "Hi", "max_tokens": 4}
            async with http.post(f"{platform.openai_url}/completions", json=body) as answer:
                assert answer.status == 200, await answer.text()

        await client.endpoints.delete("tiny")
        await until("no job is left", lambda: nothing_left(site), WITHIN_S)


async def test_two_models_on_one_site(platform: Platform, site: DirectSite) -> None:
    async with ready(platform, site) as client:
        for name in ("one", "two"):
            await client.endpoints.create(scripted(name))
        for name in ("one", "two"):
            await until(f"{name} is ready", lambda name=name: is_ready(client, name), WITHIN_S)
        for name in ("one", "two"):
            await client.endpoints.delete(name)
        await until("no job is left", lambda: nothing_left(site), WITHIN_S)


@pytest.mark.smoke
async def test_batch_session_and_its_log(platform: Platform, site: DirectSite) -> None:
    async with ready(platform, site) as client:
        for name, command, result in (
            ("fine", ["sh", "-c", "echo hello; pwd"], "SUCCESS"),
            ("bad", ["sh", "-c", "exit 3"], "FAILED"),
        ):
            spec = {
                "name": name,
                "command": command,
                "resource_group": GROUP,
                "resources": {"cpu": 1},
            }
            await client.sessions.create(SessionSpec.model_validate(spec))
            seen = await ended(client, name)
            assert seen.result == result, seen

        done = platform.run("logs", "fine")
        assert done.stdout.startswith("hello\n"), done


async def test_a_queue_that_is_longer_than_the_start_timeout(
    platform: Platform, site: DirectSite
) -> None:
    """Its node is drained, and its agent is killed during that time."""
    names = ("one", "two")
    async with ready(platform, site) as client:

        async def statuses() -> list[str]:
            found = [one for name in names for one in await client.sessions.list(endpoint=name)]
            return [one.status for one in found]

        async def all_wait() -> bool:
            return await statuses() == ["QUEUED", "QUEUED"]

        with site.cluster.drained():
            for name in names:
                await client.endpoints.create(scripted(name, start_timeout_s=10))

            await until("both jobs wait", all_wait, WITHIN_S)
            platform.kill("agent")
            platform.start("agent")
            began = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() < began + 50:
                assert await all_wait(), await statuses()
                await asyncio.sleep(0.5)

        for name in names:
            await until(f"{name} is ready", lambda name=name: is_ready(client, name), WITHIN_S)

        assert len(await statuses()) == len(names), "no replica was replaced"
        for name in names:
            await client.endpoints.delete(name)

        await until("no job is left", lambda: nothing_left(site), WITHIN_S)


async def test_files_are_copied_in_and_out(
    platform: Platform, site: DirectSite, tmp_path: Path
) -> None:
    async with ready(platform, site) as client:
        command = [
            "sh",
            "-c",
            "while [ ! -e go ]; do sleep 0.1; done; mkdir out; cp go out/went; sleep 1000",
        ]
        spec = {"name": "job", "command": command, "resource_group": GROUP, "resources": {"cpu": 1}}
        await client.sessions.create(SessionSpec.model_validate(spec))

        async def runs() -> bool:
            return (await client.sessions.get("job")).status == "RUNNING"

        await until("the job runs", runs, WITHIN_S)
        (tmp_path / "go").write_text("data")

        async def copied(*arguments: str) -> bool:
            done = await asyncio.to_thread(platform.run, "cp", *arguments)
            return done.returncode == 0

        assert await copied(str(tmp_path / "go"), "job:")
        await until(
            "the result is there", lambda: copied("job:out", str(tmp_path / "got")), WITHIN_S
        )
        assert (tmp_path / "got" / "went").read_text() == "data"
        assert not await copied("job:/etc/hostname", str(tmp_path / "no"))
        assert await copied(str(tmp_path / "got"), "job:") is (site.name == "slurm")
        await client.sessions.stop("job")
        await until("no job is left", lambda: nothing_left(site), WITHIN_S)
