"""Changing sessions that wait or run, over HTTP: limits, groups, holds, versions and races."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.paging import FIRST
from moorage.common.model.status import ObservedState, Status
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle import reconcile_session
from moorage.manager.scheduling import Policy, plan
from moorage.manager.store import Store
from moorage.manager.workloads.session_changes import SessionUpdate
from tests.store.conftest import RUNNING, FakeAgent, reconcile_all, schedule
from tests.store.tenancy_harness import Api, serve

SYSTEM = Scope.system("test")


async def made(api: Api, name: str = "train", caller: str = "ann", **fields: Any) -> str:
    body = {"name": name, "command": ["true"], "resources": {"cpu": 1}, **fields}
    status, text = await api.call(caller, "POST", "/v1/sessions", body)
    assert status == 201, text
    return str(json.loads(text)["id"])


async def update(api: Api, caller: str = "ann", ref: str = "train", **patch: Any) -> Any:
    """The session after a change."""
    status, text = await api.call(caller, "PATCH", f"/v1/sessions/{ref}", patch)
    assert status == 200, text
    return json.loads(text)


async def refusal(api: Api, caller: str = "ann", ref: str = "train", **patch: Any) -> Any:
    status, text = await api.call(caller, "PATCH", f"/v1/sessions/{ref}", patch)
    assert status >= 400, text
    return status, json.loads(text)["detail"]


async def group(api: Api, name: str, **options: Any) -> None:
    status, text = await api.call("admin", "PUT", f"/v1/groups/{name}", options)
    assert status in (200, 201), text


def node(store: Store) -> FakeAgent:
    """An agent that isolates the processes of members."""
    return FakeAgent(store, runtimes=("process", "isolated-process"), suspend_runtimes=("process",))


async def running(store: Store, session_id: str) -> FakeAgent:
    """Place the session on a new agent, on which it runs."""
    agent = node(store)
    await agent.report()
    assert await schedule(store) == 1
    await started(agent, session_id)
    return agent


async def started(agent: FakeAgent, session_id: str) -> None:
    view = await agent.store.sessions.get(SYSTEM, session_id)
    kernel = next(k for k in view.kernels if k.attempt == view.attempt)
    agent.see(KernelId(kernel.id), ObservedState.RUNNING, **RUNNING)
    await agent.report()
    await reconcile_all(agent.store)


async def test_a_pending_session_changes_as_a_whole(store: Store) -> None:
    async with serve(store) as api:
        session = await made(api, timeout_s=60)
        await group(api, "big")
        view = await update(
            api, priority=5, time_limit_s=3600, resource_group="big", name="b",
            user_labels={"team": "vision"},
        )  # fmt: skip
        spec = view["spec"]
        assert (view["id"], view["name"], view["priority"], view["resource_group"]) == (
            session, "b", 5, "big",
        )  # fmt: skip
        assert (spec["name"], spec["priority"], spec["resource_group"], spec["timeout_s"]) == (
            "b", 5, "big", 3600,
        )  # fmt: skip
        assert view["user_labels"] == {"team": "vision"}
        [_, entry] = (await store.sessions.history(SYSTEM, session, FIRST)).items
        assert (entry.event, entry.actor) == ("updated", "key:ann")
        assert entry.detail == (
            "name train to b; priority 10 to 5; group default to big; time limit 1m00s to 1h00m; "
            "labels"
        )
        await made(api, "other")
        before = await store.sessions.get(SYSTEM, session)
        assert (await refusal(api, ref="b", priority=7, name="other"))[0] == 409
        assert await store.sessions.get(SYSTEM, session) == before, "not even its priority"


async def test_what_the_planner_sees_changes_with_the_session(store: Store) -> None:
    """Also for caches that live on, in the former and in the new group."""
    async with serve(store) as api:
        await group(api, "big")
        session = await made(api, timeout_s=60)
        for name in ("default", "big"):
            await store.scheduling.snapshot(name, Policy(), with_running=True)
        await update(api, priority=3, time_limit_s=30)
        [item] = (await store.scheduling.snapshot("default", Policy())).pending
        assert (item.session_id, item.priority) == (session, 3)
        assert (item.time_limit or 0) < 60_000_000
        await update(api, resource_group="big")
        assert not (await store.scheduling.snapshot("default", Policy())).pending
        assert len((await store.scheduling.snapshot("big", Policy())).pending) == 1
        await update(api, held=True)
        assert not (await store.scheduling.snapshot("big", Policy())).pending
        await update(api, held=False)
        assert len((await store.scheduling.snapshot("big", Policy())).pending) == 1


async def test_limits_are_those_of_a_submission(store: Store) -> None:
    async with serve(store) as api:
        await group(api, "default", max_priority={"member": 10, "project_admin": 50})
        await group(api, "small", limits={"max_batch_time_s": 100, "max_pending_per_user": 1})
        await group(api, "desks", session_types=["interactive"])
        await group(api, "closed", projects=["speech"])
        await made(api, timeout_s=60)
        status, detail = await refusal(api, priority=20)
        assert (status, "priority 20 is above 10" in detail) == (403, True), detail
        assert (await update(api, "lead", priority=20))["priority"] == 20
        assert (await update(api, priority=15))["priority"] == 15, "members may lower it"
        assert (await refusal(api, priority=16))[0] == 403
        assert (await refusal(api, priority=101))[0] == 422
        status, detail = await refusal(api, resource_group="small", priority=10, time_limit_s=200)
        assert (status, "time_limit_s = 200 is above 100" in detail) == (403, True), detail
        assert (await refusal(api, resource_group="desks", priority=10)) == (
            409,
            "type batch is not allowed in resource_group 'desks'; allowed types: interactive",
        )
        assert (await refusal(api, resource_group="closed", priority=10))[0] == 404
        assert (await refusal(api, resource_group="none"))[0] == 404
        await made(api, "first", resource_group="small", timeout_s=10)
        status, detail = await refusal(api, resource_group="small", priority=10)
        assert (status, "may have 1 pending sessions" in detail) == (409, True), detail
        await update(api, ref="first", resource_group="default")
        moved = await update(api, resource_group="small", priority=10)
        assert moved["resource_group"] == "small"
        assert (await refusal(api, time_limit_s=101))[0] == 403
        assert (await refusal(api, "mate", priority=1))[0] == 403
        assert (await refusal(api, "bob", priority=1))[0] == 404


async def test_a_session_without_a_limit_gets_the_one_of_its_new_group(store: Store) -> None:
    async with serve(store) as api:
        await group(api, "small", limits={"default_batch_time_s": 50, "max_batch_time_s": 100})
        await made(api)
        view = await update(api, resource_group="small")
        assert view["spec"]["timeout_s"] == 50


async def test_the_quota_of_a_group_counts_sessions_that_move_there(store: Store) -> None:
    async with serve(store) as api:
        await group(api, "small")
        status, text = await api.call("admin", "PUT", "/v1/quotas/group/small", {"pending": 1})
        assert status in (200, 201), text
        for name in ("one", "two"):
            await made(api, name)
        answers = await asyncio.gather(
            *(
                api.call("ann", "PATCH", f"/v1/sessions/{name}", {"resource_group": "small"})
                for name in ("one", "two")
            )
        )
        assert sorted(status for status, _ in answers) == [200, 409]


async def test_a_held_session_waits_until_it_is_released(store: Store) -> None:
    async with serve(store) as api:
        session = await made(api)
        await node(store).report()
        view = await update(api, held=True)
        assert (view["held"]["by"], view["held"]["role"]) == ("key:ann", "owner")
        assert view["hold"]["reason"] == "held"
        assert await schedule(store) == 0
        why = json.loads((await api.call("ann", "GET", "/v1/sessions/train/why"))[1])
        assert why["text"].startswith("held by key:ann since ")
        assert why["text"].endswith("can release it: `moorage update train --release`")
        view = await update(api, "admin", held=True)
        assert (view["held"]["by"], view["held"]["role"]) == ("key:admin", "admin")
        status, detail = await refusal(api, held=False)
        assert (status, "held by key:admin" in detail) == (403, True), detail
        assert (await refusal(api, "lead", held=False))[0] == 403
        view = await update(api, "admin", held=False)
        assert (view["held"], view["hold"]) == (None, None)
        assert await schedule(store) == 1
        history = (await store.sessions.history(SYSTEM, session, FIRST)).items
        events = ["created", "held", "held", "released", "placed"]
        assert [entry.event for entry in history] == events
        status, detail = await refusal(api, held=True)
        assert (status, "it is SCHEDULED, not PENDING" in detail) == (409, True)


async def test_no_held_session_is_placed_whatever_a_manager_decides(store: Store) -> None:
    """A plan that was made before the hold, and the statement of a manager that knows no holds."""
    async with serve(store) as api:
        session = await made(api)
        await node(store).report()
        snapshot = await store.scheduling.snapshot("default", Policy(), with_running=True)
        late = plan(snapshot, Policy()).places
        assert len(late) == 1
        await update(api, held=True)
        term = await store.leases.acquire("test", 60)
        assert term is not None
        assert await store.scheduling.place(late, term) == 0
        with pytest.raises(asyncpg.CheckViolationError, match="no_held_session_is_placed"):
            await store.database.fetch(
                "UPDATE sessions SET status = 'SCHEDULED' WHERE id = $1", session
            )
        await api.call("ann", "POST", "/v1/sessions/train/stop")
        view = await store.sessions.get(SYSTEM, session)
        assert (view.status, view.held) == (Status.CANCELLED, None)


async def test_a_running_session_keeps_to_a_new_limit(store: Store) -> None:
    async with serve(store) as api:
        session = await made(api, timeout_s=1000)
        await running(store, session)
        before = await store.sessions.get(SYSTEM, session)
        view = await update(api, time_limit_s=400)
        after = await store.sessions.get(SYSTEM, session)
        assert before.deadline_at is not None
        assert after.deadline_at is not None
        assert (before.deadline_at - after.deadline_at).total_seconds() == 600
        assert view["spec"]["timeout_s"] == 400
        status, detail = await refusal(api, time_limit_s=500)
        assert (status, "time_limit_s = 500 is above 400" in detail) == (403, True), detail
        await update(api, "admin", time_limit_s=5000)
        await store.database.fetch(
            "UPDATE sessions SET status_since = now() - interval '50 s', "
            "deadline_at = now() + interval '4950 s' WHERE id = $1", session
        )  # fmt: skip
        status, detail = await refusal(api, time_limit_s=30)
        assert status == 409
        assert detail == (
            "time_limit_s = 30 is not above 50, the seconds that session 'train' has run"
        )
        assert (await refusal(api, priority=1))[0] == 409
        [found] = (await store.lifecycle.unsettled([SessionId(session)]))[0]
        assert reconcile_session(found, await _now(store), 120) is None


async def test_a_session_without_a_limit_gets_one_from_its_start(store: Store) -> None:
    async with serve(store) as api:
        session = await made(api)
        await running(store, session)
        await update(api, time_limit_s=100)
        view = await store.sessions.get(SYSTEM, session)
        assert view.deadline_at is not None
        assert (view.deadline_at - view.status_since).total_seconds() == 100


async def test_an_extension_does_not_break_the_promise_of_a_reservation(store: Store) -> None:
    async with serve(store) as api:
        session = await made(api, timeout_s=1000, resources={"cuda.device": 2})
        await running(store, session)
        await made(api, "next", resources={"cuda.device": 2}, timeout_s=10)
        status, detail = await refusal(api, "admin", time_limit_s=2000)
        assert (status, "session 'next' has a reservation" in detail) == (409, True), detail
        await update(api, "admin", ref="next", held=True)
        view = await update(api, "admin", time_limit_s=2000)
        assert view["spec"]["timeout_s"] == 2000


async def test_usage_is_charged_to_the_group_in_which_an_attempt_ran(store: Store) -> None:
    async with serve(store) as api:
        await group(api, "big")
        session = await made(api)
        await running(store, session)
        await store.database.fetch(
            "UPDATE sessions SET status = 'PENDING', attempt = 2 WHERE id = $1", session
        )
        await store.database.fetch(
            "INSERT INTO kernels (id, session_id, attempt, status, secret) "
            "VALUES (gen_random_uuid(), $1, 2, 'PENDING', '')", session
        )  # fmt: skip
        status, detail = await refusal(api, resource_group="big")
        assert (status, "an earlier attempt may still run on agent node-1" in detail) == (409, True)


async def act(api: Api, verb: str, caller: str = "ann", ref: str = "train") -> tuple[int, Any]:
    status, text = await api.call(caller, "POST", f"/v1/sessions/{ref}/{verb}")
    return status, json.loads(text)


async def test_a_requeued_session_is_a_new_attempt_that_counts_no_retry(store: Store) -> None:
    async with serve(store) as api:
        session = await made(api, retries=1)
        status, problem = await act(api, "requeue")
        assert (status, problem["detail"]) == (
            409,
            "session 'train' cannot be requeued: it is PENDING",
        )
        agent = await running(store, session)
        status, view = await act(api, "requeue")
        assert (status, view["status"], view["attempt"]) == (202, "PENDING", 2)
        assert (view["requeues"], view["reason"], view["not_before"]) == (0, "requeued", None)
        assert await schedule(store) == 0, "the first attempt may still run"
        [first, second] = sorted(view["kernels"], key=lambda kernel: kernel["attempt"])
        assert (first["status"], second["status"]) == ("TERMINATING", "PENDING")
        agent.see(KernelId(first["id"]), ObservedState.EXITED, exit_code=0)
        agent.confirms = True
        await agent.report()
        assert await schedule(store) == 1
        history = (await store.sessions.history(SYSTEM, session, FIRST)).items
        sent_back = next(entry for entry in history if entry.event == "send-back")
        assert (sent_back.actor, sent_back.reason) == ("key:ann", "requeued")
        await api.call("ann", "POST", "/v1/sessions/train/stop")
        assert (await act(api, "requeue"))[0] == 409
        await made(api, "desk", type="interactive")
        status, problem = await act(api, "requeue", ref="desk")
        assert (status, "only batch sessions run again" in problem["detail"]) == (409, True)


async def test_a_suspended_session_keeps_what_it_has_and_its_time_stands_still(
    store: Store,
) -> None:
    async with serve(store) as api:
        session = await made(api, timeout_s=1000)
        assert (await act(api, "suspend"))[0] == 409
        agent = await running(store, session)
        await store.orders.of(AgentId(agent.name))
        status, view = await act(api, "suspend")
        assert (status, view["status"], view["deadline_at"]) == (202, "RUNNING", None)
        assert view["suspended"]["by"] == "key:ann"
        [spec] = await store.orders.of(AgentId(agent.name))
        assert spec.suspended
        found = (await store.lifecycle.unsettled([SessionId(session)]))[0]
        late = await _now(store) + timedelta(days=1)
        assert [reconcile_session(one, late, 120) for one in found] == [None]
        snapshot = await store.scheduling.peek("default", Policy())
        assert [kernel.ends_at for a in snapshot.agents for kernel in a.running] == [None]
        assert (await act(api, "suspend"))[1]["revision"] == view["revision"], "it is already"

        await store.database.fetch(
            "UPDATE sessions SET suspended_left_s = 300 WHERE id = $1", session
        )
        assert (await refusal(api, time_limit_s=700))[0] == 409, "it has run 700 s"
        await update(api, time_limit_s=800)
        status, view = await act(api, "resume")
        assert (status, view["suspended"]) == (202, None)
        left = datetime.fromisoformat(view["deadline_at"]) - await _now(store)
        assert 90 < left.total_seconds() <= 100
        [spec] = await store.orders.of(AgentId(agent.name))
        assert not spec.suspended
        assert (await act(api, "resume"))[0] == 202
        history = (await store.sessions.history(SYSTEM, session, FIRST)).items
        assert [entry.event for entry in history][-3:] == ["suspended", "updated", "resumed"]


async def test_a_suspension_ends_with_its_attempt(store: Store) -> None:
    """Also if a manager of the previous release, which knows none, starts the next attempt."""
    async with serve(store) as api:
        session = await made(api)
        agent = await running(store, session)
        await act(api, "suspend")
        status, view = await act(api, "requeue")
        assert (status, view["suspended"]) == (202, None)
        first = min(view["kernels"], key=lambda kernel: kernel["attempt"])
        agent.see(KernelId(first["id"]), ObservedState.EXITED, exit_code=0)
        agent.confirms = True
        await agent.report()
        assert await schedule(store) == 1
        await started(agent, session)
        view = await store.sessions.get(SYSTEM, session)
        assert (view.status, view.suspended) == (Status.RUNNING, None)
        assert not any(spec.suspended for spec in await store.orders.of(AgentId(agent.name)))


async def test_an_agent_that_cannot_suspend_is_named(store: Store) -> None:
    async with serve(store) as api:
        session = await made(api)
        agent = FakeAgent(store, runtimes=("process", "isolated-process"))
        await agent.report()
        assert await schedule(store) == 1
        await started(agent, session)
        status, problem = await act(api, "suspend")
        assert (status, problem["detail"]) == (
            409,
            "session 'train' cannot be suspended: its runtime 'process' cannot suspend kernels, or "
            "an agent is too old: node-1 (0.1.0)",
        )


async def test_versions_are_revisions(store: Store) -> None:
    async with serve(store) as api:
        await made(api)
        async with api.http.get("/v1/sessions/train", headers=_auth(api)) as response:
            tag = response.headers["ETag"]
            revision = (await response.json())["revision"]
        assert tag.startswith(f'"{revision}.')
        status = await _send(api, tag, {"priority": 3})
        assert status == (200, f'"{revision + 1}"')
        assert (await _send(api, tag, {"user_labels": {"a": "1"}}))[0] == 412
        assert (await _send(api, "x", {"priority": 3}))[0] == 422
        assert (await _send(api, f'"{revision + 1}"', {"priority": 3}))[0] == 200, "no change"
        view = await store.sessions.get(SYSTEM, "train")
        assert view.revision == revision + 1


async def test_two_changes_of_different_fields_both_take_effect(store: Store) -> None:
    async with serve(store) as api:
        await made(api, timeout_s=10)
        patches: list[dict[str, Any]] = [
            {"priority": 1}, {"time_limit_s": 99}, {"user_labels": {"a": "1"}}, {"name": "b"},
        ]  # fmt: skip
        session = (await store.sessions.get(SYSTEM, "train")).id
        answers = await asyncio.gather(
            *(api.call("ann", "PATCH", f"/v1/sessions/{session}", patch) for patch in patches)
        )
        assert [status for status, _ in answers] == [200] * 4, answers
        view = await store.sessions.get(SYSTEM, session)
        assert (view.priority, view.spec.timeout_s, view.user_labels, view.name) == (
            1, 99, {"a": "1"}, "b",
        )  # fmt: skip


async def test_a_change_that_loses_to_the_start_says_so(store: Store) -> None:
    """The statement compares the revision that was read, so one of the two comes first."""
    async with serve(store) as api:
        session = await made(api)
        await node(store).report()
        stale = await store.sessions.get(SYSTEM, session)
        assert await schedule(store) == 1
        assert not await store.session_records.update(
            SYSTEM, stale, SessionUpdate(priority=1, fields={"priority": 1}, detail="x")
        )
        status, detail = await refusal(api, priority=1)
        assert status == 409
        assert detail == (
            "priority of session 'train' cannot be changed: it is SCHEDULED, not PENDING"
        )


async def _now(store: Store) -> Any:
    return (await store.database.fetchrow("SELECT now() AS now"))["now"]


def _auth(api: Api) -> dict[str, str]:
    return {"Authorization": f"Bearer {api.keys['ann']}"}


async def _send(api: Api, tag: str, patch: dict[str, Any]) -> tuple[int, str | None]:
    headers = _auth(api) | {"If-Match": tag}
    async with api.http.patch("/v1/sessions/train", json=patch, headers=headers) as response:
        return response.status, response.headers.get("ETag")
