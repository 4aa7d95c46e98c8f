"""The address of a HEAppE job: it may appear long after the database shows that the job runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.addresses import free_port
from tests.heappe import Script
from tests.wire.test_heappe_runtime import agent, launch

from moorage.agent.state.ports import PortAllocator
from moorage.common.aio.clock import ManualClock
from moorage.common.model.status import ObservedState as S


async def test_an_address_that_shows_after_the_job_runs_wakes_its_agent(tmp_path: Path) -> None:
    async with agent(tmp_path) as at:
        runtime = at.runtime()
        at.server.cluster.script = lambda job: Script(load_s=200)
        handle = await runtime.create(launch())
        await at.pass_time(runtime, 80)
        seen = await runtime.observe(handle)
        assert (seen.state, seen.address) == (S.RUNNING, None)
        waiting = asyncio.create_task(runtime.wait(handle, S.RUNNING))
        await at.pass_time(runtime, 80)
        assert not waiting.done()
        await at.pass_time(runtime, 120)
        await asyncio.wait_for(waiting, 10)
        assert (await runtime.observe(handle)).address is not None


async def test_jobs_wait_for_a_free_port_and_give_it_back(tmp_path: Path) -> None:
    """There are more jobs than ports in the range."""
    port = free_port()
    ports = PortAllocator(f"{port}-{port}", "127.0.0.1", clock=ManualClock())
    async with agent(tmp_path) as at:
        runtime = at.runtime(ports=ports)
        handles = [await runtime.create(launch()) for _ in range(3)]
        while handles:
            await at.pass_time(runtime, 120)
            seen = [await runtime.observe(handle) for handle in handles]
            assert {one.state for one in seen} == {S.RUNNING}
            [served] = [handle for handle, one in zip(handles, seen, strict=True) if one.address]
            await runtime.destroy(served)
            handles.remove(served)
