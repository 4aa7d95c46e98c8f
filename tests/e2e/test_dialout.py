"""An agent that only dials out: an endpoint, a WebSocket and a TCP app are served over its
connections."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import aiohttp
import pytest

from moorage.common.model.addresses import dial_out_host
from moorage.common.model.spec import EndpointSpec
from tests.addresses import free_port

from .harness import Platform, example, until
from .test_apps import START, exchange

pytestmark = [pytest.mark.xdist_group("platform"), pytest.mark.timeout(120)]
ENGINE = f"{sys.executable} {Path(__file__).with_name('naming_engine.py')}"
PROGRAM = (
    sys.executable,
    str(Path(__file__).with_name("dialout_program.py")),
    "{port:web}",
    "{port:backwards}",
)


async def test_endpoint_websocket_and_tcp_over_dialed_connections(platform: Platform) -> None:
    listen = f"127.0.0.1:{free_port()}"
    platform.start(
        "up", "--set", f"agent.vllm_command={ENGINE}", "--set", "agent.reach=dial-out",
        "--set", "common.link_tls=on", "--set", f"proxy.dialout_listen={listen}",
    )  # fmt: skip
    await platform.wait_until_ready()
    await platform.wait_until_ready()
    started = await asyncio.to_thread(platform.run, *START, *PROGRAM)
    assert started.returncode == 0, started.stderr

    async with platform.client() as client, aiohttp.ClientSession(headers=platform.auth) as http:
        resources = {"cpu": "0.1", "mem": "64MiB"}
        model = str(Path(__file__).parent)
        await client.endpoints.create(
            EndpointSpec.model_validate(
                {"name": "main", "engine": "vllm", "model": model, "resources": resources}
            )
        )

        async def is_served() -> bool:
            body = {"model": "main", "prompt": "x"}
            async with http.post(f"{platform.openai_url}/completions", json=body) as answer:
                return answer.status == 200 and (await answer.json())["model"] == "main"

        await until("the endpoint answers", is_served)
        url = (await asyncio.to_thread(platform.run, "open", "apps")).stdout.strip()

        async def answers() -> bool:
            async with http.get(url) as answer:
                return answer.status == 200

        await until("the app answers", answers)
        async with http.ws_connect(url) as socket:
            await socket.send_str("hello")
            assert await socket.receive_str() == "echo hello"

        (agent,) = await client.agents.list()
        assert agent.address == dial_out_host("node-1", agent.address.split(".")[1])

    assert await exchange(platform, b"stressed") == b"desserts"
    shown = await asyncio.to_thread(example, platform, "dial_out.py", platform.openai_url)
    first, answer, *refusals = shown.splitlines()
    assert first == "node-1 is reached over its own connections: agent.reach is dial-out"
    assert answer == "the proxy answers: hello from behind NAT"
    assert [line.partition(", so")[0] for line in refusals] == [
        "a cluster over two nodes: 1 agent: only dials out"
    ]
    listed = (await asyncio.to_thread(platform.run, "agents", "-o", "wide")).stdout
    assert "dial-out" in listed.splitlines()[1].split()
    assert "an agent has dialed out" in platform.output("up")
