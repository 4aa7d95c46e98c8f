"""Program progress in Postgres: who may report it, where it is shown, and which reports are
impossible."""

from __future__ import annotations

import math

import pytest

from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.resource_usage import KernelProgress
from moorage.common.model.status import ObservedState
from moorage.common.views.events import SessionChange
from moorage.manager.loops import UsageWriter
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.store import Store
from tests.clocks import StoreClock

from .conftest import RUNNING, FakeAgent, reconcile_all, schedule
from .tenancy_harness import serve
from .test_pipelines import body, get, post, step
from .test_usage import SYSTEM, report, running

NODE = AgentId("node-1")


async def shown(store: Store, name: str) -> KernelProgress | None:
    (kernel,) = (await store.sessions.get(SYSTEM, name)).kernels
    if (found := kernel.progress) is None:
        return None
    return KernelProgress(
        KernelId(kernel.id),
        found.fraction,
        step=found.step,
        of=found.of,
        message=found.message,
        problem=found.problem,
    )


async def test_newest_progress_is_shown_and_told_to_watchers(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    kernel = await running(store, agent, "train")
    session = SessionId((await store.sessions.get(SYSTEM, "train")).id)
    changed: list[set[SessionId] | None] = []
    store.notifier.on_sessions(lambda ids: changed.append(None if ids is None else set(ids)))
    writer = UsageWriter(store, ManagerMetrics(), StoreClock())
    for fraction in (0.1, 0.2):
        writer.take(report(agent, progress=(KernelProgress(kernel, fraction, 1, 5, "epoch"),)))

    await writer.run_once()
    assert await shown(store, "train") == KernelProgress(kernel, 0.2, step=1, of=5, message="epoch")
    assert changed == [{session}]
    await store.progress.put([(NODE, KernelProgress(kernel, 0.2, 1, 5, "epoch"))])
    assert changed == [{session}], "equal progress is no change"
    (change,) = await store.overviews.changed(SYSTEM, [session], [], [])
    assert isinstance(change.view, SessionChange)
    assert change.view.progress is not None
    assert (change.view.progress.fraction, change.view.progress.of) == (0.2, 5)


async def test_pipelines_show_the_progress_of_their_steps(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    async with serve(store) as api:
        await post(api, "admin", "", body(step("load")))
        await schedule(store)
        (row,) = await store.database.fetch("SELECT id FROM kernels")
        agent.see(row["id"], ObservedState.RUNNING, **RUNNING)
        await agent.report()
        await reconcile_all(store)
        await store.progress.put([(NODE, KernelProgress(KernelId(row["id"]), 0.5))])
        (one,) = (await get(api, "admin", "train"))["steps"]
        assert (one["state"], one["progress"]["fraction"]) == ("running", 0.5)


@pytest.mark.parametrize(
    "progress",
    [
        {"fraction": 1.4},
        {"fraction": math.nan},
        {"fraction": -math.inf},
        {"step": -1},
        {"of": 1 << 60},
        {"message": "\0"},
        {"problem": "\0"},
    ],
)
async def test_impossible_progress_is_left_out(store: Store, progress: dict[str, object]) -> None:
    agent = FakeAgent(store)
    await agent.report()
    one = await running(store, agent, "one")
    other = await running(store, agent, "other")
    bad = KernelProgress(one, **progress)  # type: ignore[arg-type]
    await store.progress.put(
        [
            (NODE, bad),
            (NODE, KernelProgress(KernelId("x"), 0.1)),
            (NODE, KernelProgress(other, 0.1)),
        ]
    )
    assert (await shown(store, "one"), await shown(store, "other")) == (
        None,
        KernelProgress(other, 0.1),
    )


async def test_only_the_agent_of_a_kernel_reports_its_progress(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    kernel = await running(store, agent, "train")
    await store.progress.put([(AgentId("node-2"), KernelProgress(kernel, 0.9))])
    assert await shown(store, "train") is None
