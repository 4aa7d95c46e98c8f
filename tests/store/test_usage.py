"""Resource usage in Postgres: accepted only from the kernel's agent, stored once, rolled up and
deleted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from moorage.common.model.errors import NotFound
from moorage.common.model.ids import AgentId, DeviceId, KernelId
from moorage.common.model.resource_usage import DeviceUse, KernelMinute, KernelUse, UsageReport, Use
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState
from moorage.manager.identity.scope import Scope
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.store import Store

from .conftest import RUNNING, FakeAgent, reconcile_all, schedule

SYSTEM = Scope.system()

USED = Use(cpu=1500, memory=2**30, rx=None, tx=7, gpu=300, gpu_memory=5)


async def running(store: Store, agent: FakeAgent, name: str) -> KernelId:
    spec = SessionSpec(name=name, command=["x"], resources={"cpu": 1})
    made = await store.sessions.create(Scope.system("t"), spec)
    assert await schedule(store) == 1
    kernel = (await store.sessions.get(SYSTEM, made.id)).kernels[0]
    agent.see(kernel.id, ObservedState.RUNNING, **RUNNING)
    await agent.report()
    await reconcile_all(store)
    return KernelId(kernel.id)


def report(agent: FakeAgent, *kernels: tuple[str, Use], **more: Any) -> UsageReport:
    uses = tuple(KernelUse(KernelId(kernel), use) for kernel, use in kernels)
    return UsageReport(
        AgentId(agent.name), agent.incarnation, cpu=4000, memory=2**31, kernels=uses, **more
    )


async def test_newest_values_are_stored(store: Store) -> None:
    one = FakeAgent(store)
    other = FakeAgent(store, "node-2", gpus=1)
    await one.report()
    first = await running(store, one, "first")
    await other.report()
    devices = (
        DeviceUse(DeviceId("GPU-node-1-1"), 9, gpu=420, temperature=50),
        DeviceUse(DeviceId("no such"), 1),
    )
    await store.usage.put(
        [report(one, (first, replace(USED, cpu=1)), devices=devices), report(other)]
    )
    await store.usage.put([report(one, (first, USED), devices=devices)])
    stats = await store.usage.of_session(SYSTEM, "first")
    (kernel,) = stats.kernels
    assert kernel.latest is not None
    assert kernel.latest.model_dump(exclude={"at"}) == {
        "cpu": 1500, "memory": 2**30, "rx": None, "tx": 7, "gpu": 300, "gpu_memory": 5,
    }  # fmt: skip
    node = await store.usage.of_agent("node-1")
    assert (node.cpu, node.memory, node.offered_cpu) == (4000, 2**31, 8000)
    assert [(d.device_id, d.memory, d.gpu, d.temperature, d.power) for d in node.devices] == [
        ("GPU-node-1-0", None, None, None, None), ("GPU-node-1-1", 9, 420, 50, None),
    ]  # fmt: skip
    assert [view.id for view in await store.usage.top_agents()] == ["node-1", "node-2"]
    assert await store.usage.totals() == [
        ("default", {"cpu": 1500, "memory": 2**30, "gpu": 300, "gpu_memory": 5})
    ]
    metrics = ManagerMetrics()
    metrics.set_usage(await store.usage.totals())
    shown = metrics.render().decode()
    assert 'moorage_used_processors{resource_group="default"} 1.5\n' in shown
    assert 'moorage_used_device_memory_bytes{resource_group="default"} 5.0\n' in shown
    with pytest.raises(NotFound):
        await store.usage.of_agent("node-3")
    with pytest.raises(NotFound):
        await store.usage.of_session(SYSTEM, "third")


async def test_usage_of_another_agents_kernels_is_ignored(store: Store) -> None:
    mine = FakeAgent(store)
    stranger = FakeAgent(store, "node-2")
    await mine.report()
    kernel = await running(store, mine, "job")
    await stranger.report()
    await store.usage.put([report(stranger, (kernel, USED))])
    await store.usage.put([replace(report(mine, (kernel, USED)), incarnation="older")])
    nobody = replace(report(mine, (kernel, USED)), agent_id=AgentId("node-9"))
    await store.usage.put([nobody])
    assert (await store.usage.of_session(SYSTEM, "job")).kernels[0].latest is None
    assert (await store.usage.of_agent("node-1")).at is None
    minute = KernelMinute(kernel, 0, samples=1, mean=USED, peak=USED)
    await store.usage.put_minutes([(report(stranger), minute), (nobody, minute)])
    assert await spans(store) == []


async def test_implausible_values_do_not_affect_others(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    kernel = await running(store, agent, "job")
    nonsense = [
        ("no uuid", USED),
        ("01935b1e-0000-7000-8000-000000000000", USED),
        (kernel, replace(USED, cpu=-1)),
        (kernel, replace(USED, memory=2**63)),
        (kernel, replace(USED, gpu=-5)),
    ]
    bad = replace(
        report(agent, (kernel, USED), *nonsense, devices=(DeviceUse(DeviceId("a\0b"), 1),)), cpu=-3
    )
    await store.usage.put([bad])
    assert (await store.usage.of_session(SYSTEM, "job")).kernels[0].latest is not None
    now = await minute_now(store)
    minutes = [
        KernelMinute(kernel, now + 1, 1, USED, USED),
        KernelMinute(kernel, now, 0, USED, USED),
        KernelMinute(kernel, now, 1, USED, replace(USED, cpu=0)),
        KernelMinute(kernel, -60, 1, USED, USED),
        KernelMinute(kernel, now + 86_400, 1, USED, USED),
        KernelMinute(kernel, now - 86_400, 1, USED, USED),
        KernelMinute(kernel, now, 12, USED, USED),
    ]
    await store.usage.put_minutes([(bad, one) for one in minutes])
    assert [row["samples"] for row in await spans(store)] == [12]


async def minute_now(store: Store) -> int:
    row = await store.database.fetchrow("SELECT extract(epoch FROM now())::bigint / 60 * 60 AS at")
    return int(row["at"])


async def spans(store: Store) -> list[Any]:
    return list(await store.database.fetch("SELECT * FROM kernel_usage_spans ORDER BY seconds, at"))


async def test_minutes_are_stored_once_and_rolled_up(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    kernel = await running(store, agent, "job")
    now = await minute_now(store)
    minutes = [
        (
            report(agent),
            KernelMinute(
                kernel, now - 60 * n, 10, replace(USED, cpu=100 * n), replace(USED, cpu=900)
            ),
        )
        for n in (3, 1, 2)
    ]
    await asyncio.gather(store.usage.put_minutes(minutes), store.usage.put_minutes(minutes[:1]))
    await store.usage.put_minutes(minutes)
    stats = await store.usage.of_session(SYSTEM, "job", seconds=60, limit=2)
    assert [(s.mean.cpu, s.peak.cpu, s.samples) for s in stats.kernels[0].spans] == [
        (200, 900, 10),
        (100, 900, 10),
    ]
    await store.usage.compact(86_400)
    assert len(await spans(store)) == 3

    # All usage is in one past hour; one minute of it has more samples and no GPU.
    await store.database.fetch(
        "UPDATE kernel_usage_spans SET at = date_bin('1 hour', now(), 'epoch') - interval '5 hours'"
        " + make_interval(mins => (cpu / 100)::int)"
    )
    await store.database.fetch(
        "UPDATE kernel_usage_spans SET samples = 20, gpu = NULL, gpu_peak = NULL WHERE cpu = 100"
    )
    await store.usage.compact(86_400)
    (hour,) = await spans(store)
    assert (hour["seconds"], hour["samples"], hour["cpu"], hour["cpu_peak"]) == (3600, 40, 175, 900)
    assert (hour["gpu"], hour["rx"], hour["tx"]) == (300, None, 7)

    # Usage for an hour that already exists is merged into it.
    await store.database.fetch(
        "INSERT INTO kernel_usage_spans SELECT kernel_id, 60, at + interval '30 minutes', 40, 575, 1000, "
        "memory, memory_peak, rx, rx_peak, tx, tx_peak, gpu, gpu_peak, gpu_memory, gpu_memory_peak "
        "FROM kernel_usage_spans"
    )
    await store.usage.compact(86_400)
    (hour,) = await spans(store)
    assert (hour["samples"], hour["cpu"], hour["cpu_peak"], hour["gpu"]) == (80, 375, 1000, 300)
    await store.usage.compact(3600)
    assert await spans(store) == []


async def test_top_sessions_and_agents(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    kernels = {name: await running(store, agent, name) for name in ("a", "b", "c", "silent")}
    uses = {
        "a": replace(USED, cpu=5, tx=None),
        "b": replace(USED, cpu=9),
        "c": replace(USED, cpu=7, tx=8),
    }
    await store.usage.put([report(agent, *((kernels[name], use) for name, use in uses.items()))])

    async def names(sort: str, limit: int = 10) -> str:
        return "".join(
            view.name for view in await store.usage.top_sessions(SYSTEM, sort=sort, limit=limit)
        )

    assert [await names(sort) for sort in ("cpu", "tx", "created_at")] == ["bca", "cba", "cba"]
    assert await names("cpu", 1) == "b"
    owner = (await store.sessions.get(SYSTEM, "a")).project
    seen = [
        await store.usage.top_sessions(replace(SYSTEM, projects=(project,)), sort="cpu", limit=9)
        for project in (owner, "another")
    ]
    assert [len(lines) for lines in seen] == [3, 0]

    # Ended kernels are not included, nor is their usage.
    agent.see(kernels["b"], ObservedState.EXITED, exit_code=0)
    await agent.report()
    await reconcile_all(store)
    assert await names("cpu") == "ca"
    await store.database.fetch(
        "UPDATE sessions SET created_at = now() - interval '31 days', "
        "status_since = now() - interval '31 days' WHERE name = 'b'"
    )
    assert await store.retention.delete_sessions(30 * 86_400) == 1
    assert len(await store.database.fetch("SELECT FROM kernel_usage")) == 2
