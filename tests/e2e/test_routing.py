"""Routing through the real proxy by adapter, prefix, canary weight and fallback."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from moorage.common.model.serving import Adapter, Fallback, Routing
from moorage.common.model.spec import EndpointSpec
from moorage.common.views.endpoints import EndpointPatch
from moorage.sdk import Client

from .harness import Platform, until

pytestmark = [pytest.mark.xdist_group("platform"), pytest.mark.timeout(300)]
ENGINE = f"{sys.executable} {Path(__file__).with_name('naming_engine.py')}"
MAIN = "main"
SPARE = "spare"
WEIGHTS = str(Path(__file__).parent)  # it has to exist, but its content is never read


def spec(name: str, **fields: Any) -> EndpointSpec:
    resources = {"cpu": "0.1", "mem": "64MiB"}
    return EndpointSpec.model_validate(
        {"name": name, "engine": "vllm", "model": WEIGHTS, "resources": resources} | fields
    )


class Asker:
    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = f"{url}/completions"

    async def ask(self, model: str, prompt: str = "") -> dict[str, Any]:
        """The engine's answer, with the model in the proxy's header, or the status of an error."""
        async with self._http.post(self._url, json={"model": model, "prompt": prompt}) as answer:
            found: dict[str, Any] = await answer.json()
            if answer.status != 200:
                return {"status": answer.status}
            return found | {"served_by": answer.headers.get("x-moorage-model", "")}


async def test_requests_go_where_their_endpoint_says(platform: Platform) -> None:
    platform.start("up", "--set", f"agent.vllm_command={ENGINE}")
    await platform.wait_until_ready()
    routing = Routing(fallbacks=[Fallback(model=SPARE)], fallback_after_s=0, affinity="prefix")
    adapters = [Adapter(name="sql", source=WEIGHTS)]
    timeout = aiohttp.ClientTimeout(total=30)
    async with (
        platform.client() as client,
        aiohttp.ClientSession(headers=platform.auth, timeout=timeout) as http,
    ):
        await client.endpoints.create(spec(SPARE, env={"REVISION": "spare"}))
        main = spec(MAIN, replicas=2, routing=routing, adapters=adapters, env={"REVISION": "1"})
        await client.endpoints.create(main)
        asker = Asker(http, platform.openai_url)

        async def are_routed() -> bool:
            views = [await client.endpoints.get(name) for name in (MAIN, SPARE)]
            pids = {(await asker.ask(MAIN, f"{n}"))["pid"] for n in range(16)}
            return [view.ready for view in views] == [2, 1] and len(pids) == 2

        await until("all replicas have requests", are_routed)
        await _adapters(asker)
        await _affinity(asker)
        await _canary(client, asker)
        await _fallback(client, asker)


async def _adapters(asker: Asker) -> None:
    adapted = await asker.ask(f"{MAIN}:sql")
    assert (adapted["model"], adapted["revision"]) == (f"{MAIN}:sql", "1")
    assert await asker.ask(f"{MAIN}:other") == {"status": 404}


async def _affinity(asker: Asker) -> None:
    places = {}
    for prefix in range(12):
        pids = {(await asker.ask(MAIN, f"{prefix}" * 3000 + f"{n}"))["pid"] for n in range(5)}
        assert len(pids) == 1, "requests that begin alike go to one replica"
        places[prefix] = pids.pop()
    assert len(set(places.values())) == 2, "and others elsewhere"


async def _canary(client: Client, asker: Asker) -> None:
    patch = EndpointPatch(env={"REVISION": "2"}, rollout={"canary": 30})
    await client.endpoints.update(MAIN, patch)

    async def share() -> Counter[str]:
        return Counter([(await asker.ask(MAIN, f"prompt {n}"))["revision"] for n in range(200)])

    async def is_asked() -> Counter[str] | None:
        seen = await share()
        return seen if len(seen) == 2 else None

    seen: Counter[str] = await until("the canary has requests", is_asked)
    assert sum(seen.values()) == 200
    again = await share()
    assert 30 <= again["2"] <= 90, f"about 30 % of 200: {again}"
    await client.rollouts.promote(MAIN)

    async def is_promoted() -> bool:
        return set(await share()) == {"2"}

    await until("the new revision has all requests", is_promoted)


async def _fallback(client: Client, asker: Asker) -> None:
    await client.endpoints.scale(MAIN, 0)

    async def falls_back() -> dict[str, Any] | None:
        found = await asker.ask(MAIN)
        return found if found.get("served_by") else None

    found: dict[str, Any] = await until("the other model answers", falls_back)
    assert (found["served_by"], found["model"], found["revision"]) == (SPARE, SPARE, "spare")
