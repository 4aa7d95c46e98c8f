"""The proxy in front of a real engine: llama.cpp with tiny random weights, in its own process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from proxy_harness import ENGINE_KEY, Client, routes, serving, target, until

from moorage.demo.model import write_tiny_gguf

SERVER = """
import sys, time, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.model_alias, p.api_keys = sys.argv[1], {"tiny"}, [sys.argv[2]]
p.n_ctx, p.n_parallel, p.hostnames, p.port = 4096, 2, ["127.0.0.1"], 0
p.cpuparams.n_threads, p.endpoint_metrics = 1, True
server = xllamacpp.Server(p)
print(server.listening_address, flush=True)
time.sleep(600)
"""
ASK = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16}
ENDLESS = ASK | {"stream": True, "max_tokens": 1900, "ignore_eos": True}


@asynccontextmanager
async def llamacpp(tmp_path: Path) -> AsyncIterator[tuple[int, int]]:
    """Port and pid of a running engine."""
    model = tmp_path / "tiny.gguf"
    write_tiny_gguf(model)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(model), ENGINE_KEY,
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


async def working(c: Client, port: int) -> int:
    """Requests that the engine works at, by its own count."""
    headers = {"Authorization": f"Bearer {ENGINE_KEY}"}
    async with c.session.get(f"http://127.0.0.1:{port}/metrics", headers=headers) as got:
        lines = (await got.text()).splitlines()
    return next(
        int(float(line.split()[1])) for line in lines if line.startswith("llamacpp:requests_processing")
    )


async def test_a_real_engine(tmp_path):
    async with llamacpp(tmp_path) as (port, pid), serving(tmp_path, routes(1, tiny=[target("k", port)])) as c:
        async with c.post(ASK) as got:
            assert got.status == 200, await got.text()
            assert (await got.json())["choices"][0]["message"]["content"]
        async with c.post(ASK | {"stream": True}) as got:
            events = (await got.read()).split(b"\n\n")
        assert events[-2:] == [b"data: [DONE]", b""]
        assert len([e for e in events[:-2] if json.loads(e.removeprefix(b"data: "))["choices"]]) > 1

        async with c.post(ENDLESS) as got:
            await got.content.readany()
            assert await working(c, port) == 1
            got.close()

        async def idle() -> bool:
            return await working(c, port) == 0

        assert await until(idle) < 2  # it stops generating for nobody

        async with c.post(ENDLESS) as got:
            first = await got.content.readany()
            os.kill(pid, signal.SIGKILL)
            body = first + await got.read()
        assert b'"code": "upstream_error"' in body.split(b"\n\n")[-2]
        assert b"[DONE]" not in body
        async with c.post(ASK) as got:
            assert (got.status, (await got.json())["error"]["code"]) == (502, "upstream_error")
