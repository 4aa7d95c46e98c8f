"""Steps that take earlier results or share live runs."""

from __future__ import annotations

import asyncio
from typing import Any

from moorage.common.model.group_options import GroupOptions
from moorage.manager.store import Store

from .conftest import FakeAgent, reconcile_all
from .tenancy_harness import Api, serve
from .test_pipelines import SPEC, body, get, play, post, states, step

REUSED = SPEC | {"reuse": "both"}


async def begun(store: Store) -> tuple[Any, FakeAgent]:
    agent = FakeAgent(store)
    await agent.report()
    return store, agent


def steps(last: str = "x", **more: Any) -> tuple[dict[str, Any], ...]:
    return (
        step("load", spec=REUSED, outputs=["data"]),
        step("train", spec=REUSED, inputs=["load"], array="0-1%1"),
        step("judge", "train", spec=REUSED | {"command": [last]} | more),
    )


def adopted(view: dict[str, Any]) -> list[str]:
    return [one["name"] for one in view["steps"] if one["adopted_from"]]


async def run(
    api: Api, store: Store, agent: FakeAgent, *given: dict[str, Any], query: str = ""
) -> list[str]:
    await post(api, "admin", query, body(*given))
    await reconcile_all(store)
    return await play(store, agent)


async def test_equal_steps_after_equal_steps_take_their_results(store: Store) -> None:
    _, agent = await begun(store)
    async with serve(store) as api:
        assert await run(api, store, agent, *steps()) == ["load", "train", "train", "judge"]
        made = await post(api, "admin", "", body(*steps()))
        assert adopted(made) == ["load", "train", "train", "judge"]
        assert await play(store, agent) == []
        again = await get(api, "admin", "train")
        assert (again["state"], set(states(again).values())) == ("succeeded", {"succeeded"})

        # If the last step differs, only that step runs, and its dependencies take earlier results.
        assert await run(api, store, agent, *steps("y")) == ["judge"]
        # A changed first step changes the meaning of all steps after it.
        first, *rest = steps()
        changed = first | {"spec": REUSED | {"command": ["z"]}}
        assert await run(api, store, agent, changed, *rest) == ["load", "train", "train", "judge"]

    assert await store.integrity.check() == []


async def test_force_runs_every_step_and_gives_the_results_that_later_ones_take(
    store: Store,
) -> None:
    _, agent = await begun(store)
    async with serve(store) as api:
        await run(api, store, agent, *steps())
        assert len(await run(api, store, agent, *steps(), query="?force=true")) == 4
        forced = await get(api, "admin", "train")
        later = await post(api, "admin", "", body(*steps()))
        assert later["steps"][0]["adopted_from"] == forced["steps"][0]["session_id"]


async def test_a_step_takes_no_result_where_what_it_waits_for_runs_anew(store: Store) -> None:
    _, agent = await begun(store)
    async with serve(store) as api:
        await run(api, store, agent, *steps())
        await store.database.fetch("UPDATE sessions SET status_since = now() - interval '2 days'")
        # The output of the first step is no longer kept.
        assert await run(api, store, agent, *steps()) == ["load", "train", "train", "judge"]
        never = step("load", spec=SPEC | {"reuse": "never"}, outputs=["data"])
        assert len(await run(api, store, agent, never, *steps()[1:])) == 4


async def test_live_runs_are_shared_and_shown_as_their_steps(store: Store) -> None:
    _, agent = await begun(store)
    async with serve(store) as api:
        made = await asyncio.gather(*(post(api, "admin", "", body(*steps())) for _ in range(3)))
        assert sorted(len(adopted(view)) for view in made) == [0, 4, 4]
        assert await play(store, agent, "judge") == ["load", "train", "train", "judge"]
        views = [await get(api, "admin", view["id"]) for view in made]
        assert [view["state"] for view in views] == ["failed"] * 3

        # A retry runs the failed step again.
        shared = next(view for view in views if adopted(view))
        await post(api, "admin", f"/{shared['id']}/retry", expected=202)
        assert await play(store, agent) == ["judge"]
        assert (await get(api, "admin", shared["id"]))["state"] == "succeeded"

    assert await store.integrity.check() == []


async def test_equal_steps_of_one_pipeline_share_a_run(store: Store) -> None:
    _, agent = await begun(store)
    async with serve(store) as api:
        twins = step("one", spec=REUSED), step("two", spec=REUSED), step("after", "one", "two")
        assert await run(api, store, agent, *twins) == ["one", "after"]
        assert states(await get(api, "admin", "train")) == dict.fromkeys(
            ("one", "two", "after"), "succeeded"
        )


async def test_group_and_project_set_the_default(store: Store) -> None:
    _, agent = await begun(store)
    plain = step("load")
    async with serve(store) as api:
        assert await run(api, store, agent, plain) == ["load"]
        await store.groups.put("default", GroupOptions(reuse="both"), actor="t")
        assert await run(api, store, agent, plain) == ["load"], (
            "the first one was no result for others"
        )
        assert await run(api, store, agent, plain) == []
        status, text = await api.call("admin", "PATCH", "/v1/projects/default", {"reuse": "never"})
        assert status == 200, text

        # empties the cache
        await store.groups.put("default", GroupOptions(reuse="both"), actor="t")
        assert await run(api, store, agent, plain) == ["load"]
        assert await run(api, store, agent, step("load", spec=REUSED)) == []
