"""An endpoint with real vLLM engines: load, priorities, cancellation, scaling and lost replicas.
Each test continues with the endpoint as the previous one left it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import openai
import pytest
import pytest_asyncio

from moorage.common.model.spec import EndpointSpec
from moorage.common.views.endpoints import EndpointPatch, EndpointView
from moorage.common.views.keys import KeySpec
from moorage.demo.model import write_tiny_llama_dir
from tests.e2e.harness import Platform, kernels_below, processes, until

from .test_vllm import ARGS, ENV

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="module")]
NAME = "served"
SEATS = 4
TOOLS = ["--enable-auto-tool-choice", "--tool-call-parser", "phi4_mini_json"]
OPTIONS = [*ARGS, *TOOLS, "--scheduling-policy", "priority"]
# Two engines share the cores of a small machine.
THREADS = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
QUESTION = [{"role": "user", "content": "Tell me about the sea."}]
LOADED_S = 400.0


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def endpoint(platform: Platform) -> AsyncIterator[None]:
    """One replica, ready."""
    model = platform.home / "served-model"
    write_tiny_llama_dir(model)
    await platform.wait_until_ready()
    spec = EndpointSpec(
        name=NAME, engine="vllm", model=str(model), args=OPTIONS, env=ENV | THREADS,
        resources={"cpu": "0.5", "mem": "2GiB"}, start_timeout_s=LOADED_S, stop_grace_s=8,
    )  # fmt: skip
    async with platform.client() as client:
        await client.endpoints.create(spec)
        await ready(platform, 1)
        yield
        await client.endpoints.delete(NAME)

    await until(
        "no engine is left", lambda: asyncio.to_thread(lambda: not kernels_below(platform.home))
    )


async def view(platform: Platform) -> EndpointView:
    async with platform.client() as client:
        return await client.endpoints.get(NAME)


async def ready(platform: Platform, replicas: int) -> EndpointView:
    """Wait until that many are ready, no others exist, and the engine of each runs: a replica that
    was just killed is considered ready for some milliseconds more."""

    async def are_ready() -> EndpointView | None:
        found = await view(platform)
        live = [replica for replica in found.sessions if replica.state]
        engines = await asyncio.to_thread(kernels_below, platform.home)
        return found if found.ready == len(live) == len(set(engines.values())) == replicas else None

    found: EndpointView = await until(f"{replicas} ready", are_ready, LOADED_S)
    return found


async def gauges(platform: Platform) -> dict[str, float]:
    """The only replica's own metric: its name without labels, values added up."""
    (replica,) = [r for r in (await view(platform)).sessions if r.state]
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"http://{replica.address}/metrics") as answer,
    ):
        lines = (await answer.text()).splitlines()

    found = Counter[str]()
    for line in lines:
        if line.startswith("vllm:"):
            found[line.partition("{")[0].partition(" ")[0]] += float(line.rsplit(" ", 1)[1])

    return dict(found)


async def series(platform: Platform) -> dict[str, float]:
    """The manager's Prometheus data about its only replica."""
    prefix = "moorage_endpoint_replica_"
    async with (
        aiohttp.ClientSession(headers=platform.auth) as http,
        http.get(f"{platform.url}/v1/metrics") as answer,
    ):
        lines = (await answer.text()).splitlines()
    ours = (line for line in lines if line.startswith(prefix) and f'model="{NAME}"' in line)
    return {line[len(prefix) : line.index("{")]: float(line.rsplit(" ", 1)[1]) for line in ours}


class Asker:
    """Requests through the proxy, or to ``url``."""

    def __init__(self, http: aiohttp.ClientSession, key: str, url: str) -> None:
        self._http = http
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}"}

    def post(self, path: str = "/chat/completions", **fields: Any) -> Any:
        body = {"model": NAME, "messages": QUESTION} | fields
        return self._http.post(self._url + path, json=body, headers=self._headers)

    async def long(self, tokens: int = 200, **fields: Any) -> int:
        """The status of a request for this many tokens, whatever the model generates."""
        async with self.post(max_tokens=tokens, ignore_eos=True, **fields) as answer:
            await answer.read()
            return int(answer.status)

    async def first_event_s(self) -> float:
        began = time.perf_counter()
        async with self.post(max_tokens=2, stream=True) as answer:
            assert answer.status == 200
            await answer.content.readuntil(b"\n\n")
            passed = time.perf_counter() - began
            await answer.read()
        return passed


@asynccontextmanager
async def asker(platform: Platform, key: str = "", url: str = "") -> AsyncIterator[Asker]:
    timeout = aiohttp.ClientTimeout(total=600)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
        yield Asker(http, key or platform.key, url or platform.openai_url)


@asynccontextmanager
async def crowd(platform: Platform, clients: int, tokens: int = 100) -> AsyncIterator[Counter[int]]:
    """This many clients that send requests repeatedly; the statuses of the answers."""
    seen = Counter[int]()
    over = asyncio.Event()

    async def client(asking: Asker) -> None:
        while not over.is_set():
            seen[await asking.long(tokens)] += 1

    async with asker(platform) as asking:
        running = [asyncio.create_task(client(asking)) for _ in range(clients)]
        try:
            yield seen
        finally:
            over.set()
            await asyncio.gather(*running)


async def test_forced_tool(platform: Platform) -> None:
    cities = {"type": "string", "enum": ["Oslo", "Quito"]}
    schema = {
        "type": "object",
        "properties": {"city": cities},
        "required": ["city"],
        "additionalProperties": False,
    }
    tool: Any = {"type": "function", "function": {"name": "weather", "parameters": schema}}
    choice: Any = {"type": "function", "function": {"name": "weather"}}
    async with openai.AsyncOpenAI(
        base_url=platform.openai_url, api_key=platform.key, max_retries=0
    ) as client:
        asked: Any = {
            "model": NAME,
            "messages": QUESTION,
            "tools": [tool],
            "tool_choice": choice,
            "max_tokens": 60,
        }
        whole = await client.chat.completions.create(**asked)
        (call,) = whole.choices[0].message.tool_calls
        assert call.function.name == "weather"
        assert json.loads(call.function.arguments)["city"] in cities["enum"]
        pieces = [
            delta.function.arguments or ""
            async for chunk in await client.chat.completions.create(**asked, stream=True)
            if chunk.choices
            for delta in chunk.choices[0].delta.tool_calls or ()
        ]
        assert json.loads("".join(pieces))["city"] in cities["enum"]


async def test_anthropic_messages(platform: Platform) -> None:
    url = f"{platform.openai_url}/messages"
    headers = {"x-api-key": platform.key, "anthropic-version": "2023-06-01"}
    body: dict[str, Any] = {"model": NAME, "max_tokens": 8, "messages": QUESTION}
    async with aiohttp.ClientSession(headers=headers) as http:
        async with http.post(url, json=body) as answer:
            document = await answer.json()
            assert (answer.status, document["type"], document["role"]) == (
                200,
                "message",
                "assistant",
            ), document
            assert document["usage"]["output_tokens"] == 8

        async with http.post(url, json=body | {"stream": True}) as answer:
            text = await answer.text()
            assert text.startswith("event: message_start\n")
            assert "event: message_stop\n" in text

        async with http.post(f"{url}/count_tokens", json=body) as answer:
            assert (await answer.json())["input_tokens"] > 0
        async with http.post(url, json=body | {"model": "none"}) as answer:
            assert (answer.status, (await answer.json())["type"]) == (404, "error")


async def test_load_of_its_engine_is_shown(platform: Platform) -> None:
    async with crowd(platform, 2 * SEATS) as seen:

        async def is_busy() -> EndpointView | None:
            found = await view(platform)
            shows = found.running == SEATS and found.waiting >= 2 and (found.kv_cache or 0) > 0
            return found if shows else None

        busy: EndpointView = await until("the load is shown", is_busy)

        async def is_in_metrics() -> bool:
            found = await series(platform)
            return found["running_requests"] == SEATS and min(found.values()) > 0

        async def is_described() -> bool:
            listed = await asyncio.to_thread(platform.run, "describe", NAME, "-o", "json")
            sessions = json.loads(listed.stdout)["endpoint"]["sessions"]
            return any(
                shown["running"] + shown["waiting"] > 0 for shown in sessions if shown["state"]
            )

        # Called directly, because the crowd does not wait for a command that takes seconds.
        await asyncio.gather(
            until("the metrics show it", is_in_metrics), until("the command shows it", is_described)
        )

    assert set(seen) == {200}
    assert busy.status == "busy"
    (replica,) = [r for r in busy.sessions if r.state]
    assert (replica.state, replica.running) == ("busy", SEATS)

    async def is_idle() -> bool:
        found = await view(platform)
        return (found.status, found.running, found.waiting) == ("ready", 0, 0)

    await until("it is idle again", is_idle)


async def test_priority_of_a_key_reaches_its_queue(platform: Platform) -> None:
    """Requests that arrive last, with a higher priority or with none, overtake waiting requests
    with a low priority."""
    async with platform.client() as client:
        lowly = (await client.keys.create(KeySpec(name="lowly", max_priority=1))).secret
        urgent = (await client.keys.create(KeySpec(name="urgent", max_priority=90))).secret

    ended: list[str] = []

    async def ask(name: str, asking: Asker) -> None:
        assert await asking.long() == 200
        ended.append(name)

    async with (
        asker(platform, lowly) as low,
        asker(platform, urgent) as high,
        asker(platform) as usual,
    ):
        asked = [asyncio.create_task(ask("lowly", low)) for _ in range(4 * SEATS)]

        async def wait_in_line() -> bool:
            found = await gauges(platform)
            return (
                found["vllm:num_requests_running"] + found["vllm:num_requests_waiting"] == 4 * SEATS
            )

        await until("they wait", wait_in_line)
        asked += [
            asyncio.create_task(ask("urgent", high)),
            asyncio.create_task(ask("usual", usual)),
        ]
        await asyncio.gather(*asked)

    print(f"ended: {' '.join(ended)}")
    assert max(ended.index("urgent"), ended.index("usual")) < 3 * SEATS


async def test_client_that_leaves_ends_the_work_for_it(platform: Platform) -> None:
    async def is_idle() -> bool:
        return (await gauges(platform))["vllm:num_requests_running"] == 0

    async def is_running() -> bool:
        return (await gauges(platform))["vllm:num_requests_running"] == 1

    for streams in (True, False):
        await until("it is idle", is_idle)
        before = (await gauges(platform))["vllm:generation_tokens_total"]
        async with asker(platform) as asking:
            request = asyncio.create_task(asking.long(450, stream=streams))
            await until("it runs", is_running)
            began = time.perf_counter()
            request.cancel()
            await asyncio.wait([request])

        await until("the engine has stopped", is_idle)
        print(f"stopped {time.perf_counter() - began:.2f} s after its client had left")
        generated = (await gauges(platform))["vllm:generation_tokens_total"] - before
        assert generated < 450, "the request was cancelled, not finished"


async def test_time_to_the_first_token(platform: Platform) -> None:
    """The latency that the proxy adds, measured and printed with ``-s``."""
    (replica,) = [r for r in (await view(platform)).sessions if r.state]
    environments = [
        env for env in processes().values() if env.get("MOORAGE_SESSION_ID") == replica.session_id
    ]
    secret = next(env["VLLM_API_KEY"] for env in environments if "VLLM_API_KEY" in env)
    took: dict[str, list[float]] = {"direct": [], "proxy": []}
    async with (
        asker(platform) as proxied,
        asker(platform, secret, f"http://{replica.address}/v1") as direct,
    ):
        ways: Mapping[str, Asker] = {"direct": direct, "proxy": proxied}
        for number in range(220):
            names = list(ways) if number % 2 else list(ways)[::-1]
            for name in names:
                seconds = await ways[name].first_event_s()
                if number >= 20:
                    took[name].append(1000 * seconds)

    added = statistics.median(
        proxy - alone for proxy, alone in zip(took["proxy"], took["direct"], strict=True)
    )
    for name, times in took.items():
        spread = statistics.quantiles(times, n=10)
        print(
            f"{name}: p50 {statistics.median(times):.2f} ms, p90 {spread[-1]:.2f} ms, {len(times)} requests"
        )

    p50 = statistics.median(took["proxy"]) - statistics.median(took["direct"])
    print(
        f"added: {p50:.2f} ms between the p50, {added:.2f} ms p50 of the pairs; load {os.getloadavg()[0]:.1f}"
    )
    assert added < 20, "far above the goal of 2 ms, also on a loaded machine"


async def scale(platform: Platform, **policy: Any) -> None:
    async with platform.client() as client:
        await client.endpoints.update(NAME, EndpointPatch(autoscale=policy))


async def test_more_replicas_while_requests_wait(platform: Platform) -> None:
    await scale(platform, min=1, max=2, waiting=2, up_cooldown_s=1, down_delay_s=15)
    async with crowd(platform, 3 * SEATS) as seen:
        await ready(platform, 2)

    assert set(seen) == {200}
    await ready(platform, 1)
    async with platform.client() as client:
        decisions = await client.endpoints.scaling_decisions(NAME)
        print(decisions)
        down, up = decisions

    assert (up.rule, up.from_replicas, up.to_replicas) == ("waiting", 1, 2)
    assert up.inputs["waiting"] > 2
    assert (down.rule, down.from_replicas, down.to_replicas) == ("waiting", 2, 1)
    described = platform.run("describe", NAME).stdout
    assert "1 to 2" in described, described
    assert "2 to 1" in described, described


async def test_replicas_killed_at_random(platform: Platform) -> None:
    """Only streams whose first byte was sent may fail, even while both replicas are gone."""
    await scale(platform, min=2, max=2)
    await ready(platform, 2)
    seen = Counter[str]()
    over = asyncio.Event()
    rng = random.Random(7)
    answered = [0] * 6

    async def client_of(number: int, client: openai.AsyncOpenAI) -> None:
        streams = number % 2 == 1
        while not over.is_set():
            began = False
            try:
                asked: Any = {
                    "model": NAME,
                    "messages": QUESTION,
                    "max_tokens": 12,
                    "stream": streams,
                }
                answer = await client.chat.completions.create(**asked)
                if streams:
                    async for _ in answer:
                        began = True

                seen["ok"] += 1
            except openai.APIError as error:
                seen["cut off" if began else f"{error!r} {error.body}"] += 1

            answered[number] += 1

    async def go_on() -> None:
        before = list(answered)

        async def each_twice() -> bool:
            return all(now >= then + 2 for now, then in zip(answered, before, strict=True))

        await until("all are answered", each_twice, LOADED_S)

    async with openai.AsyncOpenAI(
        base_url=platform.openai_url, api_key=platform.key, max_retries=0, timeout=LOADED_S
    ) as client:
        clients = [
            asyncio.create_task(client_of(number, client)) for number in range(len(answered))
        ]
        try:
            await go_on()
            for kernels in (1, 2):
                await ready(platform, 2)
                engines = sorted(kernels_below(platform.home).items())
                for kernel in rng.sample(sorted({kernel for _, kernel in engines}), kernels):
                    for pid in (pid for pid, of in engines if of == kernel):
                        with suppress(
                            ProcessLookupError
                        ):  # it may follow the previous one by itself
                            os.kill(pid, signal.SIGKILL)

                    await go_on()
        finally:
            over.set()
            await asyncio.gather(*clients)
            print(dict(seen))

    assert set(seen) <= {"ok", "cut off"}, seen
