"""Two real Slurm clusters behind one agent daemon: each runs its jobs once, whatever happens to the
other cluster or to the daemon."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from moorage.common.model.spec import SessionSpec
from moorage.common.views.resources import GroupOptions, SessionView
from moorage.sdk import Client
from tests.e2e.harness import Platform, until
from tests.hpc.slurm import SlurmCluster

pytestmark = [pytest.mark.hpc, pytest.mark.timeout(300)]
WITHIN_S = 90.0


@pytest.fixture(scope="module")
def second_cluster(reachable_dir: Path) -> Iterator[SlurmCluster]:
    root = reachable_dir / "slurm-2"
    root.mkdir()
    cluster = SlurmCluster(root)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


class Clusters:
    """``north`` and ``south``, each with a resource group of that name. They have the same
    commands; the configuration distinguishes them."""

    def __init__(self, platform: Platform, client: Client, of: dict[str, SlurmCluster]) -> None:
        self.platform = platform
        self.client = client
        self.of = of

    def start_agent(self) -> None:
        sites = {
            name: {
                "runtimes": ["slurm"],
                "slurm_conf": str(cluster.conf),
                "slurm_poll_s": 1,
                "resource_group": name,
            }
            for name, cluster in self.of.items()
        }
        self.platform.start("agent", env={"MOORAGE_AGENT__SITES": json.dumps(sites)})

    async def create(self, name: str, group: str, gate: Path) -> None:
        command = ["sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.1; done; echo $SLURM_JOB_ID"]
        spec = {"name": name, "type": "batch", "command": command, "resource_group": group}
        await self.client.sessions.create(
            SessionSpec.model_validate(spec | {"resources": {"cpu": 1}})
        )

    async def when(self, name: str, *statuses: str) -> SessionView:
        async def view() -> SessionView | None:
            seen = await self.client.sessions.get(name)
            return seen if seen.status in statuses else None

        found: SessionView = await until(f"{name} is {' or '.join(statuses)}", view, WITHIN_S)
        return found

    def submitted(self) -> dict[str, set[str]]:
        """Ids of the jobs that a cluster remembers, including ended ones."""
        return {
            name: set(re.findall(r"\bJobId=(\d+)", cluster.run("scontrol", "show", "job")))
            for name, cluster in self.of.items()
        }

    def jobs(self) -> dict[str, int]:
        return {name: len(cluster.jobs()) for name, cluster in self.of.items()}


@pytest_asyncio.fixture
async def clusters(
    home: Path, slurm_cluster: SlurmCluster, second_cluster: SlurmCluster
) -> AsyncIterator[Clusters]:
    platform = Platform(home)
    platform.start("manager")
    await platform.wait_until_ready()
    of = {"north": slurm_cluster, "south": second_cluster}
    async with platform.client() as client:
        for group in of:
            options = {"hpc": {"runtime": "slurm", "walltime_s": 600, "partition": "main"}}
            await client.groups.update(group, GroupOptions.model_validate(options))

        yield Clusters(platform, client, of)

    print(platform.output("agent")[-4000:])
    platform.close()
    for cluster in of.values():
        assert not cluster.jobs(), "no job is left in the queue"


async def test_each_cluster_has_its_jobs_once(clusters: Clusters, tmp_path: Path) -> None:
    """The daemon is killed, and one cluster is down while it starts again."""
    gate = tmp_path / "gate"
    tmp_path.chmod(0o755)
    before = clusters.submitted()
    clusters.start_agent()
    for group in clusters.of:
        await clusters.create(f"on-{group}", group, gate)
    for group in clusters.of:
        await clusters.when(f"on-{group}", "RUNNING")

    assert clusters.jobs() == {"north": 1, "south": 1}
    assert {agent.resource_group for agent in await clusters.client.agents.list()} == {
        "north",
        "south",
    }
    nodes = {group: (await clusters.client.groups.get(group)).site_nodes for group in clusters.of}
    assert {group: [(n.name, n.total) for n in found] for group, found in nodes.items()} == {
        "north": [("main", 1)], "south": [("main", 1)],
    }  # fmt: skip

    clusters.platform.kill("agent")
    clusters.of["south"].kill("slurmctld")
    clusters.start_agent()
    await clusters.create("again", "north", gate)
    await clusters.when("again", "RUNNING")
    clusters.of["south"].start_slurmctld()
    clusters.of["south"].wait_idle()
    gate.touch()
    for name in ("on-north", "on-south", "again"):
        assert (await clusters.when(name, "TERMINATED", "ERROR")).result == "SUCCESS"

    async def is_empty() -> bool:
        return clusters.jobs() == {"north": 0, "south": 0}

    await until("no job is left", is_empty, WITHIN_S)
    submitted = {name: len(ids - before[name]) for name, ids in clusters.submitted().items()}
    assert submitted == {"north": 2, "south": 1}
