"""Endings of jobs that run our program: at the walltime, by themselves, and because of others."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from moorage.agent.runtimes.base import Handle, Launch
from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.records import JobRecords
from moorage.agent.runtimes.heappe.runtime import HeappeRules, HeappeRuntime
from moorage.agent.runtimes.heappe.site import SiteChoice
from moorage.agent.runtimes.heappe.transport import Account
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import ManualClock, SystemClock
from moorage.common.model.ids import KernelId
from moorage.common.model.status import ObservedState as S
from tests.addresses import free_port
from tests.heappe import HeappeServer, Script, Site, Template

PROFILES = pytest.mark.parametrize("profile", ["6.3.2", "6.5"])
WALLTIME_S = 7200.0
POLL_S = 40.0
# Exits cleanly on SIGTERM, and by itself once a file named "end" exists.
ENGINE = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
open("ready", "w").close()
while not os.path.exists("end"):
    time.sleep(0.02)
"""


class Bench:
    def __init__(self, server: HeappeServer, folder: Path) -> None:
        self.server = server
        wanted = SiteChoice("EXA-00-1", node_type="gpu", walltime_s=WALLTIME_S)
        self.runtime = HeappeRuntime(
            HeappeClient(Account(server.url, "agent", "secret-agent"), server.clock),
            JobRecords(folder / "records"),
            LogStore(folder / "logs"),
            HeappeRules(10, wanted, poll_s=3600, hurried_poll_s=3600),
            clock=server.clock,
            identity="identity",
            host="127.0.0.1",
            allocate=free_port,
        )

    async def start(self) -> Handle:
        argv = (sys.executable, "-S", "-c", ENGINE)
        handle = await self.runtime.create(Launch(KernelId(SystemClock().new_id()), argv, {}))
        await self.pass_time(120)
        async with asyncio.timeout(60):
            while not (self.directory / "ready").exists():
                await asyncio.sleep(0.02)
        return handle

    @property
    def directory(self) -> Path:
        (job,) = self.server.database.jobs.values()
        return job.tasks[0].spec.directory

    async def pass_time(self, seconds: float) -> None:
        while seconds > 0:
            await self.server.advance(min(POLL_S, seconds))
            seconds -= POLL_S
            await self.runtime.book.sync()


@asynccontextmanager
async def bench(folder: Path, profile: str) -> AsyncIterator[Bench]:
    command = str(Path(__file__).parents[2] / "deploy" / "heappe" / "run.sh")
    site = Site(templates=(Template(11, "engine", 7, command=command),))
    async with HeappeServer(profile, clock=ManualClock(), site=site) as server:
        server.cluster.script = lambda job: Script(engine="program")
        found = Bench(server, folder)
        try:
            yield found
        finally:
            await found.runtime.close()


@PROFILES
async def test_an_orderly_end_at_the_walltime_is_the_walltimes(
    tmp_path: Path, profile: str
) -> None:
    async with bench(tmp_path, profile) as at:
        handle = await at.start()
        await at.pass_time(WALLTIME_S)
        ended = await at.runtime.observe(handle)
        assert (ended.state, ended.exit_code, ended.walltime_over) == (S.EXITED, 0, True)
        assert at.runtime.doubtful_jobs() == ()


@PROFILES
async def test_a_program_that_ends_by_itself_at_its_last_moment_succeeds(
    tmp_path: Path, profile: str
) -> None:
    async with bench(tmp_path, profile) as at:
        handle = await at.start()
        await at.pass_time(WALLTIME_S - 160)
        (at.directory / "end").touch()
        async with asyncio.timeout(60):
            while '"exit"' not in (at.directory / "progress.txt").read_text():
                await asyncio.sleep(0.02)

        await at.pass_time(600)
        ended = await at.runtime.observe(handle)
        assert (ended.state, ended.exit_code, ended.walltime_over) == (S.EXITED, 0, False)


@PROFILES
async def test_a_job_that_is_cancelled_at_the_site_has_not_reached_its_walltime(
    tmp_path: Path, profile: str
) -> None:
    async with bench(tmp_path, profile) as at:
        handle = await at.start()
        (job,) = at.server.cluster.jobs
        await at.server.cluster.cancel(job.scheduler_id, at.server.clock.now())
        await at.pass_time(120)
        ended = await at.runtime.observe(handle)
        assert (ended.state, ended.exit_code, ended.walltime_over) == (S.EXITED, -15, False), (
            "no success"
        )
        await at.pass_time(WALLTIME_S)
        assert not (await at.runtime.observe(handle)).walltime_over, "not later, either"


@PROFILES
async def test_a_job_that_we_stop_has_not_reached_its_walltime(
    tmp_path: Path, profile: str
) -> None:
    async with bench(tmp_path, profile) as at:
        handle = await at.start()
        await at.pass_time(WALLTIME_S - 160)
        await at.runtime.stop(handle, 1)
        await at.pass_time(120)
        ended = await at.runtime.observe(handle)
        assert (ended.state, ended.walltime_over) == (S.EXITED, False)
