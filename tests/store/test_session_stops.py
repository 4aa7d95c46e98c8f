"""Stopping many sessions: requested once, carried out no matter what happens, and with shared
statements."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moorage.common.aio.clock import ManualClock
from moorage.common.model.ids import SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import ObservedState
from moorage.manager import termination
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import Leader
from moorage.manager.loops.stop_controller import StopController
from moorage.manager.store import Store
from moorage.manager.store.database.connections import Database
from moorage.manager.termination import ANSWER_S, SessionTerminator

from .conftest import LOST_GRACE_S, RUNNING, FakeAgent, reconcile_all, schedule
from .tenancy_harness import serve
from .test_pipelines import SPEC, body, post, states, step

ANN = Scope.system("key:ann", Owner("ann", "vision"))


class Interrupted:
    """The clock for a request that ends after its first part."""

    def __init__(self) -> None:
        self.times = iter((0.0, ANSWER_S))

    def monotonic(self) -> float:
        return next(self.times)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(termination, "TOGETHER", 1)


async def statuses(store: Store) -> list[str]:
    """The statuses of the steps, in order."""
    rows = await store.database.fetch(
        "SELECT s.status FROM pipeline_steps p JOIN sessions s ON s.id = p.session_id "
        "ORDER BY p.position, p.run"
    )
    return [row["status"] for row in rows]


async def new_leader(store: Store) -> StopController:
    """Includes its memory, as it starts."""
    await store.database.fetch("DELETE FROM leases")
    clock = ManualClock()
    leader = Leader(store, clock)
    await leader.run_once()
    return StopController(store, leader, SessionTerminator(store, LOST_GRACE_S), clock)


async def passes(store: Store) -> None:
    await store.database.fetch(
        "UPDATE session_stops SET asked_at = asked_at - make_interval(secs => $1)", ANSWER_S
    )
    await store.database.fetch(
        "UPDATE sessions SET created_at = created_at - make_interval(secs => $1)", ANSWER_S
    )


async def interrupted_stop(store: Store, pipeline_id: str) -> None:
    clock: Any = Interrupted()
    await SessionTerminator(store, LOST_GRACE_S).stop_pipeline(ANN, pipeline_id, clock)


async def test_the_next_leader_stops_what_a_request_has_left(
    store: Store, small_parts: None
) -> None:
    agent = FakeAgent(store)
    await agent.report()
    async with serve(store) as api:
        made = await post(api, "admin", "", body(step("a"), step("b", "a"), step("c", "b")))
        assert await schedule(store) == 1
        await interrupted_stop(store, made["id"])
        assert await statuses(store) == ["SCHEDULED", "PENDING", "CANCELLED"], "the last step first"
        controller = await new_leader(store)
        await controller.run_once()
        assert await statuses(store) == ["SCHEDULED", "PENDING", "CANCELLED"], (
            "the request may still run"
        )
        await passes(store)
        await controller.run_once()
        assert await statuses(store) == ["TERMINATING", "CANCELLED", "CANCELLED"]
        await controller.run_once()

    assert await store.session_stops.open(0) == []
    history = await store.sessions.history(Scope.system(), made["steps"][1]["session_id"])
    assert [one.actor for one in history.items][-1] == "key:ann"


async def test_a_former_leader_stops_nothing(store: Store, small_parts: None) -> None:
    async with serve(store) as api:
        made = await post(api, "ann", "", body(step("a", spec=SPEC | {"resources": {}}), step("b")))
    await interrupted_stop(store, made["id"])
    await passes(store)
    controller = await new_leader(store)
    await store.database.fetch("DELETE FROM leases")
    await controller.run_once()
    assert await statuses(store) == ["PENDING", "CANCELLED"]
    assert len(await store.session_stops.open(0)) == 1


async def test_a_retry_waits_for_the_stop_and_is_not_stopped_by_it(
    store: Store, small_parts: None
) -> None:
    async with serve(store) as api:
        made = await post(api, "ann", "", body(step("a"), step("b", "a")))
        await interrupted_stop(store, made["id"])
        status, text = await api.call("ann", "POST", "/v1/pipelines/train/retry")
        assert (status, "is being stopped" in text) == (409, True)
        await passes(store)
        controller = await new_leader(store)
        await controller.run_once()
        await post(api, "ann", "/train/retry", expected=202)
        await store.database.fetch(
            "INSERT INTO session_stops (id, pipeline_id, asked_by, asked_at) "
            "SELECT gen_random_uuid(), id, 'late', (SELECT max(created_at) FROM sessions) - interval '1 ms' "
            "FROM pipelines"
        )
        await passes(store)
        await controller.run_once()
        assert await statuses(store) == ["CANCELLED", "PENDING", "CANCELLED", "PENDING"]


async def test_a_stop_that_is_asked_for_again_is_not_finished_by_the_first(store: Store) -> None:
    async with serve(store) as api:
        made = await post(api, "ann", "", body(step("a")))
    first = await store.session_stops.ask_for_pipeline(ANN, made["id"])
    second = await store.session_stops.ask_for_pipeline(ANN, made["id"])
    await store.session_stops.finish(first)
    assert await store.session_stops.open(0) == [second]


async def test_more_steps_take_no_more_statements(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    fetch = Database.fetch

    async def counted(self: Database, sql: str, *args: object) -> Any:
        fetched.append(sql)
        return await fetch(self, sql, *args)

    monkeypatch.setattr(Database, "fetch", counted)
    taken = []
    async with serve(store) as api:
        for count in (2, 60):
            spec = {"name": f"p{count}", "steps": [step("s", array=f"0-{count - 1}")]}
            await post(api, "ann", "", spec)
            fetched.clear()
            stopped = await post(api, "ann", f"/p{count}/stop", expected=202)
            assert set(states(stopped).values()) == {"stopped"}
            taken.append(len(fetched))

    assert taken[0] == taken[1]


async def test_all_of_some_sessions_stop_with_their_reason(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    made = [
        await store.sessions.create(ANN, SessionSpec(command=["x"], resources={"cpu": 1}))
        for _ in range(3)
    ]
    await schedule(store)
    kernel = (await store.sessions.get(ANN, made[0].id)).kernels[0]
    agent.see(kernel.id, ObservedState.RUNNING, **RUNNING)
    await agent.report()
    await reconcile_all(store)
    ids = [SessionId(one.id) for one in made]
    terminator = SessionTerminator(store, LOST_GRACE_S)
    given: dict[str, Any] = {"reason": Reason.BUDGET_EXHAUSTED, "detail": "d"}
    assert await terminator.stop_all("system:budgets", ids, **given) == 3
    found = [await store.sessions.get(ANN, one.id) for one in made]
    assert {(one.reason, one.detail) for one in found} == {(Reason.BUDGET_EXHAUSTED, "d")}
    assert await terminator.stop_all("system:budgets", ids, **given) == 0


async def test_all_sessions_of_a_user_stop_but_replicas_and_those_of_others(store: Store) -> None:
    spec = {"command": ["x"], "resources": {"cpu": 1}}
    names = [("ann", "a"), ("ann", "b"), ("mate", "c"), ("bob", "d")]
    async with serve(store) as api:
        for caller, name in names:
            assert (await api.call(caller, "POST", "/v1/sessions", spec | {"name": name}))[0] == 201

        await store.sessions.create(
            Scope.system("t", Owner("ann", "speech")), SessionSpec(name="e", **spec)
        )
        made = await store.endpoints.create(ANN, EndpointSpec(name="m", engine="vllm", model="m"))
        await store.sessions.create(
            ANN, SessionSpec(name="r", **spec), endpoint_id=made.snapshot.endpoint_id
        )
        for caller in ("mate", "bob", "viewer", "auditor"):
            assert (await api.call(caller, "POST", "/v1/sessions/stop?user=ann"))[0] == 403

        status, text = await api.call("lead", "POST", "/v1/sessions/stop?user=ann")
        assert (status, json.loads(text)["sessions"], json.loads(text)["remaining"]) == (202, 2, 0)
        rows = await store.database.fetch(
            "SELECT name FROM sessions WHERE status = 'PENDING' ORDER BY name"
        )
        assert [row["name"] for row in rows] == ["c", "d", "e", "r"], "of their project"
        status, text = await api.call("admin", "POST", "/v1/sessions/stop?user=ann")
        assert (status, json.loads(text)["sessions"]) == (202, 1)
        assert (
            json.loads((await api.call("ann", "POST", "/v1/sessions/stop?user=ann"))[1])["sessions"]
            == 0
        )

    assert await store.session_stops.open(0) == []


async def pipeline_leader(store: Store) -> StopController:
    """A leader that knows the time of the database, by which deadlines pass."""
    await store.database.fetch("DELETE FROM leases")
    clock = ManualClock()
    leader = Leader(store, clock)
    await leader.run_once()
    await leader.deadlines.run_once()
    return StopController(store, leader, SessionTerminator(store, LOST_GRACE_S), clock)


async def overdue(store: Store) -> None:
    await store.database.fetch("UPDATE pipelines SET deadline_at = now() - interval '1 minute'")


async def test_a_pipeline_is_stopped_when_its_time_is_up(store: Store) -> None:
    await FakeAgent(store).report()
    async with serve(store) as api:
        request = body(step("a"), step("b", "a")) | {"timeout_s": 3600}
        made = await post(api, "admin", "", request)
        assert made["deadline_at"] is not None
        assert await schedule(store) == 1
        controller = await pipeline_leader(store)
        await controller.run_once()
        assert await statuses(store) == ["SCHEDULED", "PENDING"]

        await overdue(store)
        await controller.run_once()
        await passes(store)
        await controller.run_once()
        assert await statuses(store) == ["TERMINATING", "CANCELLED"]
        rows = await store.database.fetch("SELECT DISTINCT reason FROM sessions")
        assert [row["reason"] for row in rows] == [Reason.PIPELINE_TIMEOUT]

        await controller.run_once()
        assert await store.session_stops.open(0) == []
        await store.database.fetch("UPDATE sessions SET status = 'ERROR' WHERE name LIKE 'a-%'")
        shown = await post(api, "admin", "/train/retry", expected=202)
        assert shown["deadline_at"] is None, "the answer has the pipeline as it was read"
        status, text = await api.call("admin", "GET", "/v1/pipelines/train")
        assert (status, json.loads(text)["deadline_at"] is not None) == (200, True)


async def test_a_pipeline_that_ended_in_time_is_not_stopped(store: Store) -> None:
    async with serve(store) as api:
        await post(api, "ann", "", body(step("a")) | {"timeout_s": 1})
        await store.database.fetch("UPDATE sessions SET status = 'TERMINATED'")
        await overdue(store)
        await (await pipeline_leader(store)).run_once()
        assert await store.session_stops.open(0) == []
        rows = await store.database.fetch("SELECT deadline_at FROM pipelines")
        assert [row["deadline_at"] for row in rows] == [None]


async def test_a_former_leader_stops_no_overdue_pipeline(store: Store) -> None:
    async with serve(store) as api:
        await post(api, "ann", "", body(step("a")) | {"timeout_s": 1})
    await overdue(store)
    controller = await pipeline_leader(store)
    await store.database.fetch("DELETE FROM leases")
    await controller.run_once()
    assert await store.session_stops.open(0) == []


@pytest.mark.parametrize("timeout_s", [0, -1, 1e12, "soon"])
async def test_invalid_time_limits_of_pipelines_are_refused(
    store: Store, timeout_s: object
) -> None:
    async with serve(store) as api:
        request = body(step("a")) | {"timeout_s": timeout_s}
        assert (await api.call("ann", "POST", "/v1/pipelines", request))[0] == 422
