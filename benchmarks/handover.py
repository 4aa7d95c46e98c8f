"""Handover of a model at its job's walltime, for ``hpc.py``: a platform of processes, and the test
server with a cluster that runs programs."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests

from tests.e2e.harness import Platform, until
from tests.heappe import HeappeServer, Script, ScriptedCluster, Site, Template, Timing
from tests.hpc.load import Load, constant_load
from tests.hpc.sites import PROGRAM, heappe_agent

from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import Status
from moorage.common.views.resources import GroupOptions
from moorage.sdk import Client

ENGINE = Path(__file__).parents[1] / "tests" / "e2e" / "slow_engine.py"
WITHIN_S = 300.0


@dataclass
class Handover:
    load: Load
    overlap_s: float
    load_s: float


async def hand_over(walltime_s: int, rate: float) -> Handover:
    home = Path(tempfile.mkdtemp(prefix="handover-"))
    home.chmod(0o711)
    cluster = ScriptedCluster()
    cluster.script = lambda job: Script(engine="program")
    server = HeappeServer(
        "6.5", site=Site(templates=(Template(11, "moorage", 7, command=PROGRAM),)), cluster=cluster,
        timing=Timing(poll_s=1, cache_s=1),
    )  # fmt: skip
    async with server:
        platform = Platform(home)
        platform.env |= heappe_agent(server.url) | {"MOORAGE_AGENT__RESOURCE_GROUP": "default"}
        try:
            platform.start("manager")
            platform.start("proxy")
            await platform.wait_until_ready()
            async with platform.client() as client:
                return await _measure(platform, client, cluster, walltime_s, rate=rate)
        finally:
            platform.close()
            shutil.rmtree(home, ignore_errors=True)


async def _measure(
    platform: Platform, client: Client, cluster: ScriptedCluster, walltime_s: int, *, rate: float
) -> Handover:
    job = {"runtime": "heappe", "node_type": "gpu", "template": "moorage", "walltime_s": walltime_s}
    await client.groups.update("default", GroupOptions.model_validate({"hpc": job}))
    platform.start("agent")
    await client.endpoints.create(_endpoint())

    async def ready(count: int) -> bool:
        """Whether this many replicas are ready, or were ready and are leaving or have left."""
        seen = (Status.RUNNING, Status.TERMINATING, Status.TERMINATED)
        return (
            sum(one.status in seen for one in (await client.endpoints.get("m")).sessions) >= count
        )

    await until("the model is ready", lambda: ready(1), WITHIN_S)
    async with constant_load(platform.openai_url, platform.auth, "m", rate, strict=False) as load:

        async def has_successor() -> bool:
            return len(cluster.jobs) > 1 and cluster.jobs[1].started is not None

        async def is_over() -> bool:
            return cluster.jobs[0].ended is not None

        await until("a successor was submitted and runs", has_successor, walltime_s + WITHIN_S)
        began = time.monotonic()
        await until("the successor is ready", lambda: ready(2), WITHIN_S)
        load_s = time.monotonic() - began
        await until("the first job is over", is_over, walltime_s + WITHIN_S)
        await asyncio.sleep(3)

    first, second = cluster.jobs[:2]
    assert first.ended is not None
    assert second.started is not None
    await client.endpoints.delete("m")

    async def none_left() -> bool:
        return all(job.ended is not None for job in cluster.jobs)

    await until("no job is left", none_left, WITHIN_S)
    return Handover(load, (first.ended - second.started).total_seconds(), load_s)


def _endpoint() -> EndpointSpec:
    return EndpointSpec.model_validate(
        {
            "name": "m",
            "engine": "custom",
            "command": [sys.executable, str(ENGINE), "{port}", "{host}"],
            "probe": {"path": "/health"},
            "resource_group": "default",
            "resources": {"cpu": 1},
        }
    )
