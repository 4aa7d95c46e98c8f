"""Pipelines in the database and over REST: atomic creation, dependencies, retry, stop,
retention."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from xml.etree import ElementTree

import asyncpg
import pytest

from moorage.common.model.group_options import QuotaLimits
from moorage.common.model.ids import SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store

from .conftest import FAILED, FakeAgent, reconcile_all, schedule
from .tenancy_harness import ROOT, Api, serve

SVG = "{http://www.w3.org/2000/svg}"
DONE = {"exit_code": 0, "reason": Reason.EXIT_ZERO}
SPEC = {"command": ["x"], "resources": {"cpu": 1}}


def step(name: str, *after: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "after": list(after), "spec": SPEC} | more


def body(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"name": "train", "steps": list(steps)}


def states(view: dict[str, Any]) -> dict[str, str]:
    return {
        one["name"] + ("" if one["index"] is None else f"[{one['index']}]"): one["state"]
        for one in view["steps"]
    }


async def post(
    api: Api, caller: str, path: str, request: dict[str, Any] | None = None, *, expected: int = 201
) -> dict[str, Any]:
    status, text = await api.call(caller, "POST", f"/v1/pipelines{path}", request)
    assert status == expected, text
    found: dict[str, Any] = json.loads(text)
    return found


async def get(api: Api, caller: str, ref: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await api.call(caller, "GET", f"/v1/pipelines/{ref}"))[1])
    return found


async def play(store: Store, agent: FakeAgent, *failing: str) -> list[str]:
    """Run all eligible steps until they end; the named ones fail. Returns the steps in order."""
    ran: list[str] = []
    while await schedule(store):
        rows = await store.database.fetch(
            "SELECT k.id, p.step FROM kernels k JOIN pipeline_steps p USING (session_id) "
            "WHERE k.status = 'SCHEDULED' ORDER BY p.position"
        )
        for row in rows:
            how = FAILED if row["step"] in failing else DONE
            agent.see(row["id"], ObservedState.EXITED, **how)
            ran.append(row["step"])

        await agent.report()
        await reconcile_all(store)

    await reconcile_all(store)
    return ran


async def test_steps_run_in_their_order_and_a_failed_one_ends_those_after_its_success(
    store: Store,
) -> None:
    agent = FakeAgent(store)
    await agent.report()
    async with serve(store) as api:
        steps = (
            step("report", {"step": "train", "on": "any"}),
            step("train", "load"),
            step("publish", "train"),
            step("load"),
            step("alarm", {"step": "train", "on": "failure"}),
        )
        made = await post(api, "admin", "", body(*steps))
        assert made["state"] == "pending"
        ran = await play(store, agent, "train")
        assert (ran[:2], sorted(ran[2:])) == (["load", "train"], ["alarm", "report"])
        view = await get(api, "admin", "train")
        assert states(view) == {
            "load": "succeeded", "train": "failed", "publish": "skipped", "alarm": "succeeded",
            "report": "succeeded",
        }  # fmt: skip
        assert view["state"] == "failed"
        skipped = next(one for one in view["steps"] if one["name"] == "publish")
        assert skipped["reason"] == "dependency-failed"
        assert (
            next(one for one in view["steps"] if one["name"] == "train")["session"]
            in skipped["detail"]
        )
        failed = next(one for one in view["steps"] if one["name"] == "train")
        assert (failed["attempt"], failed["exit_code"]) == (1, 1)
        assert failed["ended_at"] is not None
        assert (skipped["started_at"], skipped["exit_code"]) == (None, None)
        first = view["first_failure"]
        assert (first["step"], first["session"]) == ("train", failed["session"])
        assert (first["exit_code"], first["ended_at"]) == (1, failed["ended_at"])
        assert first["skipped"] == ["publish"]
        [listed] = json.loads((await api.call("admin", "GET", "/v1/pipelines"))[1])["items"]
        assert (listed["state"], listed["counts"]) == ("failed", view["counts"])

        await post(api, "admin", "/train/retry", expected=202)
        ran = await play(store, agent)
        assert (ran[0], sorted(ran[1:])) == ("train", ["publish", "report"])
        again = await get(api, "admin", "train")
        assert (again["state"], states(again)["alarm"]) == ("succeeded", "skipped")
        assert [one["run"] for one in again["steps"] if one["name"] in ("load", "train")] == [1, 2]
        await post(api, "admin", "/train/retry", expected=409)

    assert await store.integrity.check() == []


async def test_a_pending_step_waits_for_the_new_run_when_asked(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    patient = step("patient", "train", spec=SPEC | {"dependency_failed": "wait"})
    async with serve(store) as api:
        await post(api, "admin", "", body(step("train"), patient))
        assert await play(store, agent, "train") == ["train"]
        before = await get(api, "admin", "train")
        assert states(before) == {"train": "failed", "patient": "pending"}
        waiting = before["steps"][1]["session_id"]
        revision = (await store.sessions.get(Scope.system(), waiting)).revision
        await post(api, "admin", "/train/retry", expected=202)

        # A decision based on its earlier dependency is stale.
        assert (await store.sessions.get(Scope.system(), waiting)).revision == revision + 1
        assert await store.integrity.check() == []
        assert await play(store, agent) == ["train", "patient"]
        view = await get(api, "admin", "train")
        assert (view["state"], [one["run"] for one in view["steps"]]) == ("succeeded", [2, 1])


async def test_a_session_tells_its_pipeline_and_step(store: Store) -> None:
    async with serve(store) as api:

        async def listed(caller: str, query: str) -> tuple[int, list[dict[str, Any]]]:
            status, text = await api.call(caller, "GET", f"/v1/sessions{query}")
            return status, json.loads(text).get("items", [])

        one = body(step("part", array="3-4", spec=SPEC | {"resources": {}}))
        old = await post(api, "ann", "", one)
        made = await post(api, "ann", "", one | {"steps": [*one["steps"], step("sum", "part")]})
        assert (await api.call("ann", "POST", "/v1/sessions", SPEC | {"resources": {}}))[0] == 201
        place = {"id": made["id"], "name": "train", "run": 1}
        places = [place | {"step": "part", "index": n} for n in (3, 4)]
        places.append(place | {"step": "sum", "index": None})
        status, found = await listed("mate", "?pipeline=train")
        by_id = {view["id"]: view["pipeline"] for view in found}
        ids = [one["session_id"] for one in made["steps"]]
        assert (status, by_id) == (200, dict(zip(ids, places, strict=True)))
        assert len((await listed("ann", f"?pipeline={old['id']}"))[1]) == 2
        assert [view["pipeline"] for view in (await listed("ann", ""))[1]].count(None) == 1

        # No caller learns what another project has.
        assert (await listed("bob", "?pipeline=train"))[0] == 404
        assert (await listed("bob", f"?pipeline={old['id']}"))[0] == 404
        changes = await store.overviews.changed(ROOT, [SessionId(one) for one in by_id], (), ())
        told = {c.view.id: c.view.model_dump()["pipeline"] for c in changes}
        assert told == by_id


async def test_an_array_runs_so_many_at_once(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    async with serve(store) as api:
        made = await post(api, "admin", "", body(step("part", array="3-7%2"), step("sum", "part")))
        assert list(states(made)) == [*(f"part[{n}]" for n in range(3, 8)), "sum"]
        kept = await api.call("admin", "GET", f"/v1/sessions/{made['steps'][1]['session_id']}")
        env = json.loads(kept[1])["spec"]["env"]
        assert (env["JOB_COMPLETION_INDEX"], env["JOB_ARRAY_COUNT"]) == ("4", "5")
        assert await schedule(store) == 2
        await post(api, "admin", "/train/stop", expected=202)
        await reconcile_all(store)
        assert await schedule(store) == 0


async def test_an_element_starts_when_any_other_has_ended(store: Store) -> None:
    """One slow element does not keep those behind it waiting."""
    agent = FakeAgent(store)
    await agent.report()
    async with serve(store) as api:
        await post(api, "admin", "", body(step("part", array="0,2,4-6%2")))
        assert await schedule(store) == 2
        for ended in (2, 4, 5, 6):
            await end_elements(store, agent, {ended: DONE})
            assert await schedule(store) == (ended != 6)

        assert (await get(api, "admin", "train"))["counts"] == {"running": 1, "succeeded": 4}

    assert await store.integrity.check() == []


async def test_stopping_a_pending_element_starts_no_other(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    async with serve(store) as api:
        made = await post(api, "admin", "", body(step("part", array="0-6%2")))
        ids = [one["session_id"] for one in made["steps"]]
        assert await schedule(store) == 2
        for element in (2, 5, 3):
            status, _ = await api.call("admin", "POST", f"/v1/sessions/{ids[element]}/stop")
            assert status == 202
            await reconcile_all(store)
            assert await schedule(store) == 0, "as many run as may"

        await end_elements(store, agent, {1: DONE})
        assert await schedule(store) == 1
        await end_elements(store, agent, {0: DONE, 4: DONE})
        assert await schedule(store) == 1
        await end_elements(store, agent, {6: FAILED})
        assert (await get(api, "admin", "train"))["counts"] == {
            "succeeded": 3, "stopped": 3, "failed": 1,
        }  # fmt: skip

    turns = "SELECT FROM pipeline_steps WHERE turn IS NOT NULL"
    assert await store.database.fetch(turns) == []


async def test_an_element_that_could_not_be_admitted_in_time_starts_later(store: Store) -> None:
    """A manager stopped between the end of an element and the turn of the next one, or a manager
    of the previous release saw the end."""
    agent = FakeAgent(store)
    await agent.report()
    async with serve(store) as api:
        await post(api, "admin", "", body(step("part", array="0-3%2")))
        assert await schedule(store) == 2
        await store.database.fetch("ALTER FUNCTION admit_elements RENAME TO admit_later")
        with pytest.raises(asyncpg.UndefinedFunctionError):
            await end_elements(store, agent, {0: DONE})

        await store.database.fetch("ALTER FUNCTION admit_later RENAME TO admit_elements")
        await end_elements(store, agent, {1: DONE})
        await store.database.fetch(
            "UPDATE pipeline_steps SET turn = CASE WHEN index < 2 THEN 'taken' ELSE 'waiting' END"
        )
        assert await schedule(store) == 0
        await store.turns.recover()
        assert await schedule(store) == 2


async def test_element_by_element(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    async with serve(store) as api:
        after = {"step": "part", "of": "each"}
        await post(
            api, "admin", "", body(step("part", array="0-2"), step("next", after, array="0-2"))
        )
        assert await schedule(store) == 3
        await end_elements(store, agent, {1: DONE, 2: FAILED})
        assert await schedule(store) == 1
        found = states(await get(api, "admin", "train"))
        assert (found["next[0]"], found["next[1]"], found["next[2]"]) == (
            "pending", "running", "skipped",
        )  # fmt: skip


MISCOUNTED = (
    "SELECT s.name FROM sessions s WHERE s.dependencies <> "
    "(SELECT count(*) FROM session_dependencies d WHERE d.session_id = s.id) + "
    "(SELECT count(p.at_once) FROM pipeline_steps p WHERE p.session_id = s.id)"
)


async def end_elements(store: Store, agent: FakeAgent, how: dict[int, dict[str, Any]]) -> None:
    """End the scheduled elements of an array that have these numbers."""
    rows = await store.database.fetch(
        "SELECT k.id, p.index FROM kernels k JOIN pipeline_steps p USING (session_id) "
        "WHERE k.status NOT IN ('PENDING', 'TERMINATED', 'CANCELLED', 'ERROR')"
    )
    found = {row["index"]: row["id"] for row in rows}
    for index, end in how.items():
        agent.see(found[index], ObservedState.EXITED, **end)

    await agent.report()
    await reconcile_all(store)


async def test_conditions_on_the_elements_of_an_array(store: Store) -> None:
    """A failure of any element is enough by default, once all have ended."""
    agent = FakeAgent(store)
    await agent.report()
    async with serve(store) as api:
        part = {"step": "part", "on": "failure"}
        steps = (
            step("part", array="0-2"),
            step("other", array="0-1"),
            step("alarm", part),
            step("all-failed", part | {"of": "all"}),
            step("all-succeeded", "part"),
            step("one-succeeded", {"step": "part", "of": "any"}),
            step("both", part, {"step": "other", "on": "failure"}),
        )
        await post(api, "admin", "", body(*steps))
        await schedule(store)
        rows = await store.database.fetch(
            "SELECT k.id, p.step, p.index FROM kernels k JOIN pipeline_steps p USING (session_id) "
            "WHERE k.status = 'SCHEDULED'"
        )
        kernels = {(row["step"], row["index"]): row["id"] for row in rows}
        agent.see(kernels.pop(("part", 1)), ObservedState.EXITED, **FAILED)
        await agent.report()
        await reconcile_all(store)
        assert not await schedule(store)
        found = states(await get(api, "admin", "train"))
        assert found["part[1]"] == "failed"
        assert (found["alarm"], found["one-succeeded"]) == ("pending", "pending"), "not all ended"
        assert (found["all-failed"], found["all-succeeded"]) == ("pending", "skipped")

        for kernel in kernels.values():
            agent.see(kernel, ObservedState.EXITED, **DONE)

        await agent.report()
        await reconcile_all(store)
        await play(store, agent)
        view = await get(api, "admin", "train")
        found = states(view)
        assert {name: found[name] for name in found if "[" not in name} == {
            "alarm": "succeeded",
            "all-failed": "skipped",
            "all-succeeded": "skipped",
            "one-succeeded": "succeeded",
            "both": "skipped",
        }
        detail = {one["name"]: one["detail"] for one in view["steps"]}
        assert "none of the 2 elements of step other ended with failure" in detail["both"]


async def test_an_array_that_is_retried_runs_so_many_at_once_with_those_that_are_pending(
    store: Store,
) -> None:
    agent = FakeAgent(store)
    await agent.report()
    async with serve(store) as api:
        await post(api, "admin", "", body(step("part", array="0-4%2")))
        assert await schedule(store) == 2
        await end_elements(store, agent, {0: FAILED})
        assert await schedule(store) == 1
        await end_elements(store, agent, {1: DONE, 2: FAILED})
        kept = ["failed", "succeeded", "failed", "pending", "pending"]
        assert list(states(await get(api, "admin", "train")).values()) == kept

        # 0 and 2 run again, then 3 and 4, which had their turns and give them back.
        await post(api, "admin", "/train/retry", expected=202)
        assert await store.database.fetch(MISCOUNTED) == []
        assert await store.integrity.check() == []
        assert await schedule(store) == 2
        await end_elements(store, agent, {0: FAILED, 2: FAILED})

        # 0 and 2 run again, and 3 and 4 again wait for their turns.
        await post(api, "admin", "/train/retry", expected=202)
        assert await store.database.fetch(MISCOUNTED) == []
        assert await schedule(store) == 2
        await end_elements(store, agent, {0: DONE})
        assert await schedule(store) == 1
        await end_elements(store, agent, {2: DONE, 3: FAILED})
        kept = ["succeeded", "succeeded", "succeeded", "failed", "pending"]
        assert list(states(await get(api, "admin", "train")).values()) == kept

        # 3 and 4 are the only ones that have yet to run.
        await post(api, "admin", "/train/retry", expected=202)
        assert await store.database.fetch(MISCOUNTED) == []
        assert await schedule(store) == 2
        await end_elements(store, agent, {3: DONE, 4: DONE})
        view = await get(api, "admin", "train")
        assert (view["state"], [one["run"] for one in view["steps"]]) == (
            "succeeded",
            [3, 1, 3, 2, 1],
        )

    assert await store.integrity.check() == []


@pytest.mark.usefixtures("owners")
async def test_nothing_is_created_for_a_pipeline_that_is_refused(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await store.quotas.put(ROOT, "user", "mate", QuotaLimits(pending=1))
    never = step("b", spec={"command": ["x"], "resources": {"cuda.device": 64}})
    wrong: list[tuple[str, dict[str, Any], int, str]] = [
        ("ann", body(step("a", "b"), step("b", "a")), 422, "wait for each other: "),
        ("ann", body(step("a", "a")), 422, "wait for each other: a after a"),
        ("ann", body(step("a"), step("a")), 422, "'a' occurs twice"),
        ("ann", body(step("a", "none")), 422, "'none', which is not a step"),
        ("ann", body(step("a", array="0-10000")), 422, "has 10001 elements"),
        (
            "ann",
            body(step("a", array="0-999"), step("b", "a", array="0-999")),
            422,
            "wait for 1000000",
        ),
        ("ann", body(step("a", array="5-1")), 422, "no element from 5 to 1"),
        ("ann", body(), 422, "steps"),
        ("ann", body(step("a"), never), 409, "step 'b': "),
        (
            "ann",
            body(step("a"), step("b", spec=SPEC | {"resource_group": "none"})),
            404,
            "step 'b': ",
        ),
        ("ann", body(step("a", spec=SPEC | {"name": "mine"})), 422, "spec.name"),
        ("ann", body(step("a", spec=SPEC | {"secret_env": {"A": "none"}})), 422, "step 'a': "),
        ("ann", body(step("a", spec=None, template="none")), 404, "step 'a': "),
        ("mate", body(step("a"), step("b")), 409, "may have 1 pending"),
        ("viewer", body(step("a")), 403, "role"),
    ]
    async with serve(store) as api:
        for caller, request, expected, message in wrong:
            status, text = await api.call(caller, "POST", "/v1/pipelines", request)
            assert (status, message in json.loads(text)["detail"]) == (expected, True), text

        dry = await api.call("ann", "POST", "/v1/pipelines/plan", body(step("a")))
        assert (dry[0], states(json.loads(dry[1]))) == (200, {"a": "pending"})
        assert await store.database.fetch("SELECT id FROM sessions") == []
        assert await store.database.fetch("SELECT id FROM pipelines") == []


async def test_another_project_sees_no_pipeline_and_a_mate_changes_none(store: Store) -> None:
    async with serve(store) as api:
        made = await post(api, "ann", "", body(step("a", spec=SPEC | {"resources": {}})))
        assert json.loads((await api.call("bob", "GET", "/v1/pipelines"))[1])["items"] == []
        for path in ("train", made["id"]):
            assert (await api.call("bob", "GET", f"/v1/pipelines/{path}"))[0] == 404
            assert (await api.call("boss", "POST", f"/v1/pipelines/{path}/stop"))[0] == 404

        assert (await api.call("mate", "POST", "/v1/pipelines/train/stop"))[0] == 403
        assert (await get(api, "mate", "train"))["id"] == made["id"]
        stopped = await post(api, "lead", "/train/stop", expected=202)
        assert states(stopped) == {"a": "stopped"}
        await post(api, "admin", "/train/retry", expected=202)
        [_, again] = await store.database.fetch(
            "SELECT owner, isolated FROM sessions ORDER BY created_at"
        )
        assert (again["owner"], again["isolated"]) == ("ann", True)


async def test_a_pipeline_is_deleted_with_its_sessions(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    async with serve(store) as api:
        await post(api, "admin", "", body(step("a"), step("b", "a")))
        await play(store, agent)
        agent.seen.clear()
        await agent.report()

    assert await store.retention.delete_sessions(3600) == 0
    old = "now() - interval '1 day'"
    await store.database.fetch(f"UPDATE sessions SET created_at = {old}, status_since = {old}")
    assert await store.retention.delete_sessions(3600) == 0
    assert len(await store.database.fetch("SELECT id FROM pipelines")) == 1
    await store.database.fetch(f"UPDATE pipelines SET created_at = {old}")
    assert [await store.retention.delete_sessions(3600) for _ in range(2)] == [1, 1]
    assert await store.database.fetch("SELECT id FROM pipelines") == []


async def test_a_repeated_submission_under_a_key_creates_one_pipeline(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    async with serve(store) as api:

        async def submit(key: str, request: dict[str, Any]) -> tuple[int, dict[str, Any], bool]:
            headers = {"Authorization": f"Bearer {api.keys['ann']}", "Idempotency-Key": key}
            async with api.http.post("/v1/pipelines", json=request, headers=headers) as answer:
                return answer.status, await answer.json(), "Idempotent-Replayed" in answer.headers

        request = body(step("a"), step("b", "a"))
        at_once = await asyncio.gather(*(submit("k1", request) for _ in range(8)))
        assert {status for status, _, _ in at_once} == {201}
        assert len({made["id"] for _, made, _ in at_once}) == 1

        # The current results of the checks do not affect a request that was already accepted.
        await store.quotas.put(ROOT, "user", "ann", QuotaLimits(pending=0))
        status, again, replayed = await submit("k1", request)
        assert (status, again["id"], replayed) == (201, at_once[0][1]["id"], True)
        status, refused, _ = await submit("k1", body(step("a")))
        assert (status, "used before with another request" in refused["detail"]) == (409, True)
        status, refused, _ = await submit("k2", request)
        assert (status, "may have 0 pending" in refused["detail"]) == (409, True)
        await store.quotas.put(ROOT, "user", "ann", QuotaLimits())
        assert (await submit("k2", request))[0] == 201  # a refused request has not used a key
        assert len(await store.database.fetch("SELECT id FROM pipelines")) == 2
        headers = {"Authorization": f"Bearer {api.keys['ann']}", "Idempotency-Key": "k1"}
        async with api.http.post("/v1/sessions", json=SPEC, headers=headers) as answer:
            assert answer.status == 409


async def test_the_graph_is_drawn_with_the_state_of_each_step(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    async with serve(store) as api:
        await post(api, "admin", "", body(step("a"), step("b", "a")))
        await play(store, agent, "a")
        headers = {"Authorization": f"Bearer {api.keys['admin']}"}
        async with api.http.get("/v1/pipelines/train/graph.svg", headers=headers) as answer:
            assert (answer.status, answer.content_type) == (200, "image/svg+xml")
            titles = [
                one.text for one in ElementTree.fromstring(await answer.text()).iter(f"{SVG}title")
            ]

        assert titles[:2] == ["pipeline train: failed", "a: success"]
        assert titles[2].startswith("a: failed (")
        assert titles[3] == "b: skipped (dependency-failed)"
        assert (await api.call("bob", "GET", "/v1/pipelines/train/graph.svg"))[0] == 404
