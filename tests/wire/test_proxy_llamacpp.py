"""A proxy in front of a real engine: llama.cpp with tiny random weights, in its own process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
from proxy_harness import ENGINE_KEY, Client, routes, serving, target, until

from moorage.common.link.messages import ModelRoute
from moorage.common.model.engine_features import lacked_by
from moorage.demo.model import write_tiny_gguf
from moorage.proxy.core.apis import APIS, apis_of

SERVER = """
import sys, time, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.model_alias, p.api_keys = sys.argv[1], {"tiny"}, [sys.argv[2]]
p.n_ctx, p.n_parallel, p.hostnames, p.port = 4096, int(sys.argv[3]), ["127.0.0.1"], 0
p.kv_unified = True  # as Moorage starts it
p.cpuparams.n_threads, p.endpoint_metrics = 1, True
server = xllamacpp.Server(p)
print(server.listening_address, flush=True)
time.sleep(600)
"""
REQUEST = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16}
ENDLESS = REQUEST | {"stream": True, "max_tokens": 1900, "ignore_eos": True}


@asynccontextmanager
async def llamacpp(tmp_path: Path, slots: int = 2) -> AsyncIterator[tuple[int, int]]:
    """The port and pid of a running engine."""
    model = tmp_path / "tiny.gguf"
    write_tiny_gguf(model)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(model), ENGINE_KEY, str(slots),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            address = (await process.stdout.readline()).decode().strip()

        yield int(address.rpartition(":")[2]), process.pid
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def requests_processing(client: Client, port: int) -> int:
    """Requests in progress, as counted by the engine."""
    headers = {"Authorization": f"Bearer {ENGINE_KEY}"}
    async with client.session.get(f"http://127.0.0.1:{port}/metrics", headers=headers) as response:
        lines = (await response.text()).splitlines()
    return next(
        int(float(line.split()[1]))
        for line in lines
        if line.startswith("llamacpp:requests_processing")
    )


async def test_llamacpp_behind_the_proxy(tmp_path):
    async with (
        llamacpp(tmp_path) as (port, pid),
        serving(tmp_path, routes(1, tiny=[target("k", port)])) as client,
    ):
        async with client.post(REQUEST) as response:
            assert response.status == 200, await response.text()
            assert (await response.json())["choices"][0]["message"]["content"]
        async with client.post(REQUEST | {"stream": True}) as response:
            events = (await response.read()).split(b"\n\n")

        assert events[-2:] == [b"data: [DONE]", b""]
        assert len([e for e in events[:-2] if json.loads(e.removeprefix(b"data: "))["choices"]]) > 1

        async with client.post(ENDLESS) as response:
            await response.content.readany()
            assert await requests_processing(client, port) == 1
            response.close()

        async def idle() -> bool:
            return await requests_processing(client, port) == 0

        # The engine stops generating after the disconnect; generating all tokens would take longer.
        await until(idle, within_s=2)

        async with client.post(ENDLESS) as response:
            first = await response.content.readany()
            os.kill(pid, signal.SIGKILL)
            body = first + await response.read()

        assert b'"code": "upstream_error"' in body.split(b"\n\n")[-2]
        assert b"[DONE]" not in body
        async with client.post(REQUEST) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (
                502,
                "upstream_error",
            )


async def test_requests_for_which_it_has_no_room_are_held(tmp_path):
    """Each request fits alone, and two of the four fit at a time. If the next one does not fit, the
    engine drops all that it has."""
    async with (
        llamacpp(tmp_path, slots=4) as (port, _),
        serving(tmp_path, routes(1, tiny=[target("k", port)])) as client,
    ):

        async def ask(number: int) -> int:
            prompt = f"{number} " + "x" * 1800
            body = {"model": "tiny", "prompt": prompt, "max_tokens": 20, "ignore_eos": True}
            async with client.post(body, "/v1/completions") as response:
                await response.read()
                return response.status

        assert await asyncio.gather(*map(ask, range(8))) == [200] * 8
        refused = await client.metric(
            'moorage_proxy_upstream_failures_total{kind="no-room",model="tiny"}'
        )
        assert refused, "or it was no test"


async def test_llamacpp_has_the_apis_that_the_proxy_knows_of(tmp_path):
    """No matter how it answers the requests, only a file that it does not have is unknown to it."""
    body = {
        "model": "tiny",
        "input": "x",
        "prompt": "x",
        "messages": [{"role": "user", "content": "x"}],
    }
    async with llamacpp(tmp_path) as (port, _):
        headers = {"Authorization": f"Bearer {ENGINE_KEY}"}
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as http:
            missing = set()
            refused = set()
            for path in APIS:
                async with http.post(
                    path, json=body | {"max_tokens": 1, "max_output_tokens": 1}
                ) as answer:
                    if "File Not Found" in await answer.text():
                        missing.add(path)
                    elif answer.status == 501:
                        refused.add(path)

        assert missing == {path for path, api in APIS.items() if "llamacpp" not in api.engines}
        started = replace(target("k", port), engine="llamacpp", lacks=lacked_by("llamacpp", ()))
        listed = apis_of(ModelRoute("tiny", 1, (started,)))
        # Only the model's vocabulary shows whether it can fill in.
        assert refused & set(listed or ()) == {"/infill"}
        assert set(listed or ()) - {"/infill"} == APIS.keys() - missing - refused
