"""The catalogue of models over REST: what each needs, the agents that it fits, and the endpoint that
serves it."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from moorage.common.catalog import load_models
from moorage.common.model.group_options import GroupOptions
from moorage.common.model.spec import EndpointSpec
from moorage.manager.store import Store
from tests.store.conftest import FakeAgent
from tests.store.tenancy_harness import Api, serve

SMALL = "Qwen/Qwen3-0.6B"


async def read(api: Api, caller: str, path: str) -> dict[str, Any]:
    status, text = await api.call(caller, "GET", path)
    assert status == 200, text
    found: dict[str, Any] = json.loads(text)
    return found


async def test_models_and_the_endpoints_that_serve_them(store: Store) -> None:
    async with serve(store) as api:
        await FakeAgent(store, "big", gpus=2).report()
        await FakeAgent(store, "other", gpus=2, group="other").report()
        listed = (await read(api, "viewer", "/v1/catalog"))["items"]
        assert [one["id"] for one in listed] == [model.id for model in load_models()]

        fit = await read(api, "viewer", f"/v1/catalog/{SMALL}")
        assert fit["model"] == next(one for one in listed if one["id"] == SMALL)
        assert [(node["agent_id"], node["fits"]) for node in fit["nodes"]] == [("big", True)]
        spec = fit["spec"]
        assert (spec["model"], spec["engine"], spec["name"]) == (SMALL, "vllm", "Qwen3-0.6B")
        assert spec["resources"]["cuda.device"] == "1"
        assert spec["resources"]["mem"] == "8GiB"
        assert EndpointSpec.model_validate(spec).start_timeout_s > 0
        assert (await api.call("ann", "POST", "/v1/endpoints", spec))[0] == 201

        shorter = await read(api, "viewer", f"/v1/catalog/{SMALL}?context=4096")
        assert "--max-model-len=4096" in shorter["spec"]["args"]

        # Many GPUs are needed for the largest, and no agent has them.
        large = max(load_models(), key=lambda model: model.weights)
        fit = await read(api, "ann", f"/v1/catalog/{quote(large.id, safe='')}")
        assert fit["spec"] is None
        assert [node["fits"] for node in fit["nodes"]] == [False]
        assert large.id in fit["problem"]
        assert fit["next_step"]

        empty = await read(api, "ann", f"/v1/catalog/{SMALL}?resource_group=no-such-group")
        assert (empty["nodes"], empty["spec"]) == ([], None)
        assert "no-such-group" in empty["problem"]

        for path, status in (
            ("/v1/catalog/no-such-model", 404),
            (f"/v1/catalog/{SMALL}?context=-1", 422),
            (f"/v1/catalog/{SMALL}?context={10**30}", 422),
        ):
            assert (await api.call("ann", "GET", path))[0] == status, path


async def test_agents_of_a_group_that_the_caller_may_not_use_are_not_shown(store: Store) -> None:
    async with serve(store) as api:
        await FakeAgent(store, "closed", gpus=2, group="closed").report()
        await store.groups.put("closed", GroupOptions(projects=["vision"]), actor="t")
        path = f"/v1/catalog/{SMALL}?resource_group=closed"
        own = await read(api, "ann", path)
        foreign = await read(api, "bob", path)
        unknown = await read(api, "bob", f"/v1/catalog/{SMALL}?resource_group=unknown")
        assert [node["agent_id"] for node in own["nodes"]] == ["closed"]
        assert (foreign["nodes"], foreign["spec"]) == ([], None)
        assert foreign["problem"] == unknown["problem"].replace("unknown", "closed")
