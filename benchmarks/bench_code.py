"""Round trip of code in a session: what Moorage adds to jupyter_client.

    python benchmarks/bench_code.py [--n 200]

Starts `moorage up` and an interactive session. It alternates between `1+1` through the REST API, in
one call until the run ends, and the same in a kernel of the same kernelspec with jupyter_client in
this process, over the same kind of sockets, until its reply and idle status.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.connect import write_connection_file

from bench_e2e import all_in_one
from measuring import machine, machine_line, quantiles_ms
from moorage.agent.execution.code.speaker import wait_until_ready
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import SessionType, Status
from moorage.common.views.executions import ExecutionSpec
from moorage.sdk import Client

GOAL_MS = 10.0
CODE = "1+1"


@asynccontextmanager
async def jupyter(folder: Path) -> AsyncIterator[AsyncKernelClient]:
    file = str(folder / "connection.json")
    write_connection_file(
        file, ip=str(folder / "k"), transport="ipc", key=os.urandom(16).hex().encode()
    )
    kernel = subprocess.Popen(
        [sys.executable, "-m", "ipykernel_launcher", "-f", file],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    client = AsyncKernelClient()
    client.load_connection_file(file)
    client.start_channels(hb=False)

    try:
        await wait_until_ready(client)
        yield client
    finally:
        client.stop_channels()
        kernel.kill()
        kernel.wait()


async def by_jupyter(client: AsyncKernelClient) -> float:
    began = time.perf_counter()
    asked = client.execute(CODE)
    while (await client.get_shell_msg(timeout=30))["parent_header"].get("msg_id") != asked:
        pass
    while True:
        message = await client.get_iopub_msg(timeout=30)
        ours = message["parent_header"].get("msg_id") == asked
        if ours and message["content"].get("execution_state") == "idle":
            return time.perf_counter() - began


async def by_moorage(client: Client) -> float:
    began = time.perf_counter()
    view = await client.executions.start("dev", ExecutionSpec(code=CODE))
    assert view.ended, view
    return time.perf_counter() - began


async def measure(n: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="moorage-code-") as name:
        folder = Path(name)
        async with all_in_one(folder / "home") as platform, jupyter(folder) as kernel:
            client = platform.client
            await client.sessions.create(SessionSpec(name="dev", type=SessionType.INTERACTIVE))
            while (await client.sessions.get("dev")).status is not Status.RUNNING:
                await asyncio.sleep(0.05)

            await client.executions.run("dev", "0")
            ours = []
            theirs = []
            for _ in range(n):
                ours.append(await by_moorage(client))
                theirs.append(await by_jupyter(kernel))

            # Kernels outlive their agent.
            await client.sessions.stop("dev")
            while (await client.sessions.get("dev")).status is not Status.TERMINATED:
                await asyncio.sleep(0.05)

    return {"moorage": quantiles_ms(ours[5:]), "jupyter_client": quantiles_ms(theirs[5:])}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = machine()
    result = asyncio.run(measure(options.n))
    print(machine_line(found))
    for name, values in result.items():
        print(f"{name:15}", "  ".join(f"{key} {value:.1f} ms" for key, value in values.items()))

    added = result["moorage"]["p50"] - result["jupyter_client"]["p50"]
    print(f"added at p50    {added:.1f} ms (goal {GOAL_MS:g})")
    if options.json:
        options.json.write_text(json.dumps({"machine": found, **result}))


if __name__ == "__main__":
    main()
