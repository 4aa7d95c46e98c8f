"""Endpoints in Postgres: revisions, versions and idempotency keys, and rollouts by the replica
controller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from moorage.common.aio.clock import ManualClock
from moorage.common.model.errors import Conflict, InvalidInput, NotFound, PreconditionFailed
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import ObservedState, Status
from moorage.common.views.endpoints import EndpointPatch, EndpointView
from moorage.manager.endpoint_service import EndpointService
from moorage.manager.identity.keys import IdempotencyKey, Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import Leader, ReplicaController
from moorage.manager.store import Store
from moorage.manager.termination import SessionTerminator

from .conftest import FAILED, LOST_GRACE_S, RUNNING, FakeAgent, open_store, reconcile_all, schedule

SYSTEM = Scope.system("t", Owner("ann", "vision"))
KEY = IdempotencyKey("api-key-1", "once-1")


def spec(**more: object) -> EndpointSpec:
    base = {"name": "m", "engine": "vllm", "model": "one", "replicas": 2, "resources": {"cpu": 1}}
    return EndpointSpec.model_validate(base | more)


def patch(**fields: object) -> EndpointPatch:
    return EndpointPatch.model_validate(fields)


async def allowed(_: EndpointSpec, before: EndpointSpec, new_work: bool) -> None:
    """Any caller may run it."""


class Platform:
    """The endpoint service, a leader with its replica controller, and an agent. Time passes only in
    ``after``."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = ManualClock()
        self.service = EndpointService(store.endpoints, store.loads, self.clock)
        self.agent = FakeAgent(store, gpus=0)
        self.leader = Leader(store, self.clock)
        terminator = SessionTerminator(store, LOST_GRACE_S)
        self.controller = ReplicaController(store, self.leader, terminator, self.clock)

    async def create(self, **more: object) -> EndpointView:
        return (await self.service.create(SYSTEM, spec(**more)))[0]

    async def update(self, changes: dict[str, object], **options: Any) -> EndpointView:
        return (await self.service.update(SYSTEM, "m", patch(**changes), check=allowed, **options))[
            0
        ]

    async def run(self, *, broken: frozenset[str] = frozenset()) -> EndpointView:
        """Run the controller. Replicas that it starts are placed and become ready or, if their
        model is in ``broken``, fail; replicas that it stops end."""
        self.clock.advance(1.1)  # to wait for the sweep
        await self.store.database.fetch("DELETE FROM leases")
        await self.leader.run_once()
        await self.leader.deadlines.run_once()
        await self.controller.run_once()
        await schedule_free(self.store)

        for row in await self.store.database.fetch(
            "SELECT k.id, k.status, s.spec ->> 'model' AS model "
            "FROM kernels k JOIN sessions s ON s.id = k.session_id "
            "WHERE k.status NOT IN ('PENDING', 'TERMINATED', 'CANCELLED', 'ERROR')"
        ):
            if row["status"] == "TERMINATING":
                self.agent.see(row["id"], ObservedState.GONE, reason=Reason.USER_REQUESTED)
            elif row["model"] in broken:
                self.agent.see(row["id"], ObservedState.EXITED, **FAILED)
            else:
                self.agent.see(row["id"], ObservedState.RUNNING, **RUNNING)

        await self.agent.report()
        await reconcile_all(self.store)
        return await self.service.get(SYSTEM, "m")

    async def until(
        self, condition: Callable[[EndpointView], bool], *, broken: frozenset[str] = frozenset()
    ) -> list[EndpointView]:
        """Returns every view until the condition is true. Backoffs and drains pass at once."""
        views = []
        for _ in range(40):
            views.append(await self.run(broken=broken))
            if condition(views[-1]):
                return views

            await self.store.database.fetch(
                "UPDATE sessions SET draining_since = draining_since - interval '5 s', "
                "status_since = status_since - interval '300 s'"
            )

        raise AssertionError(f"it never happened: {views[-1].rollout} {views[-1].sessions}")


async def schedule_free(store: Store) -> None:
    """Like ``schedule``, but between two terms of the leader under test."""
    await store.database.fetch("DELETE FROM leases")
    await schedule(store)
    await store.database.fetch("DELETE FROM leases")


@pytest.fixture
async def platform(store: Store) -> Platform:
    made = Platform(store)
    await made.agent.report()
    return made


def complete(view: EndpointView) -> bool:
    return view.rollout is not None and view.rollout.state == "complete"


def over(view: EndpointView) -> bool:
    return view.rollout is not None and view.rollout.state != "progressing"


async def test_rolling_update_keeps_the_wanted_number_ready(platform: Platform) -> None:
    await platform.create()
    await platform.until(complete)
    changed = await platform.update({"model": "two"})
    assert (changed.revision, changed.rollout and changed.rollout.state) == (2, "progressing")
    views = await platform.until(complete)
    assert min(view.ready for view in views) >= 2
    live = [[r for r in view.sessions if r.state] for view in views]
    assert max(map(len, live)) == 3, "one more than wanted"
    assert {r.revision for r in live[-1]} == {2}
    ended = [r for r in views[-1].sessions if r.status is Status.TERMINATED]
    assert {r.reason for r in ended} == {Reason.REVISION_REPLACED}
    found = (await platform.service.revisions(SYSTEM, "m")).items
    assert [(r.revision, r.current, r.state, r.spec["model"]) for r in found] == [
        (2, True, "complete", "two"),
        (1, False, "complete", "one"),
    ]


async def test_bad_revision_rolls_itself_back(platform: Platform) -> None:
    await platform.create()
    await platform.until(complete)
    await platform.update({"model": "bad", "max_attempts": 1})
    broken = frozenset({"bad"})
    views = await platform.until(
        lambda view: view.rollout is not None and view.rollout.state == "failed", broken=broken
    )
    view = views[-1]
    assert view.rollout is not None
    assert (view.revision, view.rollout.newest, view.rollout.reason) == (1, 2, Reason.EXIT_NONZERO)
    assert "3 replicas failed in a row" in view.rollout.detail
    assert view.spec is not None
    assert view.spec.model == "one"
    assert min(view.ready for view in views) >= 2, "the old replicas went on serving"
    await platform.update({"model": "good"})
    assert (await platform.until(complete, broken=broken))[-1].revision == 3


async def test_undo_returns_to_an_earlier_revision(platform: Platform) -> None:
    await platform.create(max_lifetime_s=3600)
    with pytest.raises(Conflict, match="no earlier revision"):
        await platform.service.undo(SYSTEM, "m", None)

    await platform.until(complete)
    await platform.update({"model": "two", "max_lifetime_s": None})
    await platform.until(complete)
    undone = await platform.service.undo(SYSTEM, "m", None)
    assert undone.spec is not None
    assert (undone.revision, undone.spec.model, undone.spec.max_lifetime_s) == (1, "one", 3600)
    assert (await platform.until(complete))[-1].revision == 1
    with pytest.raises(NotFound, match="no revision 3"):
        await platform.service.undo(SYSTEM, "m", 3)
    with pytest.raises(Conflict, match="already has revision 1"):
        await platform.service.undo(SYSTEM, "m", 1)


async def test_undo_returns_to_what_was_served_before(platform: Platform) -> None:
    """An undo never returns to a revision that has since been undone or rolled back."""
    bad = frozenset({"bad", "worse"})

    async def roll_out(**changes: object) -> EndpointView:
        await platform.update(changes)
        return (await platform.until(over, broken=bad))[-1]

    async def undo(to: int | None = None) -> EndpointView:
        await platform.service.undo(SYSTEM, "m", to)
        return (await platform.until(over, broken=bad))[-1]

    await platform.create(max_attempts=1)
    await platform.until(complete)
    await roll_out(model="two")
    await platform.update({"model": "bad"})
    assert (await undo()).revision == 2, "3 was under way"
    await roll_out(model="four", rollout={"canary": 50})
    await platform.service.promote(SYSTEM, "m")
    await platform.until(complete)
    assert (await undo()).revision == 2
    failed = await roll_out(model="worse", rollout={"canary": 0})
    assert failed.rollout is not None
    assert (failed.revision, failed.rollout.state, failed.rollout.rolled_back) == (2, "failed", 5)
    undone = await undo()
    assert undone.rollout is not None
    assert (undone.revision, undone.rollout.state, undone.rollout.reason) == (
        1,
        "complete",
        Reason.NONE,
    )
    with pytest.raises(Conflict, match="no earlier revision"):
        await platform.service.undo(SYSTEM, "m", None)

    assert (await undo(4)).revision == 4
    assert (await undo()).revision == 1, "which was served before"
    again = await undo(5)
    assert again.rollout is not None
    assert (again.revision, again.rollout.state, again.rollout.rolled_back) == (1, "failed", 5)
    assert (await roll_out(model="six")).revision == 6
    failed = await undo(3)
    assert failed.rollout is not None
    assert (failed.revision, failed.rollout.state, failed.rollout.rolled_back) == (6, "failed", 3)
    for model in ("seven", "eight"):
        await platform.update({"model": model})

    assert (await undo()).revision == 6, "neither 7 nor 8 was complete"
    assert (await undo()).revision == 1


async def test_what_replicas_do_not_see_makes_no_revision(platform: Platform) -> None:
    await platform.create()
    view = await platform.update(
        {"replicas": 3, "autoscale": {"min": 1, "max": 4}, "shared_with": ["*"]}
    )
    assert (view.revision, view.version, view.replicas, view.shared_with) == (1, 2, 3, ["*"])
    view = await platform.update({"autoscale": {"max": 2, "waiting": 3}})
    assert view.spec is not None
    assert view.spec.autoscale is not None
    assert (view.spec.autoscale.min, view.spec.autoscale.max, view.replicas) == (1, 2, 2), (
        "merged, clamped"
    )
    with pytest.raises(InvalidInput, match="from 1 to 2"):
        await platform.service.scale(SYSTEM, "m", 3)

    view = await platform.update({"autoscale": None})
    assert view.spec is not None
    assert view.spec.autoscale is None


async def test_update_of_a_changed_endpoint_is_refused(platform: Platform) -> None:
    created = await platform.create()
    changed = await platform.update({"model": "two"}, if_match=frozenset({created.version}))
    with pytest.raises(PreconditionFailed, match='its ETag is now "2"'):
        await platform.update({"model": "three"}, if_match=frozenset({created.version}))
    again = await platform.service.get(SYSTEM, "m")
    assert (again.version, again.revision) == (changed.version, 2)


async def test_concurrent_updates_are_all_applied(
    platform: Platform, migrated_database: str
) -> None:
    await platform.create()
    async with open_store(migrated_database) as other:
        services = (platform.service, EndpointService(other.endpoints, other.loads, platform.clock))
        await asyncio.gather(
            *(
                services[n % 2].update(SYSTEM, "m", patch(env={f"V{n}": "x"}), check=allowed)
                for n in range(8)
            )
        )

    view = await platform.service.get(SYSTEM, "m")
    assert view.spec is not None
    assert set(view.spec.env) == {f"V{n}" for n in range(8)}
    assert (view.revision, view.version) == (9, 9)


async def test_repeated_requests_change_nothing(platform: Platform) -> None:
    first, repeated = await platform.service.create(SYSTEM, spec(), idempotency_key=KEY)
    again = await platform.service.create(SYSTEM, spec(), idempotency_key=KEY)
    assert (repeated, again) == (False, (first, True))
    with pytest.raises(Conflict, match="once-1"):
        await platform.service.create(SYSTEM, spec(model="two"), idempotency_key=KEY)

    once = {"idempotency_key": IdempotencyKey("api-key-1", "once-2"), "if_match": frozenset({1})}
    for _ in range(2):
        assert (await platform.update({"model": "two"}, **once)).version == 2

    with pytest.raises(Conflict, match="once-2"):
        await platform.update({"model": "three"}, **once)


async def test_concurrent_creates_under_one_key(store: Store, migrated_database: str) -> None:
    async with open_store(migrated_database) as other:
        made = await asyncio.gather(
            *(
                s.endpoints.create_once(SYSTEM, spec(), (), {}, idempotency_key=KEY)
                for s in [store, other] * 10
            )
        )
    assert len({record.snapshot.endpoint_id for record, _ in made}) == 1
    assert sum(not repeated for _, repeated in made) == 1


async def test_scale_down_drains(platform: Platform) -> None:
    await platform.create()
    await platform.until(complete)
    await platform.service.scale(SYSTEM, "m", 1)
    view = await platform.run()
    assert sorted(r.state for r in view.sessions if r.state) == ["draining", "ready"]
    draining = next(r for r in view.sessions if r.state == "draining")
    assert draining.reason is Reason.SCALED_DOWN
    [route] = (await platform.store.routes.table()).models
    assert {t.session_id: t.draining for t in route.targets}[draining.session_id]  # type: ignore[index]
    await platform.service.scale(SYSTEM, "m", 2)
    view = await platform.run()
    assert sorted(r.state for r in view.sessions if r.state) == ["ready", "ready"], (
        "it serves again"
    )
    await platform.service.scale(SYSTEM, "m", 1)
    view = (await platform.until(lambda view: len([r for r in view.sessions if r.state]) == 1))[-1]
    assert {r.reason for r in view.sessions if r.status is Status.TERMINATED} == {
        Reason.SCALED_DOWN
    }


async def test_former_leader_changes_nothing(platform: Platform) -> None:
    await platform.create()
    await platform.until(complete)
    [endpoint] = await platform.store.replicas.to_reconcile(
        SYSTEM, [(await platform.store.endpoints.get(SYSTEM, "m")).snapshot.endpoint_id]
    )
    replica = endpoint.replicas[0].session_id
    await platform.store.database.fetch("DELETE FROM leases")
    term = await platform.store.leases.acquire("other", 60)
    assert term is not None
    await platform.store.replicas.drain(SYSTEM, [(replica, Reason.SCALED_DOWN)], term - 1)
    await platform.update({"model": "two"})
    [endpoint] = await platform.store.replicas.to_reconcile(SYSTEM, [endpoint.endpoint_id])
    assert all(r.draining_since is None for r in endpoint.replicas)
    assert not await platform.store.replicas.roll_back(
        SYSTEM, endpoint, 1, Reason.KILLED, detail="", term=term - 1
    )
    await platform.store.replicas.complete(SYSTEM, endpoint, term - 1)
    assert [r.state for r in (await platform.service.revisions(SYSTEM, "m")).items] == [
        "",
        "complete",
    ]


async def test_postgres_keeps_revisions(store: Store) -> None:
    await store.endpoints.create(SYSTEM, spec())
    writes: list[Awaitable[Any]] = [
        store.database.fetch("UPDATE endpoint_revisions SET spec = '{}'"),
        store.database.fetch("UPDATE endpoints SET target_revision = 2"),
    ]
    for write in writes:
        with pytest.raises(asyncpg.IntegrityConstraintViolationError):
            await write
