"""Custom routines: what they can see and request, and which other work is unaffected by their
errors."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from moorage.common.model.status import Status
from moorage.manager.loops.routine_runner import GROUP, RoutineRunner
from moorage.manager.serving.routines import Intents, ServingView
from moorage.manager.store import Store

from .test_rollouts import SYSTEM, Platform, complete

seen: list[ServingView] = []


async def grow(view: ServingView, intents: Intents) -> None:
    seen.append(view)
    [endpoint] = view.endpoints
    intents.scale(endpoint, endpoint.wanted + 1, "for the test")
    intents.drain(next(one for one in endpoint.replicas if one.state == "ready"))
    intents.note(endpoint, "done")


async def fail(view: ServingView, intents: Intents) -> None:
    intents.scale(view.endpoints[0], 5, "never")
    raise ValueError("of the routine")


def entry(name: str) -> EntryPoint:
    return EntryPoint(name, f"{__name__}:{name}", GROUP)


@pytest.fixture
async def platform(store: Store) -> Platform:
    made = Platform(store)
    await made.agent.report()
    return made


async def test_routine_scales_and_drains(platform: Platform) -> None:
    await platform.create(replicas=1)
    await platform.until(complete)
    runner = RoutineRunner(platform.store, platform.leader, platform.clock, [entry("grow")])
    [loop] = runner.loops
    await platform.store.database.fetch("DELETE FROM leases")
    await loop.tick()
    view = await platform.service.get(SYSTEM, "m")
    assert (view.replicas, [r.state for r in view.sessions]) == (1, ["ready"]), "it leads no more"
    await platform.leader.run_once()
    await loop.tick()
    [info] = seen[-1].endpoints
    assert (info.name, info.project, info.status, info.wanted) == ("m", "vision", "ready", 1)
    assert [(r.state, r.address, r.agent_id) for r in info.replicas] == [
        ("ready", "127.0.0.1:21000", "node-1")
    ]
    view = await platform.service.get(SYSTEM, "m")
    assert (view.replicas, view.version, [r.state for r in view.sessions]) == (2, 1, ["draining"])
    [decision] = (await platform.service.decisions(SYSTEM, "m")).items
    assert (decision.rule, decision.detail) == ("routine grow", "for the test")
    view = (await platform.until(lambda view: view.ready == 2))[-1]
    assert Status.RUNNING in {r.status for r in view.sessions}


async def test_failing_routine_asks_for_nothing(platform: Platform) -> None:
    await platform.create(replicas=1)
    await platform.leader.run_once()
    entries = [entry("fail"), entry("missing")]
    runner = RoutineRunner(platform.store, platform.leader, platform.clock, entries)
    with pytest.raises(ValueError, match="of the routine"):
        await runner.loops[0].tick()
    with pytest.raises(AttributeError, match="missing"):
        await runner.loops[1].tick()
    assert (await platform.service.get(SYSTEM, "m")).replicas == 1
