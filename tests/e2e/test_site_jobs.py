"""Batch sessions as jobs of a site: manager and agent as processes, HEAppE's protocol, a scripted
cluster."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import STARTING
from moorage.common.views.resources import GroupOptions, SessionView
from moorage.sdk import Client
from tests.e2e.harness import Platform, until
from tests.heappe import HeappeServer, Script, ScriptedCluster, Site, Template, Timing
from tests.hpc.sites import PROGRAM, heappe_agent

GROUP = "site"
ENGINE = str(Path(__file__).parent / "slow_engine.py")
WITHIN_S = 90.0


# Tests for differences between the profiles are in tests/heappe and tests/wire; each case here
# takes 16 CPU seconds.
@pytest_asyncio.fixture(params=[pytest.param("6.3.2", marks=pytest.mark.slow), "6.5"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[HeappeServer]:
    site = Site(templates=(Template(11, "moorage", 7, command=PROGRAM),))
    running = HeappeServer(request.param, site=site, timing=Timing(poll_s=0.5, cache_s=0.2))
    await running.start()
    yield running
    await running.stop()


@pytest_asyncio.fixture
async def client(platform: Platform, server: HeappeServer) -> AsyncIterator[Client]:
    """A client for a platform whose group ``GROUP`` is the site, with an agent."""
    platform.env |= heappe_agent(server.url) | {"MOORAGE_AGENT__RESOURCE_GROUP": GROUP}
    platform.start("manager")
    await platform.wait_until_ready()
    async with platform.client() as connected:
        site = {"runtime": "heappe", "node_type": "gpu", "template": "moorage", "walltime_s": 600}
        await connected.groups.update(GROUP, GroupOptions.model_validate({"hpc": site}))
        platform.start("agent")
        yield connected


async def create(client: Client, name: str, program: str) -> None:
    await client.sessions.create(
        SessionSpec(
            name=name, command=["sh", "-c", program], resource_group=GROUP, resources={"cpu": 1}
        )
    )


async def when(client: Client, name: str, *statuses: str) -> SessionView:
    async def view() -> SessionView | None:
        seen = await client.sessions.get(name)
        return seen if seen.status in statuses else None

    found: SessionView = await until(f"{name} is {' or '.join(statuses)}", view, WITHIN_S)
    return found


async def log_of(client: Client, name: str) -> str:
    return b"".join([piece async for piece in client.sessions.logs(name)]).decode()


async def test_batch_sessions_run_as_jobs(
    client: Client, server: HeappeServer, tmp_path: Path
) -> None:
    """Each waits in the queue, runs, and ends with its program's exit code and log."""
    cluster = server.cluster
    gate = tmp_path / "gate"
    assert isinstance(cluster, ScriptedCluster)
    cluster.script = lambda job: Script(engine="program")
    cluster.holding = True
    wait = f"while [ ! -e {gate} ]; do sleep 0.1; done"
    programs = {"fine": f"echo hello; {wait}; echo done", "bad": f"echo broken >&2; {wait}; exit 3"}
    for name, program in programs.items():
        await create(client, name, program)
    for name in programs:
        waiting = await when(client, name, "QUEUED")
        assert waiting.kernels[0].detail == "Priority", "the reason that the site gives"

    assert len(cluster.jobs) == len(programs)
    assert not cluster.started
    cluster.holding = False
    for name in programs:
        running = await when(client, name, "RUNNING")
        assert running.kernels[0].ends_at is not None, "the end of the walltime is known"

    gate.touch()
    fine = await when(client, "fine", "TERMINATED", "ERROR")
    assert (fine.status, fine.result, fine.kernels[0].exit_code) == ("TERMINATED", "SUCCESS", 0)
    bad = await when(client, "bad", "TERMINATED", "ERROR")
    assert (bad.status, bad.result, bad.kernels[0].exit_code) == ("TERMINATED", "FAILED", 3)
    assert await log_of(client, "fine") == "hello\ndone\n"
    assert await log_of(client, "bad") == "broken\n"

    for name in programs:
        passed = [entry.to_status for entry in await client.sessions.history(name)]
        wanted = ["PENDING", "QUEUED", "RUNNING", "TERMINATED"]
        assert [status for status in passed if status in wanted] == wanted, passed

    assert set(cluster.started.values()) == {1}, "no job ran twice"


async def test_a_queue_that_is_longer_than_the_start_timeout(
    platform: Platform, client: Client, server: HeappeServer, tmp_path: Path
) -> None:
    """Two models queue at once, and their first observations overlap. Their agent and the manager
    are killed while the models wait, and while they start."""
    cluster = server.cluster
    names = ("one", "two")
    assert isinstance(cluster, ScriptedCluster)
    cluster.script = lambda job: Script(engine="program")
    cluster.holding = True
    gate = tmp_path / "gate"
    slow = {"start_timeout_s": 15, "env": {"WAIT_FOR": str(gate)}}
    await asyncio.gather(*(client.endpoints.create(model(name, **slow)) for name in names))

    async def replicas() -> list[SessionView]:
        return [one for name in names for one in await client.sessions.list(endpoint=name)]

    async def statuses() -> list[str]:
        return [one.status for one in await replicas()]

    async def all_wait() -> bool:
        return await statuses() == ["QUEUED", "QUEUED"]

    async def both_start() -> bool:
        return await statuses() == ["CREATING", "CREATING"]

    await until("both jobs wait", all_wait, WITHIN_S)
    began = asyncio.get_running_loop().time()
    await restart(platform)
    while asyncio.get_running_loop().time() < began + 17:
        assert await all_wait(), await statuses()
        await asyncio.sleep(0.2)

    cluster.holding = False
    await until("both models load", both_start, WITHIN_S)
    await restart(platform)
    assert await both_start(), await statuses()
    gate.touch()

    async def has_started() -> bool:
        return STARTING.isdisjoint(await statuses())

    await until("both jobs have started", has_started, WITHIN_S)
    assert await statuses() == ["RUNNING", "RUNNING"]
    for replica in await replicas():
        passed = [entry.to_status for entry in await client.sessions.history(replica.name)]
        assert "CREATING" not in passed[: passed.index("QUEUED")], "it was not known to start"

    assert len(cluster.jobs) == len(names), "no job was submitted again"


async def restart(platform: Platform) -> None:
    """Kill the agent and the manager, and start both again."""
    for name in ("agent", "manager"):
        platform.kill(name)
    for name in ("manager", "agent"):
        platform.start(name)
    await platform.wait_until_ready()


def model(name: str, **fields: object) -> EndpointSpec:
    """A model of an engine without dependencies, which takes a moment to start."""
    given = {
        "name": name, "engine": "custom", "command": [sys.executable, ENGINE, "{port}", "{host}"],
        "probe": {"path": "/health"}, "resource_group": GROUP, "resources": {"cpu": 1},
    }  # fmt: skip
    return EndpointSpec.model_validate(given | fields)


async def test_files_are_copied_in_and_out_of_a_job(
    platform: Platform, client: Client, server: HeappeServer, tmp_path: Path
) -> None:
    """Copy into a job that waits in the queue, and out of a running one."""
    cluster = server.cluster
    data = os.urandom(300_000)
    assert isinstance(cluster, ScriptedCluster)
    cluster.script = lambda job: Script(engine="program")
    cluster.holding = True
    await create(
        client, "job", "mkdir out; cat in.bin in.bin > out/twice; echo ready; exec sleep 1000"
    )
    await when(client, "job", "QUEUED")
    (tmp_path / "data").write_bytes(data)
    await cp(platform, str(tmp_path / "data"), "job:in.bin")
    cluster.holding = False
    await when(client, "job", "RUNNING")
    await until("it is ready", lambda: has_log(client, "job", "ready"), WITHIN_S)
    await cp(platform, "job:out/twice", str(tmp_path / "one"))
    assert (tmp_path / "one").read_bytes() == data * 2
    await cp(platform, "job:out", str(tmp_path / "all"))
    assert (tmp_path / "all" / "twice").read_bytes() == data * 2
    await cp(
        platform, "job:absent", str(tmp_path / "no"), code=3, error="written no absent, in session"
    )
    await cp(
        platform, "job:/etc/hostname", str(tmp_path / "no"), code=1, error="not in the directory"
    )
    await cp(
        platform, "job:progress.txt", str(tmp_path / "no"), code=3, error="written no progress.txt"
    )
    await cp(platform, str(tmp_path / "all"), "job:", code=1, error="accepts only single files")
    await cp(platform, str(tmp_path / "data"), "job:../x", code=1, error="not in the directory")
    assert not (tmp_path / "no").exists()
    await client.sessions.stop("job")
    await when(client, "job", "TERMINATED")
    await cp(
        platform, "job:out", str(tmp_path / "no"), code=1, error="is not running: it is TERMINATED"
    )


async def has_log(client: Client, name: str, text: str) -> bool:
    return text in await log_of(client, name)


async def cp(platform: Platform, *arguments: str, code: int = 0, error: str = "") -> None:
    done = await asyncio.to_thread(platform.run, "cp", *arguments)
    assert done.returncode == code, done.stderr
    assert error in " ".join(done.stderr.split())
