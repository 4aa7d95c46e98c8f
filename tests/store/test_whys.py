"""``why`` by what is in the database: who runs until when, what is waited for, and nothing is written."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from moorage.common.aio.clock import SystemClock
from moorage.common.model.errors import Forbidden, InvalidInput, MoorageError, NotFound
from moorage.common.model.group_options import QuotaLimits
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.common.views.pending import PendingExplanation, PlanView
from moorage.manager.identity.keys import Owner
from moorage.manager.store import Store, agent_cache

from .conftest import FakeAgent, schedule, settle


async def add(store: Store, name: str, gpus: int = 1, **more: object) -> None:
    base: dict[str, object] = {"command": ["x"], "resources": {"cuda.device": gpus}, "name": name}
    await store.create_session(SessionSpec.model_validate(base | more), actor="t")


async def runs(store: Store, agent: FakeAgent, name: str) -> None:
    await schedule(store)
    agent.see((await store.get_session(name)).kernels[-1].id, ObservedState.RUNNING)
    await agent.report()
    await settle(store)
    assert (await store.get_session(name)).status is Status.RUNNING


def unmet(view: PendingExplanation) -> dict[str, str]:
    return {one.kind: one.text for one in view.conditions if not one.met}


async def test_it_says_when_what_runs_makes_room(store: Store) -> None:
    agent = FakeAgent(store, "gpu-03", gpus=4)
    await agent.report()
    await add(store, "train-7", 2, timeout_s=1200, stop_grace_s=0)
    await runs(store, agent, "train-7")
    await add(store, "big", 4)
    await add(store, "next", 4)

    view = await store.why("big")
    ends = (await store.get_session("train-7")).deadline_at
    assert ends is not None
    at = f"{ends:%H:%M} UTC"
    assert view.refusals == [
        f"needs 4 cuda.device; best agent gpu-03 has 2 free, 4 after session train-7 ends at about {at}"
    ]
    assert (view.status, view.position, view.waiting) == (Status.PENDING, 1, 2)
    assert view.blockers == ["train-7"]
    assert view.expected_start is not None
    assert abs(view.expected_start - ends) < timedelta(milliseconds=1)
    behind = await store.why("next")
    assert (behind.position, behind.expected_start) == (2, None)
    assert behind.basis.startswith("unknown: 1 session ahead with no known end")

    # A question changes nothing: the same session is asked about by the next pass as if nobody had asked.
    assert (await store.get_session("big")).hold is None
    await schedule(store)
    assert (await store.get_session("big")).status is Status.PENDING


async def test_an_endless_session_makes_it_unknown(store: Store) -> None:
    agent = FakeAgent(store, gpus=2)
    await agent.report()
    await add(store, "model", 2)
    await runs(store, agent, "model")
    await add(store, "it")
    view = await store.why("it")
    assert view.expected_start is None
    assert view.basis == "unknown: 1 session where it could go, with no known end"


async def test_conditions_name_what_is_waited_for(store: Store) -> None:
    await FakeAgent(store).report()
    await add(store, "first")
    await add(store, "it", depends_on=["first"])
    assert unmet(await store.why("it")) == {"dependencies": "waits for first"}
    later = datetime.now(UTC) + timedelta(hours=3)
    await add(store, "later", starts_at=later)
    view = await store.why("later")
    assert unmet(view) == {"time": f"not before {later:%H:%M} UTC"}
    assert view.expected_start is not None
    assert abs(view.expected_start - later) < timedelta(seconds=1)


async def test_who_does_not_wait_is_told_what_it_is(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await add(store, "it")
    assert (await store.why("it")).basis == "there is room now"
    await runs(store, agent, "it")
    view = await store.why("it")
    assert view.text.startswith("it does not wait: it is RUNNING")
    assert view.since == (await store.get_session("it")).status_since
    assert view.conditions == []


async def test_an_unknown_name_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.why("nobody")


async def ask(store: Store, gpus: int = 1, **more: object) -> PlanView:
    spec = SessionSpec.model_validate({"command": ["x"], "resources": {"cuda.device": gpus}} | more)
    return await store.plan_session(spec, owner=Owner("ann"))


async def test_a_dry_run_says_agent_and_devices_and_makes_nothing(store: Store) -> None:
    agent = FakeAgent(store, "gpu-03", gpus=4)
    await agent.report()
    await add(store, "first", 2, timeout_s=1200)
    await runs(store, agent, "first")
    view = await ask(store, 2)
    (place,) = view.places
    taken = {d.device_id for k in (await store.get_session("first")).kernels for d in k.devices}
    chosen = {device.device_id for device in place.devices}
    assert (view.fits, place.agent_id, view.text) == (True, "gpu-03", "there is room on gpu-03")
    assert len(chosen) == 2
    assert not chosen & taken

    large = await ask(store, 4)
    assert (large.fits, large.places) == (False, [])
    assert large.refusals[0].startswith(
        "needs 4 cuda.device; best agent gpu-03 has 2 free, 4 after session first"
    )
    assert (await ask(store, 9)).refusals == ["1 agent: needs 9 cuda.device, has 4 even when empty"]

    page = await store.list_sessions(
        statuses=None, resource_group=None, type=None, name=None, endpoint=None, cursor=None, limit=50
    )
    assert [one.name for one in page.items] == ["first"]
    assert await schedule(store) == 0


async def test_a_dry_run_takes_nobodys_turn(store: Store) -> None:
    await FakeAgent(store, gpus=2).report()
    await add(store, "first", 2)
    view = await ask(store, 1)
    assert not view.fits  # the room that there is goes to the one that waits


async def test_a_dry_run_knows_quotas_dependencies_and_times(store: Store) -> None:
    await FakeAgent(store).report()
    await add(store, "first")
    await store.put_quota("user", "ann", QuotaLimits(slots={"cuda.device": 1}), actor="t")
    view = await ask(store, 2, depends_on=["first"])
    assert unmet(view) == {
        "dependencies": "waits for first",
        "quotas": "user ann: cuda.device: used 0 + requested 2 > limit 1 (over by 1)",
    }
    later = datetime.now(UTC) + timedelta(hours=2)
    view = await ask(store, 1, starts_at=later)
    assert (view.fits, list(unmet(view))) == (False, ["time"])


async def test_a_dry_run_refuses_a_group_that_is_not_there(store: Store) -> None:
    with pytest.raises(NotFound):
        await ask(store, resource_group="nowhere")


@pytest.mark.parametrize(
    ("needs", "error"),
    [
        ("nobody", NotFound),
        ("theirs", Forbidden),
        ({"session": "shell", "on": "success"}, InvalidInput),
        ({"session": "shell", "on": "any"}, None),
    ],
)
async def test_a_dry_run_and_a_create_refuse_the_same_dependencies(
    store: Store, needs: object, error: type[MoorageError] | None
) -> None:
    for name, owner in (("theirs", Owner("bob", "other")), ("shell", Owner("ann"))):
        spec = SessionSpec.model_validate({"name": name, "type": "interactive", "command": ["x"]})
        await store.create_session(spec, actor="t", owner=owner)
    spec = SessionSpec.model_validate({"command": ["x"], "depends_on": [needs]})
    said = []
    for asked in (
        store.plan_session(spec, owner=Owner("ann")),
        store.create_session(spec, actor="t", owner=Owner("ann")),
    ):
        try:
            await asked
            said.append((None, ""))
        except MoorageError as refused:
            said.append((type(refused), str(refused)))
    assert said[0] == said[1]
    assert said[0][0] is error


async def test_what_the_scheduler_keeps_is_used_with_what_has_changed_since(
    store: Store, empty_database: str
) -> None:
    agents = [FakeAgent(store, f"n{n}", gpus=2) for n in range(3)]
    for agent in agents:
        await agent.report()
    assert await store.glance("default") is None, "there was no pass"
    await add(store, "one", 2, timeout_s=60)
    await store.snapshot("default")
    assert await store.glance("default") is None, "none that knew what runs"
    await schedule(store)

    async def ends() -> None:
        kernel = (await store.get_session("one")).kernels[0]
        agent = next(agent for agent in agents if agent.name == kernel.agent_id)
        agent.see(kernel.id, ObservedState.EXITED, exit_code=0)
        await agent.report()

    async def shrinks() -> None:
        agents[0].gpus = 1
        await agents[0].report()

    await store.snapshot("default", who_runs=True)
    async with Store(empty_database, SystemClock()) as other:
        for change in (
            None,
            shrinks,
            lambda: FakeAgent(store, "late", gpus=4).report(),
            ends,
            lambda: store.mark_silent(0, 3600),
            lambda: store.forget_agent("n2", actor="key:admin"),
        ):
            if change is not None:
                await change()
            stale = set(store._rooms._stale)
            assert bool(stale) == (change is not None)
            seen = await store.glance("default")
            assert seen is not None
            assert store._rooms._stale == stale, "the next pass still reads them"
            other._rooms.changed(None)
            there = (await other.snapshot("default", who_runs=True)).agents
            assert sorted(seen, key=lambda a: a.agent_id) == sorted(there, key=lambda a: a.agent_id)
            await store.snapshot("default", who_runs=True)


async def test_what_was_kept_too_long_ago_is_not_used(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await FakeAgent(store).report()
    await store.snapshot("default", who_runs=True)
    assert await store.glance("default") is not None
    monkeypatch.setattr(agent_cache, "REREAD_S", -1.0)
    assert await store.glance("default") is None


async def test_it_names_the_devices_that_are_fenced(store: Store) -> None:
    agent = FakeAgent(store, "gpu-03", gpus=2)
    whole = agent.whole()
    unhealthy_reason = "XID 79 (see `dmesg` on its node)"
    offers = tuple(
        replace(
            offer, healthy=False, unhealthy_reason=unhealthy_reason if offer.device_id.endswith("-0") else ""
        )
        if offer.device_id
        else offer
        for offer in whole.info.offers
    )
    await store.observe(replace(whole, info=replace(whole.info, offers=offers)), None)
    (view,) = await store.list_agents()
    assert [offer.unhealthy_reason for offer in view.offers if offer.device_id] == [unhealthy_reason, ""]
    await add(store, "train")
    await schedule(store)
    named = [f"GPU-gpu-03-0 of gpu-03: {unhealthy_reason}", "GPU-gpu-03-1 of gpu-03: it errs"]
    assert (await store.why("train")).fenced == named
    spec = SessionSpec(command=["x"], resources={"cuda.device": 1})
    assert (await store.plan_session(spec, owner=Owner("ann"))).fenced == named
    without = SessionSpec(command=["x"], resources={"cpu": 99})
    assert (await store.plan_session(without, owner=Owner("ann"))).fenced == []
    # A healthy device has no reason.
    await agent.report()
    assert (await store.why("train")).fenced == []
    (view,) = await store.list_agents()
    assert all(offer.healthy and not offer.unhealthy_reason for offer in view.offers)
