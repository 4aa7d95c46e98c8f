"""Sessions whose placement the database has lost: they end as their agent reports, and nothing runs
twice without leaving a trace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moorage.common.link.messages import Observation
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Result, Status
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.platform.restored import prepare_restored

from .conftest import FakeAgent, open_store, reconcile_all, schedule, stop

SYSTEM = Scope.system()
ZERO = {"exit_code": 0, "reason": Reason.EXIT_ZERO, "log_tail": "done"}


class Scene:
    """A session whose kernel ``kernel`` runs on ``agent``, while the database only knows that the
    session was created."""

    def __init__(self, store: Store, **spec: object) -> None:
        self.store = store
        self.agent = FakeAgent(store, stream=1)
        self.spec = SessionSpec.model_validate(
            {"name": "job", "type": "batch", "command": ["x"], "resources": {"cpu": 1}} | spec
        )
        self.id = ""
        self.kernel = ""

    async def lose_placement(self, *, backup: bool = False) -> None:
        await self.agent.report()
        self.id = (await self.store.sessions.create(Scope.system("t"), self.spec)).id
        self.kernel = (await self.store.sessions.get(SYSTEM, self.id)).kernels[-1].id
        if backup:
            await prepare_restored(self.store.database.dsn)
        else:
            await self.store.database.fetch(SQL["failed_over"])
        self.agent.reconnect(self.store)

    async def report(self, state: ObservedState, **more: object) -> None:
        seen = Observation(KernelId(self.kernel), SessionId(self.id), state)
        self.agent.seen[KernelId(self.kernel)] = replace(seen, **more)  # type: ignore[arg-type]
        await self.agent.report()
        await reconcile_all(self.store)

    async def outcome(self) -> tuple[Status, Result, int]:
        view = await self.store.sessions.get(SYSTEM, self.id)
        return view.status, view.result, view.attempt

    async def history(self) -> list[tuple[str, str]]:
        return [
            (row.event, row.detail)
            for row in (await self.store.sessions.history(SYSTEM, self.id)).items
        ]


@pytest.mark.parametrize("backup", [True, False])
async def test_a_program_that_has_run_does_not_run_again(store: Store, backup: bool) -> None:
    scene = Scene(store)
    await scene.lose_placement(backup=backup)
    await scene.report(ObservedState.EXITED, **ZERO)
    assert await scene.outcome() == (Status.TERMINATED, Result.SUCCESS, 1)
    [kernel] = (await store.sessions.get(SYSTEM, scene.id)).kernels
    assert (kernel.id, kernel.agent_id, kernel.exit_code) == (scene.kernel, "node-1", 0)
    events = await scene.history()
    assert [event for event, _ in events] == ["created", "placed", "ready", "ended"]
    assert events[1][1] == "on node-1, where it has run; the database had lost this placement"
    assert await schedule(store) == 0
    assert await store.integrity.check() == []
    await scene.agent.report()
    assert await scene.history() == events, "a repeated report changes nothing"


async def test_a_program_that_still_runs_gives_its_result_when_it_ends(store: Store) -> None:
    """The program's end arrives in a report that contains only changes."""
    scene = Scene(store)
    await scene.lose_placement()
    await scene.report(ObservedState.RUNNING)
    assert await schedule(store) == 0
    await scene.report(ObservedState.EXITED, exit_code=3, reason=Reason.EXIT_NONZERO)
    assert await scene.outcome() == (Status.TERMINATED, Result.FAILED, 1)
    assert await schedule(store) == 0


async def test_its_end_counts_as_any_other(store: Store) -> None:
    """A program with retries runs again in a second attempt."""
    scene = Scene(store, retries=1, retry_backoff_s=0.1)
    await scene.lose_placement()
    await scene.report(ObservedState.GONE, reason=Reason.KERNEL_GONE)
    assert await scene.outcome() == (Status.PENDING, Result.UNDEFINED, 2)
    assert [event for event, _ in await scene.history()] == ["created", "placed", "requeue"]


async def test_a_kernel_that_was_ended_for_being_unknown_has_no_result(
    store: Store, migrated_database: str
) -> None:
    async with open_store(migrated_database, keep_unknown_kernels=False) as strict:
        scene = Scene(strict)
        await scene.lose_placement()
        await scene.report(ObservedState.RUNNING)
        await scene.report(ObservedState.EXITED, exit_code=143, reason=Reason.KILLED)
        assert await scene.outcome() == (Status.PENDING, Result.UNDEFINED, 1)
        event, detail = (await scene.history())[-1]
        assert (
            event,
            detail.startswith(f"kernel {scene.kernel} has ended on node-1 (killed)"),
        ) == (
            "redirected",
            True,
        )
        assert await schedule(strict) == 1
        await scene.agent.report()
        assert len(await scene.history()) == 3, "it is recorded once"


async def test_a_cluster_runs_again_and_says_why(store: Store) -> None:
    scene = Scene(store, cluster={"size": 2, "mode": "single-node"})
    await scene.lose_placement()
    await scene.report(ObservedState.EXITED, **ZERO)
    assert await scene.outcome() == (Status.PENDING, Result.UNDEFINED, 1)
    assert "the session runs again" in (await scene.history())[-1][1]


async def test_an_agent_gives_no_result_for_a_kernel_that_it_never_had(store: Store) -> None:
    """It has the session's id and the kernel's current id, like its owner."""
    scene = Scene(store)
    await scene.lose_placement()
    for known in (scene.id, (await store.sessions.get(SYSTEM, scene.id)).kernels[-1].id):
        scene.kernel = known
        await scene.report(ObservedState.EXITED, **ZERO)
    assert (await scene.outcome())[0] is Status.PENDING
    assert await schedule(store) == 1


async def test_stopping_the_session_ends_its_unknown_kernel(store: Store) -> None:
    scene = Scene(store)
    await scene.lose_placement()
    await scene.report(ObservedState.RUNNING)
    ordered = await store.orders.of(scene.agent.full_report().info.agent_id)
    assert [spec.kernel_id for spec in ordered] == [scene.kernel], "it is kept"
    await stop(store, scene.id)
    assert await store.orders.of(scene.agent.full_report().info.agent_id) == ()
    await scene.report(ObservedState.EXITED, exit_code=143, reason=Reason.KILLED)
    assert (await scene.outcome())[0] is Status.CANCELLED
    assert (await store.agents.get("node-1")).ready


async def test_an_end_is_recognized_after_two_failovers(store: Store) -> None:
    scene = Scene(store)
    await scene.lose_placement()
    await store.database.fetch(SQL["failed_over"])
    await scene.report(ObservedState.EXITED, **ZERO)
    assert await scene.outcome() == (Status.TERMINATED, Result.SUCCESS, 1)
