"""Faults of a site and of its agent, with a real Slurm: at most one job for a kernel, and none left
over."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from moorage.agent.runtimes import CreateFailed, Handle, Launch, Runtime, RuntimeFailed
from moorage.agent.runtimes.base import PORT_TOKEN
from moorage.common.model.kernel import HpcJob
from moorage.common.model.status import ObservedState as S
from moorage.testing.runtime_conformance import eventually, until
from tests.conformance.harnesses import SlurmHarness
from tests.hpc.slurm import SlurmCluster

pytestmark = pytest.mark.hpc
WITHIN_S = 40.0


@pytest_asyncio.fixture
async def site(slurm_cluster: SlurmCluster, tmp_path: Path) -> AsyncIterator[SlurmHarness]:
    harness = SlurmHarness(tmp_path, slurm_cluster)
    yield harness
    runtime = harness.runtime()
    for handle in (await runtime.find()).values():
        await runtime.destroy(handle)
    await harness.close()
    await eventually(lambda: nothing_queued(slurm_cluster), WITHIN_S)


async def nothing_queued(cluster: SlurmCluster) -> bool:
    return not cluster.jobs()


async def running(site: SlurmHarness, launch: Launch | None = None) -> tuple[Runtime, Handle]:
    runtime = site.runtime()
    handle = await runtime.create(launch or site.launch())
    await until(runtime, handle, S.RUNNING, timeout_s=WITHIN_S)
    return runtime, handle


@pytest.mark.parametrize(
    "lost",
    [
        'echo "sbatch: error: Batch job submission failed: Socket timed out on send" >&2; exit 1',
        "kill -9 $$",
        "exit 0",
    ],
)
async def test_lost_answer_of_a_submission_starts_one_job(
    site: SlurmHarness, slurm_cluster: SlurmCluster, lost: str
) -> None:
    runtime = site.runtime()
    launch = site.launch()
    with slurm_cluster.replaced("sbatch", f'"$REAL" "$@" > /dev/null || exit 9\n{lost}'):
        handle = await runtime.create(launch)
        assert (
            await runtime.create(launch) == handle
        )  # a second order does not submit it again either

    await until(runtime, handle, S.RUNNING, timeout_s=WITHIN_S)
    assert slurm_cluster.jobs() == [handle.state["name"]]
    assert runtime.doubtful_jobs() == ()  # type: ignore[attr-defined]
    assert list(await site.runtime().find()) == [launch.kernel_id]


async def test_lost_submission_is_watched_and_not_repeated(
    site: SlurmHarness, slurm_cluster: SlurmCluster
) -> None:
    runtime = site.runtime()
    launch = site.launch()
    failure = 'echo "sbatch: error: Unable to contact slurm controller" >&2; exit 1'
    with slurm_cluster.replaced("sbatch", failure):
        handle = await runtime.create(launch)

    for one in (runtime, site.runtime()):  # also by a restarted agent
        seen = await one.observe(handle)
        assert (seen.state, slurm_cluster.jobs()) == (S.QUEUED, [])
        assert "watching" in seen.detail
        [doubt] = one.doubtful_jobs()  # type: ignore[attr-defined]
        assert (doubt.name, doubt.job_id, "not answered" in doubt.why) == (
            handle.state["name"],
            "",
            True,
        )
        assert list(await one.find()) == [launch.kernel_id]


async def test_refusal_leaves_nothing_and_says_why(
    site: SlurmHarness, slurm_cluster: SlurmCluster
) -> None:
    launch = replace(site.launch(), hpc=HpcJob(partition="nope"))
    runtime = site.runtime()
    with pytest.raises(CreateFailed, match="Invalid partition name") as caught:
        await runtime.create(launch)
    assert caught.value.clean
    assert (await runtime.find(), slurm_cluster.jobs()) == ({}, [])


async def test_double_of_a_job_is_cancelled(
    site: SlurmHarness, slurm_cluster: SlurmCluster
) -> None:
    runtime = site.runtime()
    twice = '"$REAL" "$@" > /dev/null; "$REAL" "$@"'
    with slurm_cluster.replaced("sbatch", twice):
        handle = await runtime.create(site.launch())

    await until(runtime, handle, S.RUNNING, timeout_s=WITHIN_S)

    async def is_alone() -> bool:
        await runtime.observe(handle)
        return slurm_cluster.jobs() == [handle.state["name"]]

    await eventually(is_alone, WITHIN_S)


async def test_job_without_a_record_is_found_by_its_comment_and_ended(
    site: SlurmHarness, slurm_cluster: SlurmCluster
) -> None:
    launch = site.launch()
    runtime, handle = await running(site, launch)
    shutil.rmtree(site.work / launch.kernel_id)
    again = site.runtime()
    found = await again.find()
    assert found == {launch.kernel_id: handle}
    [doubt] = again.doubtful_jobs()  # type: ignore[attr-defined]
    assert (doubt.name, doubt.job_id.isdigit(), "RUNNING" in doubt.why) == (
        handle.state["name"],
        True,
        True,
    )
    assert site.runtime().doubtful_jobs() == (doubt,)  # type: ignore[attr-defined]
    await again.destroy(found[launch.kernel_id])
    assert again.doubtful_jobs() == ()  # type: ignore[attr-defined]
    assert (await again.find(), await runtime.find()) == ({}, {})


async def test_silent_site_ends_no_kernel(site: SlurmHarness, slurm_cluster: SlurmCluster) -> None:
    runtime, handle = await running(site)
    # it saves its state; if killed, it loses the last seconds
    slurm_cluster.kill("slurmctld", signal.SIGTERM)
    try:
        assert (await runtime.observe(handle)).state is S.RUNNING  # the last state that was seen
        fresh = site.runtime()
        seen = await fresh.observe(handle)
        assert seen.state is S.UNKNOWN
        assert "contact" in seen.detail
        with pytest.raises(RuntimeFailed):
            await fresh.find()
        with pytest.raises(RuntimeFailed):
            await fresh.destroy(handle)
    finally:
        slurm_cluster.start_slurmctld()
        slurm_cluster.wait_idle()

    await until(fresh, handle, S.RUNNING, timeout_s=WITHIN_S)
    await fresh.stop(handle, 5)
    await until(fresh, handle, S.EXITED, timeout_s=WITHIN_S)


async def test_job_outlives_the_daemon_of_its_node(
    site: SlurmHarness, slurm_cluster: SlurmCluster
) -> None:
    runtime, handle = await running(site)
    slurm_cluster.kill("slurmd")
    slurm_cluster.start_slurmd()
    slurm_cluster.wait_idle()
    assert (await runtime.observe(handle)).state is S.RUNNING
    await runtime.stop(handle, 5)
    await until(runtime, handle, S.EXITED, timeout_s=WITHIN_S)


async def test_job_ends_itself_without_a_sign_of_its_agent(
    site: SlurmHarness, slurm_cluster: SlurmCluster
) -> None:
    site.heartbeat_s = 3.0
    runtime, handle = await running(site)
    await until(runtime, handle, S.EXITED, timeout_s=WITHIN_S)
    assert (await runtime.observe(handle)).lease_expired
    await eventually(lambda: nothing_queued(slurm_cluster), WITHIN_S)


async def test_agent_that_lives_keeps_its_jobs(site: SlurmHarness) -> None:
    site.heartbeat_s = 4.0
    runtime, handle = await running(site)
    for _ in range(6):
        await runtime.probe()
        await asyncio.sleep(1)
    assert (await runtime.observe(handle)).state is S.RUNNING


async def test_kernel_is_reached_at_the_port_that_its_job_picked(site: SlurmHarness) -> None:
    argv = (sys.executable, "-m", "http.server", PORT_TOKEN)
    runtime, handle = await running(site, replace(site.launch(), argv=argv, serves=True))
    address = (await runtime.observe(handle)).address
    assert address is not None

    async def answers() -> bool:
        try:
            async with (
                aiohttp.ClientSession() as http,
                http.get("http://{}:{}/".format(*address)) as answer,
            ):
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    await eventually(answers, WITHIN_S)
    assert (await site.runtime().observe(handle)).address == address


async def test_queue_shows_its_reason_and_the_expected_start(site: SlurmHarness) -> None:
    runtime = site.runtime()
    handle = await runtime.create(replace(site.launch(), hpc=HpcJob(options={"begin": "now+600"})))

    async def is_explained() -> bool:
        seen = await runtime.observe(handle)
        assert seen.state in (S.QUEUED, S.UNKNOWN)
        return "BeginTime: its earliest start" in seen.detail and seen.expected_start is not None

    await eventually(is_explained, WITHIN_S)
    await runtime.stop(handle, 5)
    await until(runtime, handle, S.EXITED, timeout_s=WITHIN_S)


async def test_program_that_cannot_start_says_why(site: SlurmHarness) -> None:
    runtime = site.runtime()
    handle = await runtime.create(replace(site.launch(), argv=("/no/such/program",)))
    await until(runtime, handle, S.EXITED, timeout_s=WITHIN_S)
    seen = await runtime.observe(handle)
    assert (seen.never_started, "/no/such/program" in seen.detail) == (True, True)


async def test_one_call_looks_at_all_jobs(site: SlurmHarness) -> None:
    runtime = site.runtime()
    handles = [await runtime.create(site.launch()) for _ in range(6)]
    await asyncio.gather(
        *(until(runtime, handle, S.RUNNING, timeout_s=WITHIN_S) for handle in handles)
    )
    waiting = [asyncio.create_task(runtime.wait(handle, S.RUNNING)) for handle in handles]
    before = site.calls()
    await asyncio.sleep(3)
    calls = site.calls() - before
    for task in waiting:
        task.cancel()

    await asyncio.gather(*waiting, return_exceptions=True)
    assert calls <= 3 / site.poll_s + 1


@pytest.mark.slow
async def test_walltime_is_told_from_other_ends(site: SlurmHarness) -> None:
    runtime, handle = await running(
        site, replace(site.launch(), hpc=HpcJob(partition="short", walltime_s=60))
    )
    assert (await runtime.observe(handle)).ends_at is not None
    await until(runtime, handle, S.EXITED, timeout_s=150)
    assert (await runtime.observe(handle)).walltime_over
