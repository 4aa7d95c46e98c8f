"""Task lists in Postgres: which kernel has which task, and how each ended, whatever is repeated or
lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest

from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.common.model.task_states import TaskState
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store
from moorage.manager.store.sessions.tasks import MOST_OUTPUT, EndedTask, TaskExchange

from .conftest import RUNNING, FakeAgent, reconcile_all, schedule

SYSTEM = Scope.system()
NODE = AgentId("node-1")


@dataclass
class FakeKernel:
    """A kernel that works on its session's list."""

    store: Store
    id: KernelId
    agent: AgentId = NODE
    received: int = 0
    held: dict[tuple[int, int], str] = field(default_factory=dict)

    async def exchange(
        self, wanted: int = 0, ended: Sequence[EndedTask] = (), **flags: bool
    ) -> dict[str, Any]:
        told = {"over": False, "complete": False} | flags
        return await self.store.tasks.exchange(
            TaskExchange(self.agent, self.id, self.received, wanted, ended, **told)
        )

    async def take(self, wanted: int, ended: Sequence[EndedTask] = ()) -> list[str]:
        """The lines of the tasks that it is given."""
        answer = await self.exchange(wanted, ended)
        for seq, number, attempt, line in answer["given"]:
            assert seq > self.received
            self.received = seq
            self.held[number, attempt] = line
        return [line for *_, line in answer["given"]]


def ended(
    number: int, state: TaskState = TaskState.SUCCEEDED, attempt: int = 1, output: bytes = b""
) -> EndedTask:
    code = {TaskState.SUCCEEDED: 0, TaskState.FAILED: 1}.get(state)
    return EndedTask(number, attempt, state, code, 1e9, seconds=0.5, output=output, detail="")


async def start(store: Store, lines: int, **tasks: Any) -> tuple[SessionId, FakeKernel]:
    agent = FakeAgent(store)
    await agent.report()
    spec = SessionSpec.model_validate(
        {
            "name": "listed",
            "command": ["x", "{}"],
            "resources": {"cpu": 1},
            "tasks": {"lines": "\n".join(f"line {n}" for n in range(1, lines + 1)), **tasks},
        }
    )
    assert spec.tasks is not None
    stored = await store.tasks.put(spec.tasks)
    made = await store.sessions.create(Scope.system("t"), spec.model_copy(update={"tasks": stored}))
    return SessionId(made.id), await run(store, agent, made.id)


async def run(store: Store, agent: FakeAgent, session_id: str) -> FakeKernel:
    """Start the session's current attempt."""
    assert await schedule(store) == 1
    view = await store.sessions.get(SYSTEM, session_id)
    [kernel] = [k for k in view.kernels if k.attempt == view.attempt]
    agent.see(kernel.id, ObservedState.RUNNING, **RUNNING)
    await agent.report()
    await reconcile_all(store)
    return FakeKernel(store, KernelId(kernel.id))


async def states(store: Store, session_id: str) -> dict[tuple[int, int], str]:
    page = await store.tasks.page(session_id)
    return {(task.number, task.attempt): str(task.state) for task in page.items}


async def test_lines_are_given_in_order_and_each_end_counts_once(store: Store) -> None:
    session, kernel = await start(store, 2500)
    assert await kernel.take(3) == ["line 1", "line 2", "line 3"]
    assert (await kernel.take(1200))[-1] == "line 1203"
    answer = await kernel.exchange(0, [ended(1), ended(2, TaskState.FAILED)])
    again = await kernel.exchange(0, [ended(1), ended(2), ended(1, TaskState.FAILED)])
    assert (
        (answer["succeeded"], answer["failed"]) == (again["succeeded"], again["failed"]) == (1, 1)
    )
    summary = await store.tasks.summary(SYSTEM, session)
    assert summary.model_dump() == {
        **{"total": 2500, "waiting": 1297, "given": 1201, "succeeded": 1, "failed": 1, "lost": 0}
    }
    assert (await kernel.take(5000))[-1] == "line 2500"
    assert not (await kernel.exchange(5))["finished"]
    rest = [ended(number) for number in range(3, 2501)]
    assert (await kernel.exchange(0, rest))["finished"]


async def test_an_answer_that_was_lost_is_given_again(store: Store) -> None:
    session, kernel = await start(store, 10)
    lost_answer = await kernel.exchange(4)
    assert await kernel.take(4) == [line for *_, line in lost_answer["given"]]
    assert await kernel.take(4) == ["line 5", "line 6", "line 7", "line 8"]
    assert Counter((await states(store, session)).values()) == {"GIVEN": 8}


async def test_what_was_not_started_returns_and_what_was_running_is_lost(store: Store) -> None:
    session, kernel = await start(store, 4)
    await kernel.take(4)
    told = [ended(1), ended(2, TaskState.LOST)]
    answer = await kernel.exchange(9, told, over=True, complete=True)
    assert answer["given"] == []
    assert await states(store, session) == {
        (1, 1): "SUCCEEDED",
        (2, 1): "LOST",
        (3, 1): "WAITING",
        (4, 1): "WAITING",
    }


@pytest.mark.parametrize("retries", [0, 2])
async def test_without_a_whole_journal_what_was_given_may_have_run(
    store: Store, retries: int
) -> None:
    session, kernel = await start(store, 3, retries=retries)
    await kernel.take(3)
    await kernel.exchange(0, [ended(1)], over=True, complete=False)
    again = {(2, 2): "WAITING", (3, 2): "WAITING"} if retries else {}
    assert await states(store, session) == {
        **{(1, 1): "SUCCEEDED", (2, 1): "LOST", (3, 1): "LOST"},
        **again,
    }


async def test_retries_end(store: Store) -> None:
    session, kernel = await start(store, 1, retries=2)
    for attempt in (1, 2, 3):
        assert await kernel.take(1) == ["line 1"]
        answer = await kernel.exchange(0, [ended(1, TaskState.FAILED, attempt)])
        assert answer["finished"] is (attempt == 3)

    assert await kernel.take(1) == []
    assert (await store.tasks.summary(SYSTEM, session)).failed == 1


async def test_a_kernel_that_never_reported_has_lost_its_tasks_and_a_late_word_changes_nothing(
    store: Store,
) -> None:
    session, first = await start(store, 3)
    await first.take(2)
    agent = FakeAgent(store)
    agent.see(first.id, ObservedState.EXITED, reason="killed", exit_code=-9)
    await agent.report()
    await reconcile_all(store)
    shown = await states(store, session)
    assert shown == {(1, 1): "LOST", (2, 1): "LOST"}
    assert (await store.tasks.summary(SYSTEM, session)).lost == 2

    await store.database.fetch("UPDATE sessions SET not_before = NULL")
    second = await run(store, agent, session)
    assert await second.take(5) == ["line 3"]
    await first.exchange(5, [ended(1)])
    assert (await states(store, session))[1, 1] == "LOST"
    assert (await second.exchange(0, [ended(3)]))["finished"]


async def test_only_the_agent_of_a_kernel_gets_its_tasks(store: Store) -> None:
    _, kernel = await start(store, 3)
    other = FakeKernel(store, kernel.id, AgentId("node-2"))
    assert await other.exchange(3, [ended(1)]) == {"known": False}
    stranger = FakeKernel(store, KernelId("00000000-0000-0000-0000-000000000000"))
    assert await stranger.exchange(3) == {"known": False}


async def test_a_session_that_ends_gets_no_more_tasks(store: Store) -> None:
    session, kernel = await start(store, 3)
    await store.database.fetch(
        "UPDATE kernels SET status = $1 WHERE id = $2", str(Status.TERMINATING), kernel.id
    )
    assert await kernel.take(3) == []
    assert await states(store, session) == {}


async def test_outputs_are_kept_up_to_a_limit(store: Store) -> None:
    session, kernel = await start(store, 2)
    await kernel.take(2)
    await kernel.exchange(0, [ended(1, output=b"one\xff\n")])
    await store.database.fetch("UPDATE session_task_lists SET output_bytes = $1", MOST_OUTPUT)
    await kernel.exchange(0, [ended(2, output=b"two\n")])
    found = (await store.tasks.page(session)).items
    assert [task.output for task in found] == ["one\ufffd\n", None]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO session_tasks (session_id, number, attempt, state) "
        "SELECT session_id, 1, 2, 'WAITING' FROM session_task_lists",
        "UPDATE session_tasks SET kernel_id = NULL",
        "UPDATE session_task_lists SET succeeded = total, failed = 1",
        "UPDATE session_tasks SET state = 'DONE'",
    ],
)
async def test_postgres_itself_refuses_what_must_never_be(store: Store, statement: str) -> None:
    _, kernel = await start(store, 2)
    await kernel.take(1)
    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        await store.database.fetch(statement)


async def test_lists_without_a_session_are_deleted(store: Store) -> None:
    session, _ = await start(store, 2)
    await store.database.fetch("UPDATE task_lists SET used_at = now() - interval '2 days'")
    assert await store.retention.delete_task_lists() == 0
    await store.database.fetch("DELETE FROM allocations")
    await store.database.fetch("DELETE FROM kernels")
    await store.database.fetch("DELETE FROM sessions WHERE id = $1", session)
    assert await store.retention.delete_task_lists() == 1
    assert await store.database.fetch("SELECT FROM task_lines") == []
