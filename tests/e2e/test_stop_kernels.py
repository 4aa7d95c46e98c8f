"""An orderly stop that also stops the kernels: work that may run again returns to the queue."""

from __future__ import annotations

import pytest

from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.common.views.resources import SessionView

from .harness import Platform, kernels_below, until

SMALL = {"cpu": "0.1", "mem": "16MiB"}
SLEEP = ["sleep", "1000"]


async def session(platform: Platform, name: str) -> SessionView:
    async with platform.client() as client:
        return await client.sessions.get(name)


async def is_running(platform: Platform, *names: str) -> bool:
    return all([(await session(platform, name)).status is Status.RUNNING for name in names])


def start(platform: Platform, how: str, *, stops_kernels: bool) -> None:
    if how == "up":
        platform.start("up", *(["--stop-kernels"] if stops_kernels else []))
    else:
        platform.start(
            "agent", env={"MOORAGE_AGENT__STOP_KERNELS_ON_EXIT": str(stops_kernels).lower()}
        )


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["up", "agent"])
async def test_stopped_kernels_return_to_the_queue(platform: Platform, how: str) -> None:
    if how == "agent":
        platform.start("manager")

    start(platform, how, stops_kernels=True)
    await platform.wait_until_ready()
    async with platform.client() as client:
        await client.sessions.create(
            SessionSpec(name="job", command=SLEEP, resources=SMALL, retries=1, stop_grace_s=2)
        )
        await client.sessions.create(
            SessionSpec(
                name="shell", type="interactive", command=SLEEP, resources=SMALL, stop_grace_s=2
            )
        )

    await until("both run", lambda: is_running(platform, "job", "shell"))
    assert len(kernels_below(platform.home)) == 2
    assert platform.stop(how) == 0
    assert kernels_below(platform.home) == {}
    start(platform, how, stops_kernels=False)

    async def runs_again() -> bool:
        # The agent waits two seconds for its last report to be applied. On a slow machine the
        # manager learns from the next start's report that the kernels ended, and until then shows
        # the first attempt.
        view = await session(platform, "job")
        return view.status is Status.RUNNING and view.attempt > 1

    await until("the job runs again", runs_again)
    job = await session(platform, "job")
    shell = await session(platform, "shell")
    assert (job.attempt, job.requeues) == (2, 0), "no retry is used"
    assert shell.reason is Reason.AGENT_SHUTDOWN
    async with platform.client() as client:
        await client.sessions.stop("job")

    async def ended() -> bool:
        return (await session(platform, "job")).status is Status.TERMINATED

    await until("the job has ended", ended)
