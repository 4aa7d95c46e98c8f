"""Bounds on submitting a pipeline, and the answer to it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moorage.common.model.pipelines import MAX_BYTES, MAX_STEPS
from moorage.manager.store import Store

from .conftest import FAILED, FakeAgent, schedule
from .tenancy_harness import Api, serve
from .test_pipelines import body, end_elements, post, step

SPEC = {"command": ["x"], "resources": {"cpu": 1}}


async def submit(api: Api, steps: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    status, text = await api.call("ann", "POST", "/v1/pipelines", {"name": "large", "steps": steps})
    found: dict[str, Any] = json.loads(text)
    return status, found


async def test_a_pipeline_may_be_larger_than_other_requests(store: Store) -> None:
    await FakeAgent(store).report()
    async with serve(store) as api:
        args = [
            "x" * 1000
        ] * 30  # 50 such steps are larger than 1 MiB, which is the limit for other requests
        steps = [{"name": f"s-{n}", "spec": SPEC | {"args": args}} for n in range(50)]
        status, made = await submit(api, steps)
        assert status == 201, made
        assert made == json.loads((await api.call("ann", "GET", f"/v1/pipelines/{made['id']}"))[1])

        status, refused = await submit(
            api, [{"name": "s", "spec": SPEC | {"args": ["x" * MAX_BYTES]}}]
        )
        assert (status, str(MAX_BYTES) in refused["detail"]) == (413, True)
        other = SPEC | {"args": args * 50}
        assert (await api.call("ann", "POST", "/v1/sessions", other))[0] == 413


@pytest.mark.parametrize("spelled_out", [False, True])
async def test_one_step_too_many_is_refused_with_the_number_that_is_allowed(
    store: Store, spelled_out: bool
) -> None:
    await FakeAgent(store).report()
    steps: list[dict[str, Any]] = [{"name": "s", "array": f"0-{MAX_STEPS}", "spec": SPEC}]
    if spelled_out:
        steps = [{"name": f"s-{n}", "spec": SPEC} for n in range(MAX_STEPS + 1)]

    async with serve(store) as api:
        status, refused = await submit(api, steps)
        assert status == 422, refused
        said = refused["detail"] + json.dumps(refused.get("errors", []))
        assert f"{MAX_STEPS + 1}" in said
        assert f"{MAX_STEPS}" in said.replace(f"{MAX_STEPS + 1}", "")

    assert await store.database.fetch("SELECT FROM pipelines") == []


@pytest.mark.slow
async def test_the_largest_array_is_retried_before_a_statement_times_out(store: Store) -> None:
    """Every pending element waits for another one, as after a retry by an earlier release."""
    agent = FakeAgent(store)
    await agent.report()
    async with serve(store) as api:
        array = f"0-{MAX_STEPS - 1}%2"
        await post(api, "admin", "", body(step("part", array=array)))
        assert await schedule(store) == 2
        await end_elements(store, agent, {0: FAILED, 1: FAILED})
        await store.database.fetch(
            "UPDATE session_dependencies d SET depends_on = e.session_id "
            "FROM pipeline_steps p, pipeline_steps e "
            "WHERE p.session_id = d.session_id AND e.index = p.index - 1"
        )
        await post(api, "admin", "/train/retry", expected=202)
        assert await schedule(store) == 2
        changed = "SELECT count(*) AS n FROM session_history WHERE event = 'redirected'"
        assert (await store.database.fetch(changed))[0]["n"] == MAX_STEPS - 2
