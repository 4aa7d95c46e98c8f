"""One agent with several node types and projects at a site, and several agents with one account."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from moorage.agent.runtimes.base import CreateFailed, Launch
from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.records import JobRecords
from moorage.agent.runtimes.heappe.runtime import HeappeRules, HeappeRuntime
from moorage.agent.runtimes.heappe.site import SiteChoice
from moorage.agent.runtimes.heappe.transport import Account
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import ManualClock, SystemClock
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import HpcJob
from moorage.common.model.status import ObservedState as S
from tests.addresses import free_port
from tests.heappe import HeappeServer, Site
from tests.heappe.site import NodeType, Project, Template

PROFILES = pytest.mark.parametrize("profile", ["6.3.2", "6.5"])
PLACES = {
    ("EXA-00-1", "gpu"): HpcJob(project="EXA-00-1", node_type="gpu", template="engine"),
    ("EXA-00-1", "cpu"): HpcJob(project="EXA-00-1", node_type="cpu", template="engine-cpu"),
    ("EXA-00-9", "gpu"): HpcJob(project="EXA-00-9", node_type="gpu", template="engine"),
}


def runtime_of(
    server: HeappeServer, folder: Path, identity: str, *, shared: bool = False, cluster: str = ""
) -> HeappeRuntime:
    client = HeappeClient(Account(server.url, "agent", "secret-agent"), server.clock)
    rules = HeappeRules(
        10, SiteChoice("EXA-00-1", cluster, "gpu", walltime_s=7200.0), poll_s=3600, hurried_poll_s=3600,
        shared_account=shared,
    )  # fmt: skip
    return HeappeRuntime(
        client, JobRecords(folder / identity / "records"), LogStore(folder / identity / "logs"), rules,
        clock=server.clock, identity=identity, host="127.0.0.1", allocate=free_port,
    )  # fmt: skip


def launch(hpc: HpcJob | None = None) -> Launch:
    return Launch(KernelId(SystemClock().new_id()), ("engine",), {}, serves=True, hpc=hpc)


@pytest.mark.parametrize("profile", ["6.3.2", pytest.param("6.5", marks=pytest.mark.smoke)])
async def test_one_agent_serves_several_node_types_and_projects(
    tmp_path: Path, profile: str
) -> None:
    site = Site(projects=(Project(1, "EXA-00-1"), Project(9, "EXA-00-9")))
    async with HeappeServer(profile, clock=ManualClock(), site=site) as server:
        runtime = runtime_of(server, tmp_path, "one")
        try:
            handles = [await runtime.create(launch(hpc)) for hpc in PLACES.values()]
            await server.advance(120)
            await runtime.book.sync()
            for handle in handles:
                assert (await runtime.observe(handle)).state is S.RUNNING

            assert {len(job.tasks) for job in server.database.jobs.values()} == {1}, (
                "6.3 loses others"
            )
            tasks = [job.tasks[0] for job in server.database.jobs.values()]
            assert {(task.project.accounting, task.node_type.name) for task in tasks} == set(PLACES)
            with pytest.raises(CreateFailed, match="EXA-00-7"):
                await runtime.create(launch(HpcJob(project="EXA-00-7")))
        finally:
            await runtime.close()


@PROFILES
async def test_two_clusters_of_one_server(tmp_path: Path, profile: str) -> None:
    """The cluster distinguishes node types and templates with the same name."""
    site = replace(
        Site(),
        more_clusters=((5, "second"),),
        node_types=(*Site().node_types, NodeType(9, "gpu", "ACN GPU", queue="other", cluster_id=5)),
        templates=(*Site().templates, Template(21, "engine", 9)),
    )
    async with HeappeServer(profile, clock=ManualClock(), site=site) as server:
        runtimes = [
            runtime_of(server, tmp_path, name, shared=True, cluster=cluster)
            for name, cluster in (("one", "bench"), ("two", "second"))
        ]
        unsaid = runtime_of(server, tmp_path, "three", shared=True)
        try:
            for runtime in runtimes:
                await runtime.create(launch())

            tasks = [job.tasks[0] for job in server.database.jobs.values()]
            assert [(task.node_type.id, task.template.id) for task in tasks] == [(7, 11), (9, 21)]
            with pytest.raises(CreateFailed, match="no cluster is chosen; it has: bench, second"):
                await unsaid.create(launch())

            await unsaid.create(launch(HpcJob(cluster="second")))
        finally:
            for runtime in (*runtimes, unsaid):
                await runtime.close()


@PROFILES
async def test_agents_that_share_an_account_leave_each_others_jobs_alone(
    tmp_path: Path, profile: str
) -> None:
    async with HeappeServer(profile, clock=ManualClock()) as server:
        agents = [runtime_of(server, tmp_path, name, shared=True) for name in ("one", "two")]
        try:
            handles = [await runtime.create(launch()) for runtime in agents]
            await server.advance(120)
            for runtime, handle in zip(agents, handles, strict=True):
                await runtime.probe()
                assert set(await runtime.find()) == {handle.state["kernel_id"]}
                assert runtime.doubtful_jobs() == ()
                [nodes] = runtime.site_nodes()
                assert (nodes.name, nodes.used) == ("gpu", 2)
                assert nodes.total >= nodes.used

            one, two = agents
            await one.stop(handles[0], 1)
            await server.advance(120)
            await two.book.sync()
            assert server.running() == [handles[1].state["name"]]
            assert (await two.observe(handles[1])).state is S.RUNNING
        finally:
            for runtime in agents:
                await runtime.close()
