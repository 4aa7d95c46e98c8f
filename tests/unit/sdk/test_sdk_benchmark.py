"""The load generator: what it sends when, what it measures, and its statistics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import islice, repeat
from random import Random
from statistics import mean, pvariance

import pytest
from aiohttp import web

from moorage.common.aio.clock import SystemClock
from moorage.common.model.errors import InvalidInput
from moorage.sdk.benchmark import (
    BenchmarkTarget,
    Load,
    Measured,
    Prompt,
    Summary,
    random_prompts,
    read_dataset,
    run,
    summarize,
)
from moorage.sdk.benchmark.statistics import percentile
from moorage.sdk.benchmark.workload import gaps

PROMPT = Prompt(({"role": "user", "content": "two words"},), 5)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Engine:
    """An engine that answers each chat as ``handle`` specifies. ``bodies``: the requests received;
    ``peak``: the largest number at one time."""

    def __init__(self, handle: Handler) -> None:
        self.handle = handle
        self.bodies = list[dict[str, object]]()
        self.running = 0
        self.peak = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            return await self.handle(request)
        finally:
            self.running -= 1

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[BenchmarkTarget]:
        app = web.Application()
        app.router.add_post("/v1/{path:.*}", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield BenchmarkTarget(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", "key", "m")
        finally:
            await runner.cleanup()


async def stream(request: web.Request, *events: object, done: bool = True) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in events:
        data = f"data: {json.dumps(event)}\n\n".encode()
        await response.write(data[:9])
        await response.write(data[9:])
    if done:
        await response.write(b"data: [DONE]\n\n")
    return response


def piece(text: str) -> dict[str, object]:
    return {"choices": [{"delta": {"content": text}}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9}}


async def load(engine: Engine, how: Load) -> tuple[list[Measured], Summary]:
    async with engine.serving() as target:
        measured, end = await run(
            target, repeat(PROMPT), how, clock=SystemClock(), generator=Random(1)
        )
    return measured, summarize(measured, end.elapsed_s, end.peak)


async def test_answers_are_measured() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await stream(
            request, {"choices": [{"delta": {"role": "assistant"}}]}, piece("a"), piece("b"), USAGE
        )

    engine = Engine(handle)
    measured, summary = await load(engine, Load(max_concurrency=2, requests=5))
    assert len(engine.bodies) == 5
    assert engine.bodies[0] == {
        "model": "m",
        "messages": [{"role": "user", "content": "two words"}],
        "max_tokens": 5,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert [len(one.token_times) for one in measured] == [2] * 5
    assert (summary.completed, summary.failed, summary.tokens_in, summary.tokens_out) == (
        5,
        0,
        35,
        45,
    )
    assert summary.tokens_are_stated
    assert engine.peak <= 2
    flat = summary.as_json()
    assert flat["total_output_tokens"] == 45
    assert 0 < flat["p50_ttft_ms"] <= flat["p99_ttft_ms"] <= flat["max_e2el_ms"]


async def test_failures_are_counted_by_their_cause() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        match len(engine.bodies):
            case 1:
                return web.json_response({"error": {"code": "rate_limit_exceeded"}}, status=429)
            case 2:
                return await stream(
                    request, piece("a"), {"error": {"type": "server_error"}}, done=False
                )
            case 3:
                return await stream(request, piece("a"), done=False)
            case 4:
                return web.Response(status=502, text="bad\ngateway")
            case 6 | 7 | 8:
                full = {
                    "code": 500,
                    "message": "Context size has been exceeded.",
                    "type": "server_error",
                }
                if len(engine.bodies) == 7:
                    full["message"] = "slot 3 is gone"

                return web.json_response({"error": full}, status=500)
            case 9:
                return await stream(request, piece("a"), {"error": "no room"}, done=False)
            case 10:
                full = {"object": "error", "message": "The request queue is full.", "code": 503}
                return web.json_response(full, status=503)
            case _:
                return await stream(request, piece("a"))

    engine = Engine(handle)
    _, summary = await load(engine, Load(max_concurrency=1, requests=11))
    assert summary.errors == {
        "500: Context size has been exceeded.": 3,
        "429 rate_limit_exceeded": 1,
        "in mid-stream: server_error": 1,
        "cut off": 1,
        "502: bad gateway": 1,
        "in mid-stream: no room": 1,
        "503: The request queue is full.": 1,
    }
    assert (summary.completed, summary.tokens_are_stated, summary.tokens_out) == (2, False, 2)


async def test_connection_that_was_closed_meanwhile_is_no_failure() -> None:
    """Some servers close a connection after some requests without announcing it."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if len(engine.bodies) == 2:
            assert request.transport is not None
            request.transport.abort()
        return await stream(request, piece("a"))

    engine = Engine(handle)
    _, summary = await load(engine, Load(max_concurrency=1, requests=3))
    assert (summary.completed, summary.errors, len(engine.bodies)) == (3, {}, 4)


async def test_nothing_listens() -> None:
    target = BenchmarkTarget("http://127.0.0.1:9/v1", "", "m")
    [one], _ = await run(
        target,
        repeat(PROMPT),
        Load(max_concurrency=1, requests=1),
        clock=SystemClock(),
        generator=Random(),
    )
    assert one.error.startswith("connection: ")


async def test_waits_at_a_rate_are_part_of_the_times() -> None:
    """A server that answers one request at a time, 50 ms each, gets 200 requests a second."""
    turn = asyncio.Lock()

    async def handle(request: web.Request) -> web.StreamResponse:
        async with turn:
            await asyncio.sleep(0.05)
        return await stream(request, piece("a"))

    for concurrency in (None, 1):
        measured, summary = await load(
            Engine(handle), Load(200.0, concurrency, requests=10, burstiness=1000.0)
        )
        slowest = max(one.token_times[0] - one.due_at for one in measured)
        assert slowest >= 10 * 0.05 - 10 / 200 - 0.01, "the last one was due after 45 ms"
        assert summary.send_delay is not None
        assert (summary.send_delay.largest > 200) == (concurrency == 1), (
            "it waits in the generator, too"
        )


async def test_rate_ends_with_the_time() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await stream(request, piece("a"))

    measured, _ = await load(Engine(handle), Load(100.0, duration_s=0.2, burstiness=1000.0))
    assert 18 <= len(measured) <= 21
    measured, summary = await load(Engine(handle), Load(max_concurrency=3, duration_s=0.1))
    assert len(measured) == summary.completed > 0


@pytest.mark.parametrize(("burstiness", "variance"), [(1.0, 0.01), (0.25, 0.04), (100.0, 0.0001)])
def test_arrivals(burstiness: float, variance: float) -> None:
    found = list(islice(gaps(Random(3), 10.0, burstiness), 20_000))
    assert mean(found) == pytest.approx(0.1, rel=0.05)
    assert pvariance(found) == pytest.approx(variance, rel=0.15)


def test_random_prompts_have_their_length_and_differ() -> None:
    prompts = list(islice(random_prompts(Random(1), 40, 7), 20))
    assert {len(prompt.text.split()) for prompt in prompts} == {40}
    assert len({prompt.text[:30] for prompt in prompts}) == 20
    assert prompts == list(islice(random_prompts(Random(1), 40, 7), 20))
    assert prompts[0].max_tokens == 7


def test_dataset() -> None:
    lines = [
        '{"prompt": "a", "max_tokens": 3}',
        "",
        '{"messages": [{"content": "s"}, {"content": "u"}], "output_tokens": 4}',
        '{"prompt": "b"}',
    ]
    found = read_dataset(lines, 9)
    assert [(one.text, one.max_tokens) for one in found] == [("a", 3), ("s\nu", 4), ("b", 9)]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 2"),
        ("[]", "not a JSON object"),
        ("{}", "neither `prompt` nor"),
        ('{"messages": [1]}', "not a list of objects"),
        ('{"prompt": "a", "max_tokens": 0}', "not a positive number"),
        ('{"prompt": "a", "max_tokens": true}', "not a positive number"),
    ],
)
def test_unusable_dataset_names_the_line(line: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        read_dataset(['{"prompt": "a"}', line], None)
    with pytest.raises(InvalidInput, match="no prompts"):
        read_dataset([" "], None)


def test_statistics() -> None:
    one = Measured(
        10.0,
        10.5,
        ended_at=13.0,
        token_times=[11.0, 11.5, 12.5],
        tokens_in=3,
        tokens_out=4,
        stated=True,
    )
    other = Measured(
        10.0, 10.0, ended_at=12.0, token_times=[12.0], tokens_in=3, tokens_out=1, stated=True
    )
    summary = summarize([one, other, Measured(0.0, error="429")], 4.0, 2)
    assert (summary.ttft and summary.ttft.percentiles[50], summary.ttft and summary.ttft.mean) == (
        1500,
        1500,
    )
    assert (summary.tpot and summary.tpot.mean) == pytest.approx(500)
    assert (summary.itl and summary.itl.largest) == 1000
    assert (summary.e2el and summary.e2el.largest, summary.failed) == (3000, 1)
    assert (summary.send_delay and summary.send_delay.largest) == 500
    flat = summary.as_json()
    assert (flat["request_throughput"], flat["output_throughput"], flat["errors"]) == (
        0.5,
        1.25,
        {"429": 1},
    )
    assert percentile([1.0, 2.0, 3.0, 4.0], 50) == 2.5
    assert percentile([1.0], 99) == 1.0
    assert summarize([], 0.0, 0).as_json()["request_throughput"] == 0
