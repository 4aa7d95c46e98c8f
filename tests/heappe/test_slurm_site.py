"""The test server over a real Slurm: a job is submitted, reached through a tunnel, cancelled, and
refused."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.heappe import HeappeServer, Site, Template, Timing
from tests.heappe.client import JSON, Caller
from tests.heappe.slurm_site import SlurmSite
from tests.heappe.wire import PROFILES
from tests.hpc.slurm import SlurmCluster

pytestmark = pytest.mark.hpc
# The job engine that `make test-slurm` runs: the scripted one, as a program.
PROGRAM = f"PYTHONPATH={Path(__file__).parents[2]} {sys.executable} -m tests.heappe.engine"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory):
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture(params=PROFILES)
async def server(
    request: pytest.FixtureRequest, slurm: SlurmCluster
) -> AsyncIterator[HeappeServer]:
    site = Site(templates=(Template(11, "engine", 7, command=PROGRAM),))
    timing = Timing(poll_s=0.5, cache_s=0.1)
    back_end = SlurmSite(slurm.env, partition="main")
    async with HeappeServer(request.param, site=site, timing=timing, cluster=back_end) as server:
        yield server


async def until(condition, timeout_s: float = 60) -> None:
    async with asyncio.timeout(timeout_s):
        while not await condition():
            await asyncio.sleep(0.1)


async def test_a_real_job_is_served_through_a_tunnel(
    server: HeappeServer, slurm: SlurmCluster
) -> None:
    async with Caller(server) as caller:
        job = await caller.start("mg-real")
        task = (await caller.info(job))["Tasks"][0]["Id"]

        async def listens() -> bool:
            parts = (await caller.part(job, task)).value
            return bool(parts and parts[0]["Content"])

        await until(listens)

        async def runs() -> bool:
            return (await caller.info(job))["State"] == 8

        await until(runs)
        assert slurm.jobs() == ["mg-real"]
        port = int((await caller.part(job, task)).value[0]["Content"])
        hosts = (
            await caller.call("GET", "JobManagement/AllocatedNodesIPs", SubmittedTaskInfoId=task)
        ).value
        where = (await caller.tunnel(task, hosts[0], port)).value
        body = {"SubmittedTaskInfoId": task, "HttpRequest": "/v1/chat/completions", "HttpHeaders": JSON,
                "HttpPayload": '{"stream": true, "messages": []}', "NodeIPAddress": where["NodeIPAddress"],
                "NodePort": where["NodePort"]}  # fmt: skip
        answer = await caller.call("POST", "DataTransfer/HttpPostToJobNodeStream", body)
        assert answer.text.endswith("data: [DONE]\n\n")
        assert (await caller.cancel(job)).status == 200

        async def ended() -> bool:
            return (await caller.info(job))["State"] in (32, 64)

        await until(ended)
        assert slurm.jobs() == []


async def test_slurm_refuses_in_its_own_words(server: HeappeServer) -> None:
    server.cluster.partition = "nowhere"
    async with Caller(server) as caller:
        answer = await caller.submit(await caller.create("a"))
        assert (answer.status, answer.value["title"]) == (502, "Slurm Problem")
        assert "nowhere" in answer.value["detail"] or "partition" in answer.value["detail"]
