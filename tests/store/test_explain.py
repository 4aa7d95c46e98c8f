"""Explanations and dry runs from the stored state: expected starts, unmet conditions, and no
writes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from moorage.common.model.errors import Forbidden, InvalidInput, MoorageError, NotFound
from moorage.common.model.group_options import QuotaLimits
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.common.views.pending import PendingExplanation, PlanView
from moorage.manager.explain.service import ExplanationService
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle.kernels import AgentUpdate
from moorage.manager.store import Store
from moorage.manager.store.scheduling import agent_cache
from moorage.manager.store.scheduling.agent_cache import AgentCache
from tests.clocks import StoreClock

from .conftest import FakeAgent, mark_silent, reconcile_all, schedule

pytestmark = pytest.mark.usefixtures("owners")

SYSTEM = Scope.system()
ANN = Scope.system("ann")


async def add(store: Store, name: str, gpus: int = 1, **more: object) -> None:
    base: dict[str, object] = {"command": ["x"], "resources": {"cuda.device": gpus}, "name": name}
    await store.sessions.create(Scope.system("t"), SessionSpec.model_validate(base | more))


def explain(store: Store) -> ExplanationService:
    return ExplanationService(store, StoreClock())


async def runs(store: Store, agent: FakeAgent, name: str) -> None:
    await schedule(store)
    agent.see((await store.sessions.get(SYSTEM, name)).kernels[-1].id, ObservedState.RUNNING)
    await agent.report()
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, name)).status is Status.RUNNING


def unmet(view: PendingExplanation) -> dict[str, str]:
    return {one.kind: one.text for one in view.conditions if not one.met}


async def test_explanation_gives_the_earliest_fit(store: Store) -> None:
    agent = FakeAgent(store, "gpu-03", gpus=4)
    await agent.report()
    await add(store, "train-7", 2, timeout_s=1200, stop_grace_s=0)
    await runs(store, agent, "train-7")
    await add(store, "big", 4)
    await add(store, "next", 4)

    view = await explain(store).why(SYSTEM, "big")
    ends = (await store.sessions.get(SYSTEM, "train-7")).deadline_at
    assert ends is not None
    at = f"{ends:%H:%M} UTC"
    assert view.refusals == [
        f"needs 4 cuda.device; best agent gpu-03 has 2 free, 4 after session train-7 ends at about {at}"
    ]
    assert (view.status, view.position, view.waiting) == (Status.PENDING, 1, 2)
    assert view.blockers == ["train-7"]
    assert view.expected_start is not None
    assert abs(view.expected_start - ends) < timedelta(milliseconds=1)
    behind = await explain(store).why(SYSTEM, "next")
    assert (behind.position, behind.expected_start) == (2, None)
    assert behind.basis.startswith("unknown: 1 session ahead of it without a time limit")

    # A question changes nothing: the next pass examines the same session as if it had not been
    # asked.
    assert (await store.sessions.get(SYSTEM, "big")).hold is None
    await schedule(store)
    assert (await store.sessions.get(SYSTEM, "big")).status is Status.PENDING


async def test_session_without_limit_makes_the_start_unknown(store: Store) -> None:
    agent = FakeAgent(store, gpus=2)
    await agent.report()
    await add(store, "model", 2)
    await runs(store, agent, "model")
    await add(store, "it")
    view = await explain(store).why(SYSTEM, "it")
    assert view.expected_start is None
    assert view.basis == "unknown: 1 session without a time limit on the agents where it fits"


async def test_unmet_conditions_are_named(store: Store) -> None:
    await FakeAgent(store).report()
    await add(store, "first")
    await add(store, "it", depends_on=["first"])
    assert unmet(await explain(store).why(SYSTEM, "it")) == {"dependencies": "waits for first"}
    later = datetime.now(UTC) + timedelta(hours=3)
    await add(store, "later", starts_at=later)
    view = await explain(store).why(SYSTEM, "later")
    assert unmet(view) == {"time": f"not before {later:%H:%M} UTC"}
    assert view.expected_start is not None
    assert abs(view.expected_start - later) < timedelta(seconds=1)


async def test_explanation_of_a_session_that_is_not_pending(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await add(store, "it")
    assert (await explain(store).why(SYSTEM, "it")).basis == "there is capacity now"
    await runs(store, agent, "it")
    view = await explain(store).why(SYSTEM, "it")
    assert view.text.startswith("it is not pending: it is RUNNING")
    assert view.since == (await store.sessions.get(SYSTEM, "it")).status_since
    assert view.conditions == []


async def test_unknown_session_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        await explain(store).why(SYSTEM, "nobody")


async def ask(store: Store, gpus: int = 1, **more: object) -> PlanView:
    spec = SessionSpec.model_validate({"command": ["x"], "resources": {"cuda.device": gpus}} | more)
    return await explain(store).plan_session(ANN, spec)


async def test_dry_run_returns_agent_and_devices_and_creates_nothing(store: Store) -> None:
    agent = FakeAgent(store, "gpu-03", gpus=4)
    await agent.report()
    await add(store, "first", 2, timeout_s=1200)
    await runs(store, agent, "first")
    view = await ask(store, 2)
    (place,) = view.places
    taken = {
        d.device_id for k in (await store.sessions.get(SYSTEM, "first")).kernels for d in k.devices
    }
    chosen = {device.device_id for device in place.devices}
    assert (view.fits, place.agent_id, view.text) == (True, "gpu-03", "there is capacity on gpu-03")
    assert len(chosen) == 2
    assert not chosen & taken

    large = await ask(store, 4)
    assert (large.fits, large.places) == (False, [])
    assert large.refusals[0].startswith(
        "needs 4 cuda.device; best agent gpu-03 has 2 free, 4 after session first"
    )
    assert (await ask(store, 9)).refusals == ["1 agent: needs 9 cuda.device, has 4 even when empty"]

    page = await store.sessions.page(SYSTEM)
    assert [one.name for one in page.items] == ["first"]
    assert await schedule(store) == 0


async def test_dry_run_respects_the_queue(store: Store) -> None:
    await FakeAgent(store, gpus=2).report()
    await add(store, "first", 2)
    view = await ask(store, 1)
    assert not view.fits  # the available capacity goes to the waiting session


async def test_dry_run_checks_quotas_dependencies_and_begin_times(store: Store) -> None:
    await FakeAgent(store).report()
    await add(store, "first")
    await store.quotas.put(Scope.system("t"), "user", "ann", QuotaLimits(slots={"cuda.device": 1}))
    view = await ask(store, 2, depends_on=["first"])
    assert unmet(view) == {
        "dependencies": "waits for first",
        "quotas": "user ann: cuda.device: used 0 + requested 2 > limit 1 (over by 1)"
        "; it never starts under this limit",
    }
    later = datetime.now(UTC) + timedelta(hours=2)
    view = await ask(store, 1, starts_at=later)
    assert (view.fits, list(unmet(view))) == (False, ["time"])


async def test_dry_run_rejects_an_unknown_group(store: Store) -> None:
    with pytest.raises(NotFound):
        await ask(store, resource_group="nowhere")


@pytest.mark.parametrize(
    ("needs", "error"),
    [
        ("nobody", NotFound),
        ("theirs", NotFound),  # names belong to the caller's own project
        ("id of theirs", Forbidden),
        ({"session": "shell", "on": "success"}, InvalidInput),
        ({"session": "shell", "on": "any"}, None),
    ],
)
async def test_dry_run_and_create_reject_the_same_dependencies(
    store: Store, needs: object, error: type[MoorageError] | None
) -> None:
    for name, owner in (("theirs", Owner("bob", "other")), ("shell", Owner("ann"))):
        spec = SessionSpec.model_validate({"name": name, "type": "interactive", "command": ["x"]})
        made = await store.sessions.create(Scope.system("t", owner), spec)
        if needs == f"id of {name}":
            needs = made.id

    spec = SessionSpec.model_validate({"command": ["x"], "depends_on": [needs]})
    said = []
    for asked in (
        explain(store).plan_session(ANN, spec),
        store.sessions.create(Scope.system("t", Owner("ann")), spec),
    ):
        try:
            await asked
            said.append((None, ""))
        except MoorageError as refused:
            said.append((type(refused), str(refused)))

    assert said[0] == said[1]
    assert said[0][0] is error


async def test_questions_use_the_agent_cache_with_later_changes(
    store: Store, migrated_database: str
) -> None:
    agents = [FakeAgent(store, f"n{n}", gpus=2) for n in range(3)]
    for agent in agents:
        await agent.report()

    cache = AgentCache(store.database, store.notifier, StoreClock(), store.unreadable)
    assert await cache.peek("default") is None, "there was no pass"
    await cache.of("default")
    assert await cache.peek("default") is None, "no pass has read running kernels"
    await add(store, "one", 2, timeout_s=60)
    await schedule(store)
    known = {agent.agent_id: agent for agent in (await cache.of("default", with_running=True))[0]}

    async def kernel_ends() -> None:
        kernel = (await store.sessions.get(SYSTEM, "one")).kernels[0]
        agent = next(agent for agent in agents if agent.name == kernel.agent_id)
        agent.see(kernel.id, ObservedState.EXITED, exit_code=0)
        await agent.report()

    async def agent_shrinks() -> None:
        agents[0].gpus = 1
        await agents[0].report()

    for change in (
        agent_shrinks,
        lambda: FakeAgent(store, "late", gpus=4).report(),
        kernel_ends,
        lambda: mark_silent(store, lost=False),
        lambda: store.agents.forget("n2", actor="key:admin"),
    ):
        await change()
        peeked = await cache.peek("default")
        assert peeked is not None
        uncached = AgentCache(store.database, store.notifier, StoreClock(), store.unreadable)
        expected = sorted(
            (await uncached.of("default", with_running=True))[0], key=lambda a: a.agent_id
        )
        assert sorted(peeked, key=lambda a: a.agent_id) == expected
        after, changes = await cache.of("default", with_running=True)
        known |= {agent.agent_id: agent for agent in changes.changed}
        known = {agent_id: known[agent_id] for agent_id in known.keys() - set(changes.gone)}
        assert known == {agent.agent_id: agent for agent in after}, (
            "the changes tell all that changed"
        )
        assert sorted(after, key=lambda a: a.agent_id) == expected, (
            "peeking left the stale agents stale"
        )


async def test_questions_do_not_use_an_old_agent_cache(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await FakeAgent(store).report()
    cache = AgentCache(store.database, store.notifier, StoreClock(), store.unreadable)
    await cache.of("default", with_running=True)
    assert await cache.peek("default") is not None
    monkeypatch.setattr(agent_cache, "REREAD_S", -1.0)
    assert await cache.peek("default") is None


async def test_explanation_names_fenced_devices(store: Store) -> None:
    agent = FakeAgent(store, "gpu-03", gpus=2)
    report = agent.full_report()
    unhealthy_reason = "XID 79 (see `dmesg` on its node)"
    offers = tuple(
        replace(
            offer,
            healthy=False,
            unhealthy_reason=unhealthy_reason if offer.device_id.endswith("-0") else "",
        )
        if offer.device_id
        else offer
        for offer in report.info.offers
    )
    await store.reports.apply(
        AgentUpdate.of(replace(report, info=replace(report.info, offers=offers)))
    )
    (view,) = (await store.agents.page()).items
    assert [offer.unhealthy_reason for offer in view.offers if offer.device_id] == [
        unhealthy_reason,
        "",
    ]
    await add(store, "train")
    await schedule(store)
    named = [
        f"GPU-gpu-03-0 of gpu-03: {unhealthy_reason}",
        "GPU-gpu-03-1 of gpu-03: it reports errors",
    ]
    assert (await explain(store).why(SYSTEM, "train")).fenced == named
    spec = SessionSpec(command=["x"], resources={"cuda.device": 1})
    assert (await explain(store).plan_session(ANN, spec)).fenced == named
    without = SessionSpec(command=["x"], resources={"cpu": 99})
    assert (await explain(store).plan_session(ANN, without)).fenced == []

    # A healthy device has no reason.
    await agent.report()
    assert (await explain(store).why(SYSTEM, "train")).fenced == []
    (view,) = (await store.agents.page()).items
    assert all(offer.healthy and not offer.unhealthy_reason for offer in view.offers)
