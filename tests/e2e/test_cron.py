"""Cron jobs on real managers: each minute one run, whatever happens to the managers."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from moorage.common.model.cron_jobs import CronRunState, NewCronJob
from moorage.common.views.cron_jobs import CronRunView
from moorage.sdk import SessionSpec

from .harness import Platform, until
from .test_failover import Site, site

__all__ = ["site"]

pytestmark = [pytest.mark.xdist_group("platform"), pytest.mark.timeout(300)]
EVERY_MINUTE = NewCronJob(
    name="tick",
    cron="* * * * *",
    session=SessionSpec(command=["true"], resources={"cpu": "0.01", "mem": "8MiB"}),
)


async def runs_of(manager: Platform) -> list[CronRunView]:
    async with manager.client() as client:
        return [run async for run in client.cron_jobs.runs("tick")]


async def test_two_managers_start_one_run_a_minute(site: Site) -> None:
    """The leader is killed between two minutes; the other manager starts the next run."""
    await site.up()
    async with site.a.client() as client:
        await client.cron_jobs.create(EVERY_MINUTE)

    async def has_run(number: int) -> bool:
        return len(await runs_of(site.b)) >= number

    await until("the first run has started", lambda: has_run(1), timeout_s=90)
    async with site.b.client() as client:
        leader = next(m.link for m in await client.managers.list() if m.leader)
    first = site.a if site.a.env["MOORAGE_MANAGER__LINK_LISTEN"] == leader else site.b
    other = site.b if first is site.a else site.a
    first.kill("manager")

    async def continued() -> bool:
        return len(await runs_of(other)) >= 2

    await until("the other manager continues", continued, timeout_s=90)
    first.start("manager")
    await first.wait_until_ready()
    runs = await runs_of(other)
    minutes = [run.scheduled_at for run in reversed(runs)]
    assert len(set(minutes)) == len(minutes)
    gaps = {(later - earlier).total_seconds() for earlier, later in pairwise(minutes)}
    assert gaps <= {60.0}, "none was missed"
    started = {CronRunState.PENDING, CronRunState.RUNNING, CronRunState.SUCCEEDED}
    assert {run.state for run in runs} <= started
    async with other.client() as client:
        sessions = [session.name async for session in client.sessions.list()]
    ticks = [name for name in sessions if name.startswith("tick-")]
    assert sorted(ticks) == sorted(run.session for run in runs if run.session)


async def test_the_command_line(one_node: Platform) -> None:
    await asyncio.to_thread(use_the_command_line, one_node)


def use_the_command_line(platform: Platform) -> None:
    def cron(*words: str, code: int = 0) -> str:
        done = platform.run("cron", *words)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    program = ("--cpus", "0.1", "--memory", "16MiB", "--", "echo", "hello")
    times = ("--cron", "30 7 * * 1-5", "--time-zone", "Europe/Prague")
    assert cron("create", "report", *times, *program) == "report\n"
    assert "already has a cron job" in cron("create", "report", *times, *program, code=1)
    assert "never comes" in cron("create", "never", "--cron", "0 0 30 2 *", *program, code=2)
    assert "cron" in cron("create", "few", "--cron", "* * *", *program, code=2)
    assert "no --cron" in cron("create", "without", *program, code=2)
    assert "no program" in cron("create", "empty", "--cron", "@daily", code=2)

    listed = cron("list")
    assert "30 7 * * 1-5" in listed
    run = cron("trigger", "report").strip()
    assert run.startswith("report-")
    followed = platform.run("logs", "-f", run)
    assert followed.stdout == "hello\n", followed.stderr
    assert cron("update", "report", "--cron", "@hourly", "--concurrency", "replace")
    described = cron("describe", "report")
    assert "@hourly (Europe/Prague)" in described
    assert f"(by hand)  {run}" in described.replace("   ", "  ")
    cron("suspend", "report")
    assert "suspended" in cron("list")
    cron("resume", "report")
    cron("delete", "report")
    assert "there is no cron job" in cron("describe", "report", code=3)

    file = platform.home / "cron-job.yaml"
    file.write_text(
        "name: nightly\ncron: '@daily'\nmissed: run-once\npipeline:\n  name: any\n  steps:\n"
        "    - name: one\n      spec: {command: [echo, one], resources: {cpu: 0.1, mem: 16MiB}}\n"
    )
    assert cron("create", "-f", str(file)) == "nightly\n"
    assert "a pipeline of 1 steps" in cron("describe", "nightly")
    pipeline = cron("trigger", "nightly").strip()
    assert platform.run("pipelines", "describe", pipeline).returncode == 0
    cron("delete", "nightly")
