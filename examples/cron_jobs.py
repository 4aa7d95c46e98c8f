"""A report on weekdays at half past seven, started once by hand:
``python examples/cron_jobs.py URL KEY``."""

import asyncio
import sys

from moorage.sdk import Client, SessionSpec
from moorage.sdk.types import TERMINAL, CronTimesSpec, NewCronJob

REPORT = NewCronJob(
    name="report",
    cron="30 7 * * MON-FRI",
    time_zone="Europe/Prague",
    session=SessionSpec(command=["echo", "the report"], resources={"cpu": 0.1, "mem": "16MiB"}),
)


async def main(url: str, key: str) -> None:
    async with Client(url, key) as client:
        times = CronTimesSpec(cron=REPORT.cron, time_zone=REPORT.time_zone)
        plan = await client.cron_jobs.plan(times, count=3)
        print("next:", len(plan.times), "times")

        job = await client.cron_jobs.create(REPORT)
        print("created:", job.name, job.next_at == plan.times[0])

        run = await client.cron_jobs.run(job.name)
        assert run.session_id is not None
        await client.sessions.wait(
            run.session_id, lambda view: view.status in TERMINAL, timeout_s=60
        )
        log = b"".join([piece async for piece in client.sessions.logs(run.session_id)])
        runs = [run async for run in client.cron_jobs.runs(job.name)]
        print("ran:", runs[0].state, log.decode().strip())

        await client.cron_jobs.suspend(job.name)
        print("suspended:", (await client.cron_jobs.get(job.name)).next_at)
        await client.cron_jobs.delete(job.name)


asyncio.run(main(*sys.argv[1:3]))
