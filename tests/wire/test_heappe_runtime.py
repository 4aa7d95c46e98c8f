"""The HEAppE runtime against the server's pitfalls: doubtful jobs, duplicates, leftovers, false
failures, silence."""

from __future__ import annotations

import asyncio
import errno
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from tests.addresses import free_port
from tests.heappe import HeappeServer, Script, Site
from tests.wire.heappe_harness import blank, specification

from moorage.agent.runtimes.base import CreateFailed, Handle, Launch, RuntimeFailed
from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.errors import HeappeFailed
from moorage.agent.runtimes.heappe.interpretation import DOUBT_S, SERVING_DOUBT_S, SETTLE_S
from moorage.agent.runtimes.heappe.records import JobRecords
from moorage.agent.runtimes.heappe.runtime import HeappeRules, HeappeRuntime, poll_pause_s
from moorage.agent.runtimes.heappe.site import SiteChoice
from moorage.agent.runtimes.heappe.transport import Account
from moorage.agent.state.logs import LogStore
from moorage.agent.state.ports import PortAllocator
from moorage.common.aio.clock import ManualClock
from moorage.common.model.ids import KernelId
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S

PROFILES = pytest.mark.parametrize("profile", ["6.3.2", "6.5"])
_WALLTIME = 3600.0
_POLL = 40.0
IDS = ManualClock()
_SUBMIT = "JobManagement/SubmitJob"
_SECRETS = {"bearer": "jwt-agent"}


@dataclass
class Agent:
    server: HeappeServer
    folder: Path
    auth: str = "api-key"
    runtimes: list[HeappeRuntime] = field(default_factory=list)

    def runtime(
        self, records: str = "records", ports: PortAllocator | None = None
    ) -> HeappeRuntime:
        """Polls only when a test says so."""
        account = Account(
            self.server.url, "agent", _SECRETS.get(self.auth, "secret-agent"), self.auth
        )
        client = HeappeClient(account, self.server.clock)
        wanted = SiteChoice("EXA-00-1", node_type="gpu", walltime_s=_WALLTIME)
        rules = HeappeRules(100, wanted, poll_s=3600, hurried_poll_s=3600)
        runtime = HeappeRuntime(
            client, JobRecords(self.folder / records), LogStore(self.folder / "logs"), rules,
            clock=self.server.clock, identity="identity", host="127.0.0.1", per_job=self.auth == "bearer",
            allocate=ports.allocate if ports else free_port, release=ports.release if ports else print,
        )  # fmt: skip
        self.runtimes.append(runtime)

        return runtime

    async def pass_time(
        self, runtime: HeappeRuntime, seconds: float, step_s: float = _POLL
    ) -> None:
        """Let time pass as on an agent, which lists the jobs every 40 seconds."""
        while seconds > 0:
            await self.server.advance(min(step_s, seconds))
            seconds -= step_s
            try:
                await runtime.book.sync()
            except HeappeFailed:
                pass

    def rows(self) -> list[tuple[str, int]]:
        return sorted((job.name, job.state) for job in self.server.database.jobs.values())


@asynccontextmanager
async def agent(
    folder: Path, profile: str = "6.3.2", auth: str = "api-key"
) -> AsyncIterator[Agent]:
    site = Site(bearer=auth == "bearer")
    async with HeappeServer(profile, clock=ManualClock(), site=site) as server:
        found = Agent(server, folder, auth)
        try:
            yield found
        finally:
            for runtime in found.runtimes:
                await runtime.close()


def launch(serves: bool = True) -> Launch:
    return Launch(KernelId(IDS.new_id()), ("engine",), {"KEY": "secret"}, serves=serves)


async def state(runtime: HeappeRuntime, handle: Handle) -> S:
    return (await runtime.observe(handle)).state


@PROFILES
async def test_a_model_runs_and_is_reached_at_a_local_address(tmp_path: Path, profile: str) -> None:
    async with agent(tmp_path, profile) as at:
        runtime = at.runtime()
        at.server.cluster.script = lambda job: Script(queue_s=100, reason="Priority")
        handle = await runtime.create(launch())
        await at.pass_time(runtime, 60)
        seen = await runtime.observe(handle)
        assert (seen.state, seen.detail) == (S.QUEUED, "Priority")
        now = at.server.clock.now().timestamp()
        assert seen.expected_start == pytest.approx(now + 40, abs=1)
        await at.pass_time(runtime, 120)
        seen = await runtime.observe(handle)
        assert (seen.state, seen.ends_at) == (S.RUNNING, pytest.approx(now + 40 + _WALLTIME, abs=1))
        url = "http://{}:{}/v1/models".format(*seen.address)
        async with aiohttp.ClientSession() as http, http.get(url) as got:
            assert (await got.json())["data"][0]["id"] == "tiny"

        assert "secret" not in str(at.server.cluster.jobs)
        await runtime.destroy(handle)
        assert (await state(runtime, handle), at.server.running()) == (S.GONE, [])


@PROFILES
async def test_a_job_in_the_queue_is_observed_whenever_the_site_says_something_else(
    tmp_path: Path, profile: str
) -> None:
    async with agent(tmp_path, profile) as at:
        runtime = at.runtime()
        at.server.cluster.script = lambda job: Script(queue_s=10_000, reason="Priority")
        handle = await runtime.create(launch())
        await at.pass_time(runtime, 60)
        first = await runtime.observe(handle)
        assert (first.state, first.detail) == (S.QUEUED, "Priority")
        waiting = asyncio.ensure_future(runtime.wait(handle, first.state))
        await at.pass_time(runtime, 120)
        assert not waiting.done(), "the site says the same"
        [truth] = at.server.cluster.jobs
        truth.reason = "ReqNodeNotAvail"
        await at.pass_time(runtime, 60)
        async with asyncio.timeout(10):
            await waiting

        assert (await runtime.observe(handle)).detail == "ReqNodeNotAvail"


@PROFILES
@pytest.mark.parametrize(
    ("way", "serves"), [("slurm", True), ("ssh-command", False), ("empty", False)]
)
async def test_a_submit_in_doubt_is_watched_and_never_repeated(
    tmp_path: Path, profile: str, way: str, serves: bool
) -> None:
    """The job runs, but its row never leaves state 1."""
    async with agent(tmp_path, profile) as at:
        runtime = at.runtime()
        at.server.switches.submit_lost = 1
        at.server.switches.submit_lost_as = way
        handle = await runtime.create(launch(serves=serves))
        for _ in range(3):
            await at.pass_time(runtime, 15 if serves else 60)
            seen = await runtime.observe(handle)
            assert (seen.state, "lost" in seen.detail) == (S.QUEUED, True)

        runtime = at.runtime()  # restarted
        assert list(await runtime.find()) == [handle.state["kernel_id"]]
        await at.pass_time(runtime, SERVING_DOUBT_S if serves else DOUBT_S)
        seen = await runtime.observe(handle)
        assert (seen.state, seen.never_started) == (S.EXITED, True)
        assert [job.name for job in runtime.doubtful_jobs()] == [handle.state["name"]]
        await runtime.destroy(handle)
        assert [job.name for job in runtime.doubtful_jobs()] == [handle.state["name"]]
        assert at.server.calls[_SUBMIT] == len(at.server.cluster.jobs) == 1
        assert [row for row in at.rows() if row[1] != 256] == []


@PROFILES
@pytest.mark.parametrize("call", ["SubmitJob", "CreateJob", "UploadFiles"])
async def test_a_lost_answer_makes_no_double(tmp_path: Path, profile: str, call: str) -> None:
    async with agent(tmp_path, profile) as at:
        runtime = at.runtime()
        todo = launch()
        at.server.switches.answers_lost = 1
        at.server.switches.only = call

        # 6.5 shows the row only after some seconds.
        if call == "UploadFiles" or (call, profile) == ("CreateJob", "6.5"):
            with pytest.raises(CreateFailed) as failed:
                await runtime.create(todo)

            assert failed.value.clean
            await at.server.advance(11)

        handle = await runtime.create(todo)
        await at.pass_time(runtime, 80)
        assert await state(runtime, handle) is S.RUNNING
        assert len(at.server.cluster.jobs) == 1
        assert at.server.running() == [handle.state["name"]]
        await runtime.find()
        assert [row for row in at.rows() if row[1] == 1] == []
        assert runtime.doubtful_jobs() == ()


async def test_a_row_that_a_failed_create_left_is_used(tmp_path: Path) -> None:
    async with agent(tmp_path) as at:
        runtime = at.runtime()
        at.server.switches.create_leaves_row = 1
        handle = await runtime.create(launch())
        await at.pass_time(runtime, 80)
        assert await state(runtime, handle) is S.RUNNING
        assert len(at.rows()) == len(at.server.cluster.jobs) == 1


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("Invalid account", Reason.CREATE_FAILED),
        ("Unable to contact slurm controller (connect failure)", Reason.RUNTIME_UNAVAILABLE),
    ],
)
async def test_what_the_site_refuses_leaves_nothing(
    tmp_path: Path, why: str, reason: Reason
) -> None:
    """A job that was not judged at all may be submitted again."""
    async with agent(tmp_path) as at:
        runtime = at.runtime()
        at.server.switches.submit_refused = f"sbatch: error: Batch job submission failed: {why}"
        with pytest.raises(CreateFailed, match=re.escape(why)) as failed:
            await runtime.create(launch())

        assert (failed.value.clean, failed.value.reason) == (True, reason)
        assert await runtime.find() == {}
        assert (at.server.running(), [row for row in at.rows() if row[1] != 256]) == ([], [])


async def test_an_outage_is_waited_for_as_long_as_for_a_way(tmp_path: Path) -> None:
    async with agent(tmp_path) as at:
        assert (
            at.runtime().capabilities.outage_s
            == HeappeRules(1, SiteChoice("")).unreachable_timeout_s
            > 0
        )


@pytest.mark.parametrize(
    "wanted", [{"project": "OTHER"}, {"template": "missing"}, {"walltime_s": 1e9}]
)
async def test_what_the_site_does_not_have_is_refused_by_name(
    tmp_path: Path, wanted: dict[str, str | float]
) -> None:
    from moorage.common.model.kernel import HpcJob

    async with agent(tmp_path) as at:
        runtime = at.runtime()
        todo = launch()
        job = HpcJob(**wanted)
        with pytest.raises(CreateFailed) as failed:
            await runtime.create(Launch(todo.kernel_id, todo.argv, todo.env, hpc=job))

        assert failed.value.clean
        assert at.rows() == []


@PROFILES
async def test_jobs_are_found_by_name_when_all_records_are_lost(
    tmp_path: Path, profile: str
) -> None:
    async with agent(tmp_path, profile) as at:
        before = at.runtime()
        todo = launch()
        handle = await before.create(todo)
        await at.server.advance(31)
        after = at.runtime("lost")
        found = await after.find()
        assert found == {todo.kernel_id: handle}
        assert [job.name for job in after.doubtful_jobs()] == [handle.state["name"]]

        # it is adopted and not submitted again
        assert (await after.create(todo)).state == handle.state
        await at.pass_time(after, 80)
        assert await state(after, handle) is S.RUNNING
        await after.destroy(handle)
        assert (await after.find(), at.server.running()) == ({}, [])
        assert at.server.calls[_SUBMIT] == 1


async def test_doubles_are_cancelled_and_leftovers_deleted(tmp_path: Path) -> None:
    async with agent(tmp_path) as at:
        runtime = at.runtime()
        handle = await runtime.create(launch())
        name = handle.state["name"]
        client = HeappeClient(Account(at.server.url, "agent", "secret-agent"), at.server.clock)
        double = await client.create_job(specification(name, blank()))
        await client.submit_job(double.id, 2)
        leftover = await client.create_job(specification(name.replace("-1", "-7"), blank()))
        foreign = await client.create_job(specification("mg-00000000-000000000000-1", blank()))
        await client.close()
        await at.server.advance(31)
        assert list(await runtime.find()) == [handle.state["kernel_id"]]
        await at.pass_time(runtime, 80)
        assert at.server.running() == [name]
        jobs = at.server.database.jobs
        assert (jobs[leftover.id].state, jobs[foreign.id].state) == (256, 1)
        assert await state(runtime, handle) is S.RUNNING


@PROFILES
async def test_a_false_failure_is_listed_as_possibly_billing(tmp_path: Path, profile: str) -> None:
    """The server closes the tunnel of a job that it considers failed, so nothing shows that it is
    alive."""
    async with agent(tmp_path, profile) as at:
        runtime = at.runtime()
        handle = await runtime.create(launch())
        await at.pass_time(runtime, 120)
        assert await state(runtime, handle) is S.RUNNING
        at.server.switches.false_failed = 1
        await at.pass_time(runtime, 40)
        seen = await runtime.observe(handle)
        assert (seen.state, seen.exit_code, seen.walltime_over) == (S.EXITED, None, False)
        assert [job.name for job in runtime.doubtful_jobs()] == [handle.state["name"]]
        await runtime.destroy(handle)
        assert [job.name for job in runtime.doubtful_jobs()] == [handle.state["name"]]
        await at.server.advance(60)
        assert at.server.leaked_node_seconds() > 0


@PROFILES
async def test_a_job_that_waits_on_is_not_believed_to_have_failed_at_once(
    tmp_path: Path, profile: str
) -> None:
    """Nor does it run beside its replacement: it finds nothing to run."""
    async with agent(tmp_path, profile) as at:
        runtime = at.runtime()
        at.server.cluster.holding = True
        handle = await runtime.create(launch(serves=False))
        await at.pass_time(runtime, 80)
        assert await state(runtime, handle) is S.QUEUED
        at.server.switches.false_failed = 1
        await at.pass_time(runtime, 80)
        seen = await runtime.observe(handle)
        assert (seen.state, "failed" in seen.detail) == (S.UNKNOWN, True)
        assert [job.name for job in runtime.doubtful_jobs()] == [handle.state["name"]]
        await at.pass_time(runtime, SETTLE_S)
        seen = await runtime.observe(handle)
        assert (seen.state, seen.never_started) == (S.EXITED, True)
        assert at.server.running() == [handle.state["name"]]
        await runtime.destroy(handle)
        assert [job.name for job in runtime.doubtful_jobs()] == [handle.state["name"]]
        at.server.cluster.holding = False
        await at.server.advance(60)
        assert (at.server.running(), at.server.leaked_node_seconds()) == ([], 0)


@PROFILES
@pytest.mark.parametrize("serves", [False, True])
async def test_a_job_that_begins_after_it_was_shown_as_failed(
    tmp_path: Path, profile: str, serves: bool
) -> None:
    """A program is tracked by its output. A model cannot be reached, because the site opens no
    tunnel to it, and is replaced."""
    async with agent(tmp_path, profile) as at:
        runtime = at.runtime()
        at.server.cluster.holding = True
        handle = await runtime.create(launch(serves=serves))
        await at.pass_time(runtime, 80)
        at.server.switches.false_failed = 1
        await at.pass_time(runtime, 40)
        assert await state(runtime, handle) is S.UNKNOWN
        at.server.cluster.holding = False
        [directory] = [job.directory for job in at.server.database.jobs.values()]
        await at.pass_time(runtime, 80)
        seen = await runtime.observe(handle)
        assert seen.state is (S.EXITED if serves else S.UNKNOWN)
        assert [job.name for job in runtime.doubtful_jobs()] == [handle.state["name"]]
        if serves:
            assert not seen.never_started
            return

        await at.pass_time(runtime, 10 * SETTLE_S)
        assert await state(runtime, handle) is S.UNKNOWN, "it still runs"
        [progress] = directory.rglob("progress.txt")
        progress.write_text('{"moorage": 1}\n{"exit": 3}\n')
        await at.pass_time(runtime, 40)
        seen = await runtime.observe(handle)
        assert (seen.state, seen.exit_code) == (S.EXITED, 3)
        assert runtime.doubtful_jobs() == ()


@PROFILES
async def test_an_end_is_not_believed_while_the_job_cannot_be_asked(
    tmp_path: Path, profile: str
) -> None:
    """A site that cannot reach its cluster considers jobs failed, and their files cannot be read
    either."""
    async with agent(tmp_path, profile) as at:
        runtime = at.runtime()
        at.server.cluster.holding = True
        handle = await runtime.create(launch(serves=False))
        await at.pass_time(runtime, 80)
        at.server.switches.false_failed = 1
        await at.pass_time(runtime, 40)
        at.server.switches.maintenance = True
        await at.pass_time(runtime, 3 * SETTLE_S)
        assert await state(runtime, handle) is S.UNKNOWN
        at.server.switches.maintenance = False
        at.server.cluster.holding = False
        await at.pass_time(runtime, 80)
        assert await state(runtime, handle) is S.UNKNOWN, "it has begun"


@PROFILES
async def test_a_false_failure_with_traffic_is_noticed_by_the_requests(
    tmp_path: Path, profile: str
) -> None:
    """They close the path before a probe can miss it."""
    async with agent(tmp_path, profile) as at, aiohttp.ClientSession() as http:
        runtime = at.runtime()
        handle = await runtime.create(launch())
        await at.pass_time(runtime, 120)
        seen = await runtime.observe(handle)
        assert seen.address is not None
        url = "http://{}:{}/v1/models".format(*seen.address)
        async with http.get(url) as got:
            assert got.status == 200

        at.server.switches.false_failed = 1
        await at.server.advance(80)
        asking = asyncio.create_task(http.get(url))
        job = await runtime.book.job(KernelId(str(handle.state["kernel_id"])))
        assert job is not None
        assert job.keeper is not None
        async with asyncio.timeout(10):
            while job.keeper.reach.misses == 0:
                await asyncio.sleep(0.02)

        await runtime.book.sync()
        assert await state(runtime, handle) is S.EXITED
        asking.cancel()
        await asyncio.wait({asking})


@PROFILES
@pytest.mark.parametrize("trap", ["maintenance", "slurm_down", "gateway"])
async def test_silence_never_ends_a_kernel(tmp_path: Path, profile: str, trap: str) -> None:
    async with agent(tmp_path, profile) as at:
        runtime = at.runtime()
        served = await runtime.create(launch())
        batch = await runtime.create(launch(serves=False))
        await at.pass_time(runtime, 120)

        for minutes in range(10):
            if trap == "gateway":
                at.server.switches.gateway_html = 1000
            else:
                setattr(at.server.switches, trap, True)

            await at.pass_time(runtime, 60)
            for handle in (served, batch):
                assert await state(runtime, handle) in (S.RUNNING, S.UNKNOWN)

            if trap == "gateway" and minutes > 3:
                assert await state(runtime, batch) is S.UNKNOWN
                with pytest.raises(HeappeFailed):
                    await runtime.find()

        at.server.switches.gateway_html = 0
        at.server.switches.maintenance = False
        at.server.switches.slurm_down = False
        await at.pass_time(runtime, 120)
        assert [await state(runtime, handle) for handle in (served, batch)] == [S.RUNNING] * 2
        assert len(at.server.running()) == 2


@PROFILES
async def test_a_broken_site_gets_no_storm_of_submits(tmp_path: Path, profile: str) -> None:
    async with agent(tmp_path, profile) as at:
        runtime = at.runtime()
        at.server.switches.maintenance = True
        for _ in range(20):
            with pytest.raises(CreateFailed) as failed:
                await runtime.create(launch())
            assert failed.value.clean

        assert at.server.calls["JobManagement/CreateJob"] <= 3
        at.server.switches.maintenance = False
        await at.server.advance(700)
        handle = await runtime.create(launch())
        await at.pass_time(runtime, 80)
        assert await state(runtime, handle) is S.RUNNING


@PROFILES
@pytest.mark.parametrize("reads", [32, 64])
async def test_ends(tmp_path: Path, profile: str, reads: int) -> None:
    async with agent(tmp_path, profile) as at:
        runtime = at.runtime()
        at.server.switches.cancelled_reads = reads
        scripts = {"walltime": Script(), "stopped": Script(), "failed": Script(run_s=300, exit_code=3),
                   "finished": Script(run_s=300), "waiting": Script(queue_s=1e6)}  # fmt: skip
        handles = {}
        for what, script in scripts.items():
            at.server.cluster.script = lambda job, script=script: script
            handles[what] = await runtime.create(launch(serves=False))

        await at.pass_time(runtime, 120)
        await runtime.stop(handles["stopped"], 1)
        await runtime.stop(handles["waiting"], 1)
        await at.pass_time(runtime, 400)
        seen = {what: await runtime.observe(handle) for what, handle in handles.items()}
        assert {what: one.state for what, one in seen.items()} == {
            "walltime": S.RUNNING, "stopped": S.EXITED, "failed": S.EXITED, "finished": S.EXITED,
            "waiting": S.EXITED}  # fmt: skip
        assert (seen["finished"].exit_code, seen["stopped"].exit_code) == (0, -15)
        await at.pass_time(runtime, _WALLTIME)
        seen["walltime"] = await runtime.observe(handles["walltime"])
        assert (seen["walltime"].state, seen["walltime"].walltime_over) == (S.EXITED, True)
        assert not any(one.walltime_over for what, one in seen.items() if what != "walltime")


@PROFILES
async def test_a_job_that_ends_slowly_is_cancelled_once(tmp_path: Path, profile: str) -> None:
    async with agent(tmp_path, profile) as at:
        at.server.cluster.script = lambda job: Script(completing_s=30)
        runtime = at.runtime()
        handle = await runtime.create(launch())
        await at.pass_time(runtime, 120)
        await runtime.stop(handle, 1)

        for _ in range(3):
            job = await runtime.book.job(KernelId(str(handle.state["kernel_id"])))
            assert job is not None
            await runtime.book.remove(job)  # as every second

        await at.pass_time(runtime, 40)
        await runtime.destroy(handle)
        assert at.server.calls["JobManagement/CancelJob"] == 1
        assert at.server.running() == []


async def test_a_full_disk_keeps_no_job_from_being_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with agent(tmp_path) as at:
        runtime = at.runtime()
        handle = await runtime.create(launch())
        await at.pass_time(runtime, 120)

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(JobRecords, "save", full)
        await runtime.stop(handle, 1)
        assert at.server.calls["JobManagement/CancelJob"] == 1
        await at.pass_time(runtime, 120)
        assert (await runtime.observe(handle)).exit_code == -15, "it is known that it was to end"


def test_a_server_that_is_down_is_asked_less_and_less_often() -> None:
    rules = HeappeRules(1, SiteChoice("p"), poll_s=40, hurried_poll_s=5)
    assert [poll_pause_s(rules, True, n) for n in range(4)] == [5, 10, 20, 40]
    assert [poll_pause_s(rules, False, n) for n in range(5)] == [40, 80, 160, 240, 240]
    assert poll_pause_s(HeappeRules(1, SiteChoice("p"), poll_s=600), False, 3) == 600, (
        "never more often"
    )


async def test_a_cancel_that_is_not_saved_is_repeated(tmp_path: Path) -> None:
    """6.3 returns 64 for a job that waits for an account, and submits it later."""
    async with agent(tmp_path) as at:
        runtime = at.runtime()
        at.server.switches.account_busy = True
        handle = await runtime.create(launch())
        await at.pass_time(runtime, 60)
        assert (await runtime.observe(handle)).detail == "waiting for a cluster account"
        await runtime.stop(handle, 1)
        at.server.switches.account_busy = False
        await at.pass_time(runtime, 200)
        assert (await state(runtime, handle), at.server.running()) == (S.EXITED, [])


async def test_a_site_that_is_not_polled_is_asked_for_each_job(tmp_path: Path) -> None:
    async with agent(tmp_path, auth="bearer") as at:
        at.server.switches.ssh_ca = True
        at.server.switches.live_info = True
        runtime = at.runtime()
        handle = await runtime.create(launch())
        await at.pass_time(runtime, 120)
        assert await state(runtime, handle) is S.RUNNING


@pytest.mark.parametrize(("jobs", "limit"), [(1, 4.0), (50, 1.0)])
async def test_calls_per_job_and_minute(tmp_path: Path, jobs: int, limit: float) -> None:
    async with agent(tmp_path) as at:
        runtime = at.runtime()
        handles = [await runtime.create(launch()) for _ in range(jobs)]
        await at.pass_time(runtime, 300)
        assert {await state(runtime, handle) for handle in handles} == {S.RUNNING}
        before = Counter(at.server.calls)
        await at.pass_time(runtime, 1200)
        made = Counter(at.server.calls) - before

        # In addition, the agent checks each engine's health as often as the runtime allows.
        checks = 2 * jobs * 20 * 60 / runtime.capabilities.check_interval_s
        assert (made.total() + checks) / jobs / 20 <= limit, made


@PROFILES
async def test_a_job_whose_tunnel_does_not_heal_is_ended(tmp_path: Path, profile: str) -> None:
    """Another user of the project has closed the tunnel. It is dead but still listed, and this user
    cannot close it again."""
    async with agent(tmp_path, profile) as at:
        runtime = at.runtime()
        handle = await runtime.create(launch())
        await at.pass_time(runtime, 120)
        assert await state(runtime, handle) is S.RUNNING
        await at.server.tunnels.kill()
        at.server.tunnels.forwards.clear()
        await at.pass_time(runtime, 1700)
        seen = await runtime.observe(handle)
        assert (seen.state, len(at.server.running())) == (S.RUNNING, 1)
        assert seen.unreachable
        assert seen.kept_until > at.server.clock.now().timestamp()
        await at.pass_time(runtime, 300)
        assert (await state(runtime, handle), at.server.running()) == (S.EXITED, [])


@pytest.mark.parametrize("shared", [True, False])
async def test_an_account_is_shared_only_where_told(tmp_path: Path, shared: bool) -> None:
    async with agent(tmp_path) as at:
        client = HeappeClient(Account(at.server.url, "agent", "secret-agent"), at.server.clock)
        await client.create_job(specification("mg-00000000-000000000000-1", blank()))
        rules = HeappeRules(1, SiteChoice("EXA-00-1"), shared_account=shared)
        runtime = HeappeRuntime(
            client,
            JobRecords(tmp_path),
            LogStore(tmp_path),
            rules,
            clock=at.server.clock,
            identity="identity",
            host="127.0.0.1",
            allocate=free_port,
        )
        at.runtimes.append(runtime)

        if shared:
            await runtime.probe()
        else:
            with pytest.raises(RuntimeFailed, match="mg-00000000"):
                await runtime.probe()


async def test_concurrent_creates_of_many(tmp_path: Path) -> None:
    async with agent(tmp_path) as at:
        runtime = at.runtime()
        handles = await asyncio.gather(*(runtime.create(launch()) for _ in range(20)))
        assert len({handle.state["name"] for handle in handles}) == len(at.server.running()) == 20
