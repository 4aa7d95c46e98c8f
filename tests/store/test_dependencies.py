"""Session eligibility: dependencies, begin times, and constraints on agents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product

import asyncpg
import pytest

from moorage.common.model.errors import Conflict, Forbidden, InvalidInput, MoorageError, NotFound
from moorage.common.model.group_options import GroupOptions
from moorage.common.model.ids import KernelId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import TERMINAL, ObservedState, Result, Status
from moorage.manager.identity.keys import IdempotencyKey, Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store

from .conftest import FAILED, FakeAgent, reconcile_all, schedule, stop

SYSTEM = Scope.system()

DONE = {"exit_code": 0, "reason": Reason.EXIT_ZERO}


async def add(store: Store, name: str, **more: object) -> str:
    spec = SessionSpec.model_validate(
        {"command": ["x"], "resources": {"cpu": 1}, "name": name} | more
    )
    return (await store.sessions.create(Scope.system("ann"), spec)).id


async def statuses(store: Store, *names: str) -> list[Status]:
    return [(await store.sessions.get(SYSTEM, name)).status for name in names]


async def end(store: Store, agent: FakeAgent, name: str, **how: object) -> None:
    """Run the session and end it with this observation."""
    assert await schedule(store) == 1
    kernel = (await store.sessions.get(SYSTEM, name)).kernels[-1].id
    agent.see(kernel, ObservedState.EXITED, **how)
    await agent.report()
    await reconcile_all(store)


async def test_chain_of_dependencies_starts_in_order(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await add(store, "a")
    await add(store, "b", depends_on=["a"])
    await add(store, "c", depends_on=[{"session": "b"}, {"session": "a", "on": "any"}])
    await end(store, agent, "a", **DONE)
    assert await statuses(store, "a", "b", "c") == [
        Status.TERMINATED,
        Status.PENDING,
        Status.PENDING,
    ]
    await end(store, agent, "b", **DONE)
    await end(store, agent, "c", **DONE)
    assert await store.integrity.check() == []


async def test_hold_names_the_dependency(store: Store) -> None:
    await add(store, "a")
    await add(store, "b", depends_on=["a"])
    await schedule(store)
    hold = (await store.sessions.get(SYSTEM, "b")).hold
    assert hold is not None
    assert (hold.reason, hold.attempts) == (Reason.DEPENDENCY, 0)
    assert hold.refusals == ["waits for a (PENDING)"]


async def test_failed_dependency_ends_its_dependents(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await add(store, "a")
    await add(store, "b", depends_on=["a"])
    await add(store, "c", depends_on=["b"])
    await add(store, "patient", depends_on=["a"], dependency_failed="wait")
    await add(store, "cleanup", depends_on=[{"session": "a", "on": "failure"}])
    await add(store, "after-all", depends_on=[{"session": "c", "on": "any"}])
    await end(store, agent, "a", **FAILED)
    view = await store.sessions.get(SYSTEM, "b")
    assert (view.status, view.reason, view.result) == (
        Status.CANCELLED,
        Reason.DEPENDENCY_FAILED,
        Result.UNDEFINED,
    )
    for part in ("a ended", "TERMINATED FAILED exit-nonzero", "needed was success"):
        assert part in view.detail

    assert (await store.sessions.get(SYSTEM, "c")).reason is Reason.DEPENDENCY_FAILED
    assert [h.event for h in (await store.sessions.history(SYSTEM, "c")).items] == [
        "created",
        "dependency-failed",
    ]
    assert await schedule(store) == 2, "cleanup and after-all"
    hold = (await store.sessions.get(SYSTEM, "patient")).hold
    assert hold is not None
    assert hold.reason is Reason.DEPENDENCY_FAILED
    assert await store.integrity.check() == []


async def test_end_returns_its_dependents(store: Store) -> None:
    first = await add(store, "a")
    waiting = await add(store, "b", depends_on=["a"])
    heard: list[str] = []
    store.notifier.on_kernels(lambda sessions: heard.extend(sessions or ()))
    await stop(store, "a", actor="ann")
    assert heard == [waiting]
    facts, _ = await store.lifecycle.unsettled([waiting])  # type: ignore[list-item]
    assert f"{first} ended CANCELLED" in facts[0].failed_dependencies


async def test_dependency_state_by_condition_and_end(store: Store) -> None:
    for condition, status, result in product(("success", "any", "failure"), Status, Result):
        asked = condition, str(status), str(result)
        (row,) = await store.database.fetch("SELECT dependency_state($1, $2, $3) AS state", *asked)
        wanted = {
            "success": result is Result.SUCCESS,
            "any": True,
            "failure": result is Result.FAILED or status is Status.ERROR,
        }[condition]
        assert row["state"] == (
            "unmet" if status not in TERMINAL else "met" if wanted else "failed"
        ), asked


async def test_dependency_name_is_not_shadowed_by_another_project(store: Store) -> None:
    """Even if the other one is live and its own has ended."""
    agent = FakeAgent(store)
    await agent.report()
    own = await add(store, "prep")
    await end(store, agent, "prep", **DONE)
    spec = SessionSpec.model_validate({"command": ["x"], "resources": {"cpu": 1}, "name": "prep"})
    await store.sessions.create(Scope.system("bob", Owner("bob", "other")), spec)
    await add(store, "train", depends_on=["prep"])
    (row,) = await store.database.fetch("SELECT depends_on FROM session_dependencies")
    assert str(row["depends_on"]) == own
    after = SessionSpec.model_validate({"command": ["x"], "depends_on": ["prep"]})
    states = await store.sessions.dependency_states(Scope.system("ann"), after)
    assert states == {"failed": [], "unmet": [], "met": [own]}


WRONG: list[tuple[dict[str, object], type[MoorageError], tuple[str, ...]]] = [
    (
        {"depends_on": ["mine", "nothing"]},
        NotFound,
        ("depends_on[1].session = 'nothing'", "moorage ps"),
    ),
    ({"depends_on": ["theirs"]}, NotFound, ("depends_on[0].session = 'theirs'",)),
    ({"depends_on": ["THEIR-ID"]}, Forbidden, ("depends_on[0]", "project 'other'", "same project")),
    (
        {"depends_on": ["shell"]},
        InvalidInput,
        ("'shell' is not a batch session", "any and on = failure"),
    ),
    ({"depends_on": ["itself"]}, NotFound, ("'itself' does not exist",)),
]


@pytest.mark.parametrize(("asked", "kind", "told"), WRONG)
async def test_invalid_dependency_creates_nothing(
    store: Store, asked: dict[str, object], kind: type[MoorageError], told: tuple[str, ...]
) -> None:
    await add(store, "mine")
    await add(store, "shell", type="interactive")
    spec = SessionSpec(command=["x"], name="theirs")
    theirs = await store.sessions.create(Scope.system("bob", Owner("bob", "other")), spec)
    if asked["depends_on"] == ["THEIR-ID"]:
        asked = {"depends_on": [theirs.id]}

    with pytest.raises(kind) as caught:
        await add(store, "itself", **asked)

    assert all(part in str(caught.value) for part in told), str(caught.value)
    wrong = SessionSpec.model_validate({"command": ["x"], "name": "itself"} | asked)
    with pytest.raises(kind):
        await store.sessions.create_once(
            Scope.system("ann"), wrong, idempotency_key=IdempotencyKey("k", "1")
        )

    assert len((await store.sessions.page(SYSTEM)).items) == 3


async def test_used_idempotency_key_returns_the_session_despite_changed_dependency(
    store: Store,
) -> None:
    await add(store, "a")
    spec = SessionSpec.model_validate({"command": ["x"], "name": "b", "depends_on": ["a"]})
    first, _ = await store.sessions.create_once(
        Scope.system("ann"), spec, idempotency_key=IdempotencyKey("k", "1")
    )
    await store.database.fetch("UPDATE sessions SET name = 'gone' WHERE name = 'a'")
    again, replayed = await store.sessions.create_once(
        Scope.system("ann"), spec, idempotency_key=IdempotencyKey("k", "1")
    )
    assert (again.id, replayed) == (first.id, True)


async def test_session_with_dependents_is_not_deleted(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    first = await add(store, "a")
    await add(store, "b", depends_on=["a"])
    await end(store, agent, "a", **DONE)
    past = (
        "UPDATE sessions SET created_at = now() - interval '99 days', "
        "status_since = now() - interval '99 days'"
    )
    await store.database.fetch(f"{past} WHERE name = 'a'")
    assert await store.retention.delete_sessions(30 * 86_400) == 0
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await store.database.fetch("DELETE FROM sessions WHERE id = $1", first)

    await end(store, agent, "b", **DONE)
    await store.database.fetch(past)
    await agent.report()
    deleted = [await store.retention.delete_sessions(30 * 86_400) for _ in range(3)]
    assert deleted == [1, 1, 0], "the last link first"


async def test_session_does_not_start_before_its_begin_time(store: Store) -> None:
    await FakeAgent(store).report()
    later = datetime.now(UTC) + timedelta(hours=1)
    await add(store, "later", starts_at=later, pending_timeout_s=60)
    view = await store.sessions.get(SYSTEM, "later")
    assert view.hold is not None
    assert (view.hold.reason, f"{later:%H:%M}" in view.hold.text) == (Reason.BEGIN_TIME, True)
    assert view.deadline_at is not None
    assert abs(view.deadline_at - later - timedelta(seconds=60)) < timedelta(seconds=1)
    assert await store.groups.with_pending() == [], "and costs no pass until then"
    await store.database.fetch("UPDATE sessions SET starts_at = now()")
    assert await schedule(store) == 1
    with pytest.raises(asyncpg.CheckViolationError, match="only_batch_starts_later"):
        await store.database.fetch("UPDATE sessions SET type = 'interactive'")


async def test_group_rejects_session_types_it_does_not_allow(store: Store) -> None:
    await store.groups.put("default", GroupOptions(session_types=["batch", "inference"]), actor="t")
    await add(store, "job")
    with pytest.raises(Conflict, match=r"type interactive is not allowed.*batch, inference"):
        await add(store, "shell", type="interactive")
    await store.groups.put("default", GroupOptions(), actor="t")
    await add(store, "shell", type="interactive")


@pytest.mark.parametrize(
    ("asked", "agent"),
    [
        ({"arch": "aarch64"}, "arm"),
        ({"labels": {"room": "north"}}, "north"),
        ({"agents": ["south", "nowhere"]}, "south"),
        ({"labels": {"room": "south"}, "agents": ["north"]}, None),
        ({"arch": "riscv"}, None),
    ],
)
async def test_only_matching_agents_are_eligible(
    store: Store, asked: dict[str, object], agent: str | None
) -> None:
    for name, arch, room in (
        ("arm", "aarch64", ""),
        ("north", "x86_64", "north"),
        ("south", "x86_64", "south"),
    ):
        await FakeAgent(store, name, arch=arch, labels={"room": room} if room else {}).report()

    await add(store, "job", **asked)
    assert await schedule(store) == (agent is not None)
    view = await store.sessions.get(SYSTEM, "job")
    assert view.kernels[0].agent_id == agent
    if agent is None:
        assert view.hold is not None
        assert view.hold.refusals


async def test_owner_and_project_of_a_session(store: Store) -> None:
    spec = SessionSpec(command=["x"])
    view = await store.sessions.create(Scope.system("key:ann", Owner("ann", "vision")), spec)
    assert (view.user, view.project) == ("ann", "vision")
    view = await store.sessions.get(SYSTEM, view.id)
    assert (view.user, view.project) == ("ann", "vision")
    (pending,) = (await store.scheduling.snapshot("default")).pending
    assert (pending.user, pending.project, pending.kernel_id) == (
        "ann",
        "vision",
        KernelId(view.kernels[0].id),
    )
