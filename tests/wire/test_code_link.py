"""Code from the SDK to a code kernel and back, through a real manager and a real agent that both
restart."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from agent_harness import PORTS, TOKEN
from manager_harness import until
from tests.addresses import free_port, port_range

from moorage.agent import Agent
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, CommonSettings, ManagerSettings
from moorage.common.model.clusters import Cluster
from moorage.common.model.code_runs import RunStatus
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import SessionType, Status
from moorage.common.views.executions import ExecutionSpec
from moorage.manager import Manager
from moorage.sdk import ApiError, Client, Unreachable

_DEV = SessionSpec(
    name="dev",
    type=SessionType.INTERACTIVE,
    resources={"cpu": 0.1, "mem": "16MiB"},
    env={"JUPYTER_PATH": f"{sys.prefix}/share/jupyter"},
)
_WAITS = """
import os, time
print('begun', flush=True)
while not os.path.exists('go'):
    time.sleep(0.05)
print(x)
"""


async def events_until(client: Client, run_id: str, last: str) -> list[dict[str, Any]]:
    """The items of a run's event stream up to the first one of this type."""
    path = f"/v1/sessions/dev/executions/{run_id}/events"
    pieces: Any = client.read_stream(path, {}, {}, idle_s=30, begin=lambda _: b"")
    text = ""
    async for piece in pieces:
        text += piece.decode()
        lines = [line for line in text.split("\n\n")[:-1] if "data:" in line]
        items = [json.loads(line.partition("data: ")[2]) for line in lines]
        if any(item["type"] == last for item in items):
            await pieces.aclose()
            return items

    raise AssertionError(f"the stream ended: {text}")


async def answer_in_a_websocket(client: Client) -> None:
    code = "print('hello', input('who? '))"
    await client.executions.start("dev", ExecutionSpec(code=code, run_id="asks", wait_s=0))
    kinds = []
    async with client.http.ws_connect(
        client.address("/v1/sessions/dev/executions/asks/events", {})
    ) as ws:
        async for message in ws:
            item = json.loads(message.data)["item"]
            kinds.append(item["type"])
            if item["type"] == "input":
                await ws.send_json({"input": "Ada"})
            elif item["type"] == "stream":
                assert item["text"] == "hello Ada\n"

    assert kinds == ["input", "answered", "stream", "end"]


async def until_ended(client: Client, run_id: str) -> None:
    """The manager or the agent may be away during this."""
    ended = False
    async with asyncio.timeout(30):
        while not ended:
            try:
                ended = (await client.executions.read("dev", run_id, wait_s=5)).ended
            except (ApiError, Unreachable):
                await asyncio.sleep(0.1)


async def interrupted_in(client: Client, kernel: str) -> bool:
    """Whether code that this kernel runs ends when its run is interrupted."""
    code = "import time; print('begun', flush=True); time.sleep(3600)"
    begun = asyncio.Event()
    spec = ExecutionSpec(code=code, kernel=kernel, wait_s=0)
    view = await client.executions.start("dev", spec)
    async with asyncio.TaskGroup() as tasks:
        ran = tasks.create_task(
            client.executions.resume("dev", view, on_item=lambda _: begun.set(), kernel=kernel)
        )
        await begun.wait()
        await client.executions.interrupt("dev", view.run_id, kernel=kernel)

    error = ran.result().error
    return error is not None and error["name"] == "KeyboardInterrupt"


async def test_runs_in_a_kernel_of_a_cluster_are_read_answered_and_interrupted_there(
    migrated_database: str, tmp_path: Path
) -> None:
    link = free_port()
    settings = ManagerSettings(
        dsn=migrated_database, listen=f"127.0.0.1:{free_port()}", link_listen=f"127.0.0.1:{link}"
    )
    of_agent = AgentSettings(
        id="one", inventory="fake:2xH100", manager=f"127.0.0.1:{link}", report_interval_s=0.5,
        port_range=port_range(PORTS),
    )  # fmt: skip
    async with AsyncExitStack() as stack:
        manager = await stack.enter_async_context(
            Manager(settings, clock=SystemClock(), link_token=TOKEN, home=tmp_path)
        )
        await stack.enter_async_context(
            Agent(of_agent, CommonSettings(), clock=SystemClock(), link_token=TOKEN, home=tmp_path)
        )
        assert manager.first_key is not None
        client = await stack.enter_async_context(
            Client(f"http://{settings.listen}", manager.first_key)
        )
        await client.sessions.create(_DEV.model_copy(update={"cluster": Cluster(size=2)}))
        await until(client, "dev", lambda view: view.status is Status.RUNNING)

        where = "import os; host = os.environ['MOORAGE_CLUSTER_HOST']"
        for kernel in ("main1", "sub1"):
            assert (await client.executions.run("dev", where, kernel=kernel)).exit_code == 0
        asks = "print(host, input('who? '), input('and? '))"
        for kernel in ("sub1", "main1"):
            ran = await client.executions.run(
                "dev", asks, on_input=lambda prompt, _: prompt[:3], kernel=kernel
            )
            assert ran.stdout == f"{kernel} who and\n"

        assert await interrupted_in(client, "sub1")
        assert (await client.executions.run("dev", "host", kernel="sub1")).results == [
            {"text/plain": "'sub1'"}
        ]
        await client.sessions.stop("dev")
        await until(client, "dev", lambda view: view.status is Status.TERMINATED)


async def test_runs_outlive_the_manager_and_their_records_the_agent(
    migrated_database: str, tmp_path: Path
) -> None:
    link = free_port()
    settings = ManagerSettings(
        dsn=migrated_database, listen=f"127.0.0.1:{free_port()}", link_listen=f"127.0.0.1:{link}"
    )
    of_agent = AgentSettings(
        id="one", inventory="fake:2xH100", manager=f"127.0.0.1:{link}", report_interval_s=0.5,
        port_range=port_range(PORTS),
    )  # fmt: skip

    def new_manager() -> Manager:
        return Manager(settings, clock=SystemClock(), link_token=TOKEN, home=tmp_path)

    def new_agent() -> Agent:
        return Agent(
            of_agent, CommonSettings(), clock=SystemClock(), link_token=TOKEN, home=tmp_path
        )

    async with AsyncExitStack() as stack:
        agents = await stack.enter_async_context(AsyncExitStack())
        managers = await stack.enter_async_context(AsyncExitStack())
        manager = await managers.enter_async_context(new_manager())
        await agents.enter_async_context(new_agent())
        assert manager.first_key is not None
        client = await stack.enter_async_context(
            Client(f"http://{settings.listen}", manager.first_key)
        )
        await client.sessions.create(_DEV)
        await until(client, "dev", lambda view: view.status is Status.RUNNING)
        assert (await client.executions.run("dev", "x = 'kept'")).exit_code == 0
        started = await client.executions.start(
            "dev", ExecutionSpec(code=_WAITS, run_id="r", wait_s=0)
        )
        assert started.status is RunStatus.CONTINUED
        assert (await events_until(client, "r", "stream"))[0]["text"] == "begun\n"

        await managers.aclose()
        managers = await stack.enter_async_context(AsyncExitStack())
        await managers.enter_async_context(new_manager())
        [work] = [
            path for path in (tmp_path / "agent-one" / "kernels").glob("*/work") if path.is_dir()
        ]
        (work / "go").touch()

        await until_ended(client, "r")
        items = await events_until(client, "r", "end")
        assert (
            "".join(item["text"] for item in items if item["type"] == "stream") == "begun\nkept\n"
        )

        # The same request is the same run.
        again = await client.executions.start(
            "dev", ExecutionSpec(code=_WAITS, run_id="r", wait_s=0)
        )
        assert (again.ended, again.exit_code) == (True, 0)

        await agents.aclose()
        agents = await stack.enter_async_context(AsyncExitStack())
        await agents.enter_async_context(new_agent())
        await until_ended(client, "r")
        assert [item["type"] for item in (await events_until(client, "r", "end"))] == [
            i["type"] for i in items
        ]
        await answer_in_a_websocket(client)
        lost = await client.executions.run("dev", "x")
        assert lost.error is not None
        assert lost.error["name"] == "NameError"
        await client.sessions.stop("dev")
        await until(client, "dev", lambda view: view.status is Status.TERMINATED)
