"""Held slots: the sums that passes keep equal the sums over all sessions, and the leader's are
never too low."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import pytest

from moorage.common.aio.clock import ManualClock
from moorage.common.model.errors import StoreUnavailable
from moorage.common.model.group_options import GroupOptions, QuotaLimits
from moorage.common.model.paging import Paging
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.common.views.resources import SessionView
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.scheduling import Policy, Snapshot, plan
from moorage.manager.store import Store
from moorage.manager.store.database.connections import DedicatedConnection
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.scheduling import held_slots
from tests.examples import FACTOR

from .conftest import FakeAgent, open_store, reconcile_all, stop

pytestmark = pytest.mark.usefixtures("owners")

SYSTEM = Scope.system("t")
OWNERS = [Owner("ann", "vision"), Owner("bob", "vision"), Owner("bob", "speech")]
GROUPS = ["default", "other"]
SCOPES = [
    ("user", "ann"),
    ("user", "bob"),
    ("project", "vision"),
    ("project", "speech"),
    ("group", "default"),
]
FAIR = Policy(strategy="drf")
STEPS = 60
Sums = Mapping[tuple[str, str], Mapping[str, int]]


def sums_of(snapshot: Snapshot) -> tuple[Sums, Sums, Mapping[str, Any]]:
    """By quota, the usage counted against it and the part of that usage in other groups; and the
    usage by user, for drf."""
    used = {(q.scope, q.name): {**q.used, "sessions": q.running} for q in snapshot.quotas}
    away = {
        (q.scope, q.name): {**q.used_elsewhere, "sessions": q.running_elsewhere}
        for q in snapshot.quotas
    }
    return used, away, snapshot.usage or {}


async def kept(store: Store, group: str) -> tuple[Sums, Sums, Mapping[str, Any]]:
    return sums_of(await store.scheduling.snapshot(group, FAIR))


async def full(store: Store, group: str) -> tuple[Sums, Sums, Mapping[str, Any]]:
    return sums_of(await store.scheduling.peek(group, FAIR))


async def assert_equal(store: Store) -> None:
    """The sums once other managers' notifications have arrived. Wrong sums are corrected after some
    seconds, when everything is counted again, but that would be too late."""
    for group in GROUPS:
        async with asyncio.timeout(5):
            while await kept(store, group) != await full(store, group):
                await asyncio.sleep(0.01)


async def set_up(store: Store) -> list[FakeAgent]:
    await store.groups.put("other", GroupOptions(), actor="t")
    for scope, name in SCOPES:
        limits = QuotaLimits.model_validate(
            {"slots": {"cpu": 10_000, "cuda.device": 1_000}, "sessions": 9_999}
        )
        await store.quotas.put(SYSTEM, scope, name, limits)  # type: ignore[arg-type]

    agents = [FakeAgent(store, f"node-{n}", 4, group=group) for n, group in enumerate(GROUPS)]
    for agent in agents:
        await agent.report()

    return agents


async def create(store: Store, rng: random.Random) -> None:
    spec = {"cpu": rng.randint(0, 2), "cuda.device": rng.randint(0, 1)}
    resources = {slot: amount for slot, amount in spec.items() if amount} or {"mem": "1g"}
    made = SessionSpec.model_validate(
        {
            "command": ["x"],
            "resources": resources,
            "resource_group": rng.choice(GROUPS),
            "retries": 2,
        }
    )
    await store.sessions.create(Scope.system("t", rng.choice(OWNERS)), made)


class World:
    """Two managers that take turns leading. The agents' reports and their consequences arrive
    through either of them."""

    def __init__(
        self, managers: tuple[Store, Store], agents: list[FakeAgent], rng: random.Random
    ) -> None:
        self.managers = managers
        self.agents = agents
        self.rng = rng
        self.leader = managers[0]
        self.term = 0
        self.most = 0

    async def lead(self) -> None:
        self.leader = self.rng.choice(self.managers)
        await self.leader.database.fetch("UPDATE leases SET expires_at = now()")
        self.term = await self.leader.leases.acquire(self.rng.choice("ab"), 600) or 0

    async def place(self) -> None:
        for group in GROUPS:
            made = plan(await self.leader.scheduling.snapshot(group, FAIR), FAIR).places
            some = [place for place in made if self.rng.random() < 0.7]
            await self.leader.scheduling.place(some, self.term)

    async def placed(self) -> list[SessionView]:
        statuses = frozenset(
            {Status.SCHEDULED, Status.CREATING, Status.RUNNING, Status.TERMINATING}
        )
        return (await self.leader.sessions.page(SYSTEM, Paging(500), statuses=statuses)).items

    async def observe(self) -> None:
        """An agent reports a kernel change; another manager may act on it."""
        if not (views := await self.placed()):
            return

        kernel = self.rng.choice(views).kernels[-1]
        agent = next(one for one in self.agents if one.name == kernel.agent_id)
        seen: list[tuple[ObservedState, dict[str, object]]] = [
            (ObservedState.RUNNING, {}),
            (ObservedState.EXITED, {"exit_code": 0}),
            (ObservedState.EXITED, {"exit_code": 1, "reason": Reason.EXIT_NONZERO}),
            (ObservedState.EXITED, {"reason": Reason.PORT_TAKEN}),
        ]
        state, more = self.rng.choice(seen)
        agent.see(kernel.id, state, **more)
        await agent.report()
        await reconcile_all(self.rng.choice(self.managers))

    async def stop(self) -> None:
        if views := await self.placed():
            await stop(self.rng.choice(self.managers), self.rng.choice(views).id)

    async def assert_not_too_low(self) -> None:
        for group in GROUPS:
            (used, _, _), (needed, _, _) = (
                await kept(self.leader, group),
                await full(self.leader, group),
            )
            low = {
                (*scope, slot): (used[scope].get(slot, 0), amount)
                for scope, slots in needed.items()
                for slot, amount in slots.items()
                if used[scope].get(slot, 0) < amount
            }
            self.most = max(self.most, needed["user", "bob"]["sessions"])
            assert not low, f"too low in {group}: {low}"


@pytest.mark.parametrize("seed", range(3 * FACTOR))
async def test_sums_equal_those_of_all_sessions(
    migrated_database: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums are correct through notifications alone, without a sweep."""
    monkeypatch.setattr(held_slots, "SWEEP_S", 1e6)
    monkeypatch.setattr(held_slots, "SWEPT", 3)
    rng = random.Random(seed)
    async with open_store(migrated_database) as one, open_store(migrated_database) as other:
        world = World((one, other), await set_up(one), rng)
        await world.lead()
        steps = [world.place, world.observe, world.observe, world.stop, lambda: create(one, rng)]
        for _ in range(STEPS):
            await rng.choices([*steps, world.lead], weights=[4, 4, 4, 1, 6, 1])[0]()
            await world.assert_not_too_low()

        await assert_equal(world.leader)
        assert world.most > 1, "nothing was placed"


async def placed_one(store: Store) -> int:
    """Place one session once the sums are known. Returns the term."""
    await set_up(store)
    await store.sessions.create(
        Scope.system("t", OWNERS[0]), SessionSpec(command=["x"], resources={"cpu": 1})
    )
    term = await store.leases.acquire("test", 600) or 0
    made = plan(await store.scheduling.snapshot("default", FAIR), FAIR)
    assert await store.scheduling.place(made.places, term) == 1
    await assert_equal(store)

    return term


async def test_unannounced_ends_are_found_by_the_sweep(
    migrated_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_slots, "SWEPT", 1)
    clock = ManualClock()
    async with open_store(migrated_database, clock) as store:
        await placed_one(store)
        for _ in range(3):
            await create(store, random.Random(1))

        await store.database.fetch(
            "UPDATE sessions SET status = 'ERROR' WHERE status = 'SCHEDULED'"
        )
        assert await kept(store, "default") != await full(store, "default"), "the sums are not kept"
        for _ in range(6):
            clock.advance(held_slots.SWEEP_S)
            await kept(store, "default")

        assert await kept(store, "default") == await full(store, "default")


async def test_placement_whose_outcome_is_unknown_counts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks before the answer, and the statement takes effect later."""
    monkeypatch.setattr(held_slots, "SWEEP_S", 1e6)
    term = await placed_one(store)
    await store.sessions.create(
        Scope.system("t", OWNERS[1]), SessionSpec(command=["x"], resources={"cpu": 2})
    )
    made = plan(await store.scheduling.snapshot("default", FAIR), FAIR)
    fetch = DedicatedConnection.fetch
    late = list[tuple[Any, ...]]()

    async def breaking(self: DedicatedConnection, sql: str, *args: Any) -> list[Any]:
        if sql == SQL["session_place"]:
            late.append((self, sql, *args))
            raise StoreUnavailable
        return await fetch(self, sql, *args)

    with monkeypatch.context() as patched:
        patched.setattr(DedicatedConnection, "fetch", breaking)
        await store.scheduling.place(made.places, term)

    await assert_equal(store)
    assert len(await fetch(*late[0])) == 1
    assert await kept(store, "default") == await full(store, "default")
    assert (await kept(store, "default"))[2]["bob"] == {"cpu": 2000}
