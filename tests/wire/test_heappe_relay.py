"""The relay of a HEAppE job: the engine's own answers, streams as they are produced, cancellation,
and refusals."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from tests.wire.heappe_harness import framed, plain

from moorage.common.aio.clock import ManualClock

_CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("profile", ["6.3.2", "6.5"])
async def test_answers_of_an_engine_without_our_relay(profile: str) -> None:
    async with plain(profile) as at:
        async with at.http.get(f"{at.url}/v1/models") as got:
            assert (got.status, (await got.json())["data"][0]["id"]) == (200, "tiny")
        async with at.http.get(f"{at.url}/health") as got:
            assert got.status == 200

        async with at.http.post(f"{at.url}/v1/chat/completions", json=_CHAT) as got:
            assert got.status == 200
            assert got.content_type == "application/json"
            assert "wörd" in (await got.json())["choices"][0]["message"]["content"]

        async with at.http.post(
            f"{at.url}/v1/chat/completions", json=_CHAT | {"stream": True}
        ) as got:
            text = await got.text()

        assert (got.status, got.content_type) == (200, "text/event-stream")
        assert text.count("wörd") == 3
        assert text.endswith("data: [DONE]\n\n")
        long = _CHAT | {"messages": [{"role": "user", "content": "too long"}], "stream": True}
        async with at.http.post(f"{at.url}/v1/chat/completions", json=long) as got:
            assert got.status == 400
            assert "maximum context length" in (await got.json())["error"]["message"]


@pytest.mark.parametrize("split", [0, 1, 7])
@pytest.mark.parametrize("profile", ["6.3.2", "6.5"])
async def test_a_stream_that_breaks_does_not_look_whole(profile: str, split: int) -> None:
    async with plain(profile) as at:
        at.server.switches.stream_split = split
        for trap in ("stream_error_after", "stream_cut_after"):
            setattr(at.server.switches, trap, 150)
            async with at.http.post(
                f"{at.url}/v1/chat/completions", json=_CHAT | {"stream": True}
            ) as got:
                with pytest.raises(aiohttp.ClientPayloadError):
                    await got.text()

            setattr(at.server.switches, trap, -1)


async def test_hanging_up_cancels_the_request_at_the_engine() -> None:
    async with plain() as at:
        slow = _CHAT | {"stream": True, "max_tokens": 1000, "pause_ms": 20}
        async with at.http.post(f"{at.url}/v1/chat/completions", json=slow) as got:
            await got.content.readany()
            assert at.engine.active == 1
            got.close()
        async with asyncio.timeout(5):
            while at.engine.cancelled != 1:
                await asyncio.sleep(0.02)


async def test_an_expired_session_within_a_stream_is_renewed() -> None:
    async with plain(auth="session") as at:
        at.server.sessions.expire("agent")
        async with at.http.post(
            f"{at.url}/v1/chat/completions", json=_CHAT | {"stream": True}
        ) as got:
            assert got.status == 200
            assert "[DONE]" in await got.text()


@pytest.mark.parametrize("profile", ["6.3.2", "6.5"])
@pytest.mark.parametrize("loss", ["ssh", "restart"])
async def test_a_dead_tunnel_is_opened_again_for_the_request(profile: str, loss: str) -> None:
    async with plain(profile) as at:
        for _ in range(2):
            async with at.http.post(f"{at.url}/v1/chat/completions", json=_CHAT) as got:
                assert got.status == 200
            await (at.server.tunnels.kill() if loss == "ssh" else at.server.restart())
        assert len(at.server.tunnels.forwards) <= 1


@pytest.mark.parametrize("away_s", [4.0])
async def test_a_login_node_that_is_away_costs_no_request_and_few_calls(away_s: float) -> None:
    """With three requests a second, the number of calls equals the number of attempts that are due,
    and each request is answered."""
    async with framed() as at:
        before = at.server.calls.total()
        at.server.switches.maintenance = True
        await at.server.tunnels.kill()

        async def one() -> int:
            async with at.http.post(f"{at.url}/v1/chat/completions", json=_CHAT) as got:
                return got.status

        asking = []
        for _ in range(round(3 * away_s)):
            asking.append(asyncio.create_task(one()))
            await asyncio.sleep(1 / 3)

        assert not any(task.done() for task in asking)
        assert at.keeper.gone_since is not None
        calls = at.server.calls.total() - before
        at.server.switches.maintenance = False
        assert set(await asyncio.wait_for(asyncio.gather(*asking), 30)) == {200}
        assert at.keeper.gone_since is None

        # the first try of each request that arrived before the path was known to be gone
        assert calls <= 3 * away_s + 12


async def test_a_request_that_cannot_open_the_tunnel_waits() -> None:
    async with framed() as at:
        await at.keeper.close()
        at.server.switches.maintenance = True
        asking = asyncio.create_task(at.http.post(f"{at.url}/v1/chat/completions", json=_CHAT))
        await asyncio.sleep(0.3)
        assert not asking.done()
        at.server.switches.maintenance = False
        async with await asyncio.wait_for(asking, 30) as got:
            assert got.status == 200


async def test_requests_wait_while_the_server_is_down() -> None:
    async with framed() as at:
        await at.server.interrupt()
        asking = asyncio.create_task(at.http.post(f"{at.url}/v1/chat/completions", json=_CHAT))
        await asyncio.sleep(1.5)
        assert not asking.done()
        await at.server.resume()
        async with await asyncio.wait_for(asking, 60) as got:
            assert got.status == 200


@pytest.mark.parametrize("way", [plain, framed])
@pytest.mark.parametrize(
    "trap",
    [
        {"gateway_html": 1},
        {"gateway_html": 1, "gateway_status": 503},
        {"rate_limited": 1},
        {"empty_500": 1},
    ],
)
async def test_what_a_gateway_refuses_is_sent_again(way: Any, trap: dict[str, int]) -> None:
    """It has not reached the engine, with or without our relay in the job."""
    stream = "DataTransfer/HttpPostToJobNodeStream"

    async def ask(at: Any) -> int:
        asking = asyncio.create_task(at.http.post(f"{at.url}/v1/chat/completions", json=_CHAT))
        while not asking.done():
            await asyncio.sleep(0.2)
            if isinstance(at.clock, ManualClock):
                await at.advance(0.2)
        async with await asking as got:
            return got.status

    async with way() as at:
        assert await ask(at) == 200, "the engine listens now"
        before = at.server.calls[stream]
        at.server.switches.only = stream
        for name, value in trap.items():
            setattr(at.server.switches, name, value)

        assert await ask(at) == 200
        assert at.server.calls[stream] == before + 2


async def test_what_a_gateway_gave_up_waiting_for_is_not_sent_again() -> None:
    async with plain() as at:
        at.server.switches.only = "DataTransfer/HttpPostToJobNodeStream"
        at.server.switches.gateway_html = 1
        at.server.switches.gateway_status = 504
        async with at.http.post(f"{at.url}/v1/chat/completions", json=_CHAT) as got:
            assert got.status == 502
        assert at.server.calls["DataTransfer/HttpPostToJobNodeStream"] == 1


async def test_a_request_that_the_engine_may_have_seen_is_cut_off_and_not_repeated() -> None:
    async with framed() as at:
        stream = "DataTransfer/HttpPostToJobNodeStream"
        at.server.switches.resets = 1
        at.server.switches.only = stream
        before = at.server.calls[stream]
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await at.http.post(f"{at.url}/v1/chat/completions", json=_CHAT)
        assert at.server.calls[stream] == before + 1


async def test_refusals() -> None:
    async with plain() as at:
        url = f"{at.url}/v1/chat/completions"
        async with at.http.post(
            url, data=b"\xff\xfe binary", headers={"Content-Type": "audio/wav"}
        ) as got:
            assert got.status == 415

        async with at.http.post(url, data="x" * 4_950_000) as got:
            assert got.status == 413
            assert "4900000" in await got.text()
        async with at.http.post(url, data='"' * 3_000_000) as got:  # escaped, it is twice as long
            assert got.status == 413
        async with at.http.put(url, data="{}") as got:
            assert got.status == 501

        async with at.http.post(
            url, json=_CHAT, headers={"Authorization": "Bearer " + "x" * 200}
        ) as got:
            assert got.status == 431

        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await at.http.ws_connect(f"{at.url}/v1/realtime")

        assert refused.value.status == 501
        assert at.engine.seen.count("/v1/chat/completions") == 0


async def test_fifty_streams_share_one_tunnel() -> None:
    async with plain() as at:

        async def one() -> str:
            slow = _CHAT | {"stream": True, "max_tokens": 20, "pause_ms": 5}
            async with at.http.post(f"{at.url}/v1/chat/completions", json=slow) as got:
                return await got.text()

        texts = await asyncio.gather(*(one() for _ in range(50)))
        assert all(text.count("wörd") == 20 for text in texts)
        assert at.server.calls["DataTransfer/RequestDataTransfer"] == 1


async def test_statuses_headers_and_bodies_through_the_relay_in_the_job() -> None:
    async with framed() as at:
        for status in (200, 201, 400, 404, 429, 500, 503):
            async with at.http.get(f"{at.url}/status/{status}") as got:
                assert (got.status, got.headers["x-engine"], got.headers["retry-after"]) == (
                    status,
                    "mine",
                    "7",
                )
                assert await got.json() == {"x": "ä"}

        for method in ("PUT", "DELETE", "POST"):
            headers = {
                "Authorization": "Bearer " + "k" * 300,
                "Content-Type": "application/json; charset=utf-8",
            }
            async with at.http.request(
                method, f"{at.url}/a?b=1", data="wörd", headers=headers
            ) as got:
                echoed = await got.json()

            assert (echoed["method"], echoed["path"], echoed["body"]) == (method, "/a?b=1", "wörd")
            assert headers.items() <= echoed["headers"].items()

        async with at.http.get(f"{at.url}/stream") as got:
            for number in range(3):  # each has arrived before the next one is produced
                assert await got.content.readexactly(9) == f"data: {number}\n\n".encode()
                if number < 2:
                    await at.http.get(f"{at.url}/next")

            assert await got.content.read() == b""

        async with at.http.get(f"{at.url}/cut") as got:
            for _ in range(2):
                await at.http.get(f"{at.url}/next")

            with pytest.raises(aiohttp.ClientPayloadError):
                await got.read()


async def test_hanging_up_reaches_the_engine_through_the_relay_in_the_job() -> None:
    async with framed() as at:
        async with at.http.get(f"{at.url}/hang") as got:
            await got.content.readany()
            got.close()
        directory = at.server.database.jobs[at.job.id].tasks[0].spec.directory
        async with asyncio.timeout(10):
            while not (directory / "hung-up").exists():
                await asyncio.sleep(0.05)


async def test_without_its_key_the_relay_in_the_job_says_nothing() -> None:
    async with framed() as at:
        way = await at.keeper.way()
        payload = 'MG1 {"key": "guessed", "method": "GET", "path": "/x"}\n'
        async with at.client.stream(way.tunnel, "/moorage/relay", {}, payload) as content:
            assert (await content.read()) == b"data: Error: ResponseNotOk\n\n"


async def test_a_job_that_its_site_takes_for_ended_is_ended_by_its_own_program() -> None:
    async with framed() as at:
        assert await at.keeper.end_program()
        async with asyncio.timeout(20):
            while True:
                parts = await at.client.file_parts(at.job.id, {(at.job.task.id, 1): 0})
                told = [json.loads(line) for line in parts[0].content.splitlines()]
                if "exit" in told[-1]:
                    break

                await asyncio.sleep(0.1)

        assert (told[-1]["exit"], told[-2]) == (-15, {"terminated": True})

    async with plain() as at:
        await at.keeper.check(30)
        assert not await at.keeper.end_program()  # it does not run our program


async def test_a_job_that_nobody_asks_ends_itself() -> None:
    async with framed(heartbeat_s=1.5) as at:
        async with asyncio.timeout(20):
            while True:
                parts = await at.client.file_parts(at.job.id, {(at.job.task.id, 1): 0})
                told = [json.loads(line) for line in parts[0].content.splitlines()]
                if "exit" in told[-1]:
                    break

                await asyncio.sleep(0.1)

        assert told[-1]["exit"] == -15
        assert "no request" in told[-2]["ended"]
