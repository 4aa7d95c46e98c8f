"""Every trap of the test server, once while a kernel runs and once while it is created.

A trap may cost time, but it never ends a kernel whose job runs, never leaves a kernel with two jobs
for long, and never leaves an unknown job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from moorage.agent.runtimes.base import CreateFailed, Handle, Launch
from moorage.agent.runtimes.heappe import wire
from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.errors import HeappeFailed
from moorage.agent.runtimes.heappe.interpretation import DOUBT_S
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
from tests.heappe import HeappeServer, Script, Timing
from tests.heappe.switches import Switches

PROFILES = pytest.mark.parametrize("profile", ["6.3.2", "6.5"])
MANY = 10_000
POLL_S = 40.0
WALLTIME_S = 7200.0
Trap = Callable[[Switches], None]


def setting(**values: object) -> Trap:
    def spring(switches: Switches) -> None:
        for name, value in values.items():
            setattr(switches, name, value)

    return spring


# Traps that may happen at any time and pass.
PASSING: dict[str, Trap] = {
    "maintenance": setting(maintenance=True),
    "slurm-down": setting(slurm_down=True),
    "html-502": setting(gateway_html=MANY),
    "html-503": setting(gateway_html=MANY, gateway_status=503),
    "answers-lost": setting(answers_lost=MANY),
    "resets": setting(resets=MANY),
    "empty-500": setting(empty_500=MANY),
    "rate-limited": setting(rate_limited=MANY),
    "pool-full": setting(pool_full=MANY),
    "account-uninitialised": setting(account_uninitialised=True),
    "account-busy": setting(account_busy=True),
    "ports-taken": setting(ports_taken=100),
    "no-address": setting(node_names=["3(NXDOMAIN)"]),
    "two-lines": setting(node_names=["127.0.1.1", "127.0.1.2"]),
    "sessions-expire": setting(sessions_expire=MANY),
    "tunnels-die": setting(tunnels_die=3),
    "clock-ahead": setting(clock_skew_s=7200.0),
    "clock-behind": setting(clock_skew_s=-7200.0),
    "other-zone": setting(local_times=True),
    "zone-with-offset": setting(local_times=True, times_with_offset=True),
    "accounting-needed": setting(clusters_need_accounting=True),
    "stale-answers": setting(cache_survives_writes=True),
    "everybodys-jobs": setting(everybody_for_manager=True),
}
# Traps that catch a submission or creation.
STARTING: dict[str, Trap] = {
    "submit-lost": setting(submit_lost=1),
    "submit-lost-command": setting(submit_lost=1, submit_lost_as="ssh-command"),
    "submit-lost-empty": setting(submit_lost=1, submit_lost_as="empty"),
    "submit-doubled": setting(submit_doubled=1),
    "submit-refused": setting(submit_refused="sbatch: error: Batch job submission failed"),
    "create-leaves-row": setting(create_leaves_row=1),
    "create-answer-lost": setting(answers_lost=1, only="CreateJob"),
    "submit-answer-lost": setting(answers_lost=1, only="SubmitJob"),
    "submit-html": setting(gateway_html=1, only="SubmitJob"),
    "submit-reset": setting(resets=1, only="SubmitJob"),
}


UNHEALED = setting(other_user_closes=1)


def clear(switches: Switches) -> None:
    for name, value in vars(Switches()).items():
        setattr(switches, name, value)


class Agent:
    def __init__(self, server: HeappeServer, folder: Path, auth: str) -> None:
        self.server = server
        client = HeappeClient(Account(server.url, "agent", "secret-agent", auth), server.clock)
        wanted = SiteChoice("EXA-00-1", node_type="gpu", walltime_s=WALLTIME_S)
        self.runtime = HeappeRuntime(
            client,
            JobRecords(folder / "records"),
            LogStore(folder / "logs"),
            HeappeRules(10, wanted, poll_s=3600, hurried_poll_s=3600),
            clock=server.clock,
            identity="identity",
            host="127.0.0.1",
            allocate=free_port,
        )

    async def pass_time(self, seconds: float) -> None:
        """As an agent does, which lists the jobs every 40 seconds."""
        while seconds > 0:
            await self.server.advance(min(POLL_S, seconds))
            seconds -= POLL_S
            try:
                await self.runtime.book.sync()
            except HeappeFailed:
                pass

    async def state(self, handle: Handle) -> S:
        return (await self.runtime.observe(handle)).state


@asynccontextmanager
async def agent(folder: Path, profile: str, auth: str = "api-key") -> AsyncIterator[Agent]:
    async with HeappeServer(
        profile, clock=ManualClock(), timing=Timing(http_timeout_s=2.0)
    ) as server:
        found = Agent(server, folder, auth)
        try:
            yield found
        finally:
            await found.runtime.close()


async def created(at: Agent) -> Handle | None:
    try:
        return await at.runtime.create(launch())
    except CreateFailed:
        return None


def launch() -> Launch:
    return Launch(KernelId(SystemClock().new_id()), ("engine",), {}, serves=True)


@PROFILES
@pytest.mark.parametrize("trap", PASSING)
async def test_a_running_kernel_outlives(tmp_path: Path, profile: str, trap: str) -> None:
    async with agent(
        tmp_path, profile, auth="session" if trap == "sessions-expire" else "api-key"
    ) as at:
        handle = await at.runtime.create(launch())
        await at.pass_time(120)
        before = await at.runtime.observe(handle)
        assert before.state is S.RUNNING
        PASSING[trap](at.server.switches)

        for _ in range(5):
            await at.pass_time(120)
            assert await at.state(handle) in (S.RUNNING, S.UNKNOWN)
            assert len(at.server.running()) == 1

        clear(at.server.switches)
        await at.pass_time(600)
        after = await at.runtime.observe(handle)
        assert after.state is S.RUNNING
        assert after.ends_at == pytest.approx(before.ends_at, abs=90)
        assert at.server.leaked_node_seconds() == 0


@PROFILES
@pytest.mark.parametrize("trap", [*PASSING, *STARTING])
async def test_a_kernel_that_is_created_runs_once_or_not_at_all(
    tmp_path: Path, profile: str, trap: str
) -> None:
    async with agent(
        tmp_path, profile, auth="session" if trap == "sessions-expire" else "api-key"
    ) as at:
        at.server.cluster.script = lambda job: Script(queue_s=100)
        (PASSING | STARTING)[trap](at.server.switches)
        handle = await created(at)
        if handle is None:
            await at.pass_time(200)
            clear(at.server.switches)
            await at.pass_time(900)
            await at.runtime.find()
            await at.pass_time(200)
            assert at.server.running() == []

            return

        await at.pass_time(60)
        clear(at.server.switches)
        await at.pass_time(1200)
        counted = Counter(at.server.running())
        beyond_heappe = trap.startswith(("submit-lost", "submit-doubled"))
        assert set(counted.values()) <= {1} or beyond_heappe
        if await at.state(handle) is S.RUNNING:
            assert len(counted) == 1

        await at.runtime.stop(handle, 1)
        await at.pass_time(300)
        assert at.server.running() == [] or beyond_heappe


@PROFILES
async def test_a_job_whose_tunnel_never_heals_is_cancelled_to_be_replaced(
    tmp_path: Path, profile: str
) -> None:
    async with agent(tmp_path, profile) as at:
        handle = await at.runtime.create(launch())
        await at.pass_time(120)
        UNHEALED(at.server.switches)
        await at.pass_time(2000)
        assert await at.state(handle) is S.EXITED
        assert at.server.running() == []


@PROFILES
async def test_a_job_that_the_database_has_lost_goes_on(tmp_path: Path, profile: str) -> None:
    """A server that was restored from a backup neither lists the job nor finds it by its id."""
    async with agent(tmp_path, profile) as at:
        handle = await at.runtime.create(launch())
        await at.pass_time(120)
        rows = at.server.database.jobs
        at.server.database.jobs = {}
        for _ in range(5):
            await at.pass_time(120)
            assert await at.state(handle) in (S.RUNNING, S.UNKNOWN)
            assert set(await at.runtime.find()) == {handle.state["kernel_id"]}

        at.server.database.jobs = rows
        await at.pass_time(120)
        assert await at.state(handle) is S.RUNNING
        assert len(at.server.running()) == 1


@PROFILES
async def test_options_that_heappe_does_not_know_are_refused(tmp_path: Path, profile: str) -> None:
    async with agent(tmp_path, profile) as at:
        with pytest.raises(CreateFailed, match="accepts no options") as caught:
            await at.runtime.create(replace(launch(), hpc=HpcJob(options={"constraint": "a100"})))
        assert caught.value.clean
        assert (await at.runtime.find(), at.server.running()) == ({}, [])


@pytest.mark.parametrize("lost", [False, True], ids=["callbacks", "callbacks-lost"])
@PROFILES
async def test_a_kernel_on_a_cluster_that_calls_back_lives_for_its_walltime(
    tmp_path: Path, profile: str, lost: bool
) -> None:
    """Such clusters are not polled; a lost callback leaves the job RUNNING, and later Failed."""
    async with agent(tmp_path, profile) as at:
        at.server.switches.callback_cluster = True
        handle = await at.runtime.create(launch())
        await at.pass_time(120)
        at.server.switches.callbacks_lost = lost
        for _ in range(10):
            await at.pass_time(WALLTIME_S / 12)
            assert await at.state(handle) is S.RUNNING

        await at.pass_time(WALLTIME_S / 3)
        ended = await at.runtime.observe(handle)
        assert (ended.state, ended.walltime_over) == (S.EXITED, True)
        await at.runtime.destroy(handle)
        assert (at.server.running(), at.runtime.doubtful_jobs()) == ([], ())


@PROFILES
async def test_a_job_that_is_guessed_to_have_failed_is_in_doubt(
    tmp_path: Path, profile: str
) -> None:
    """Without callbacks, HEAppE gives up on a job that has waited three times its walltime. The job
    keeps waiting."""
    async with agent(tmp_path, profile) as at:
        at.server.switches.callback_cluster = True
        at.server.switches.callbacks_lost = True
        at.server.cluster.holding = True
        handle = await at.runtime.create(launch())
        for _ in range(3):
            await at.pass_time(WALLTIME_S - 400)
            assert await at.state(handle) is S.QUEUED

        assert at.runtime.doubtful_jobs() == ()
        await at.pass_time(1800)
        ended = await at.runtime.observe(handle)
        assert (ended.state, ended.never_started) == (S.EXITED, True)
        await at.runtime.destroy(handle)
        assert at.server.running() == [handle.state["name"]], (
            "HEAppE cancels no job that it shows as failed"
        )
        [doubt] = at.runtime.doubtful_jobs()
        assert (doubt.name, "guess" in doubt.why) == (handle.state["name"], True)


@PROFILES
@pytest.mark.parametrize("call", ["ListJobs", "SubmitJob", "CreateJob", "ToJobNode", "RequestData"])
async def test_a_call_that_hangs_ends_no_kernel(
    tmp_path: Path, profile: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that accepts a call and never answers: each call has a time limit, also in real
    seconds."""
    for one in (
        wire.LIST_JOBS,
        wire.SUBMIT_JOB,
        wire.CREATE_JOB,
        wire.NODE_GET,
        wire.REQUEST_TUNNEL,
    ):
        monkeypatch.setattr(wire, _name_of(one), replace(one, timeout_s=1.0))

    async with agent(tmp_path, profile) as at:
        at.server.switches.hangs = 2
        at.server.switches.only = call
        handle = await created(at)
        await at.pass_time(200)
        clear(at.server.switches)
        await at.pass_time(400)

        if handle is None:
            await at.runtime.find()
            await at.pass_time(200)
            assert at.server.running() == []
            return

        if call == "SubmitJob":  # it was not accepted, which only time shows
            await at.pass_time(DOUBT_S)
            assert (await at.state(handle), at.server.running()) == (S.EXITED, [])
            return

        assert await at.state(handle) is S.RUNNING
        assert at.server.running() == [handle.state["name"]]


def _name_of(call: wire.HeappeCall) -> str:
    return next(name for name, value in vars(wire).items() if value is call)


def test_every_switch_is_in_a_trap_or_tested_by_itself() -> None:
    """Switches left out here change what a trap does, or have their own runtime tests."""
    sprung = Switches()
    for trap in (*PASSING.values(), *STARTING.values(), UNHEALED):
        trap(sprung)

    untouched = {name for name, value in vars(Switches()).items() if getattr(sprung, name) == value}
    assert untouched <= {
        "create_slow_s", "cancel_unsaved", "cancelled_reads", "ssh_ca", "live_info", "callback_cluster",
        "callbacks_lost", "false_failed", "linux_local", "dry_run_unparsable", "stream_split",
        "stream_cut_after", "stream_error_after", "stream_error", "stream_idle_cut_s", "hangs", "only",
    }  # fmt: skip
