"""The previous release beside this one: its agent and proxy with this manager, and the other way
round.

A relay between them counts the messages that they exchange.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from moorage.common.link.pb import agent_pb2, routes_pb2
from moorage.common.model.spec import Cluster, EndpointSpec, Port, SessionSpec
from moorage.manager.store.endpoints.rows import spec_columns
from moorage.manager.store.sessions.creation import stored_json
from moorage.sdk import Client
from moorage.sdk.errors import ApiError
from tests.addresses import free_port
from tests.previous_release import unpack_previous_release

from .harness import EXAMPLES, Platform, until
from .test_crashes import SLOW, answers

RESOURCES = {"cpu": "0.1", "mem": "64MiB"}
# In the previous release, gRPC writes its own log lines, which `Platform` treats as faults.
QUIET = {"GRPC_VERBOSITY": "NONE"}


@pytest.fixture(scope="module")
def previous_release(reachable_dir: Path) -> Path:
    """The source code of the previous release."""
    return unpack_previous_release(reachable_dir / "previous-release")


class Relay(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Passes all calls on to the manager, and counts the messages of the agent link and the route
    feed."""

    def __init__(self, target: str) -> None:
        self.counts: Counter[str] = Counter()
        self._channel = grpc.aio.insecure_channel(target)

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        method = call.method

        async def forward(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            metadata = [(k, v) for k, v in context.invocation_metadata() if k == "authorization"]
            onward = self._channel.stream_stream(method)(
                self._count_up(method, requests), metadata=metadata
            )
            try:
                async for answer in onward:
                    self._count_down(method, answer)
                    yield answer
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "")

        return grpc.stream_stream_rpc_method_handler(forward)

    async def _count_up(self, method: str, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        if method.endswith("/Attach"):
            self.counts["streams"] += 1
        async for request in requests:
            if method.endswith("/Attach"):
                report = agent_pb2.Report.FromString(request)
                self.counts["delta reports" if report.delta else "full reports"] += 1
                self.counts["orders wanted"] += report.orders_wanted
            yield request

    def _count_down(self, method: str, answer: bytes) -> None:
        if method.endswith("/Attach"):
            kind = agent_pb2.ManagerMessage.FromString(answer).WhichOneof("what")
            self.counts["full reports requested"] += kind == "full_report"
        elif method.endswith("/Watch"):
            self.counts["tables"] += 1
            self.counts["unchanged tables"] += routes_pb2.RouteTable.FromString(answer).unchanged

    async def close(self) -> None:
        await self._channel.close()


@asynccontextmanager
async def relay_to(platform: Platform) -> AsyncIterator[Relay]:
    """A relay used by the platform's agent and proxy."""
    relay = Relay(platform.link)
    server = grpc.aio.server()
    address = f"127.0.0.1:{free_port()}"
    server.add_generic_rpc_handlers((relay,))
    server.add_insecure_port(address)
    await server.start()
    platform.env |= {
        "MOORAGE_AGENT__MANAGER": address,
        "MOORAGE_PROXY__MANAGER": address,
        "MOORAGE_COMMON__LINK_TLS": "off",  # a relay has no socket file
    }

    try:
        yield relay
    finally:
        await server.stop(grace=0)
        await relay.close()


@pytest.fixture
def platform(home: Path, empty_database: str) -> Iterator[Platform]:
    running = Platform(home)
    running.env |= {
        "MOORAGE_MANAGER__DSN": empty_database,
        "MOORAGE_AGENT__INVENTORY": "fake:1xH100",
    }
    yield running
    running.close()


async def run_a_session(platform: Platform) -> None:
    """A batch session that runs to completion, and an interactive session that is stopped."""
    async with platform.client() as client:
        await client.sessions.create(SessionSpec(name="job", command=["true"], resources=RESOURCES))
        stays = SessionSpec(
            name="stays",
            type="interactive",
            command=["sleep", "600"],
            resources=RESOURCES,
            stop_grace_s=2,
        )
        await client.sessions.create(stays)

        async def has_status(name: str, status: str) -> bool:
            return (await client.sessions.get(name)).status == status

        await until("the job ends", lambda: has_status("job", "TERMINATED"))
        await until("the session runs", lambda: has_status("stays", "RUNNING"))
        await client.sessions.stop("stays")
        await until("the session is stopped", lambda: has_status("stays", "TERMINATED"))
        await client.endpoints.create(SLOW)

    await until("the model answers through the proxy", lambda: answers(platform, SLOW.name))
    async with platform.client() as client:
        await client.endpoints.delete(SLOW.name)


def test_specs_that_use_nothing_new_are_readable_to_the_previous_release(
    previous_release: Path,
) -> None:
    """Its managers refuse unknown fields, even with their default values."""
    specs = [
        SessionSpec(command=["true"], resources={"cpu": 1}),
        SessionSpec(type="interactive", command=["sh"], ports=[Port(name="a")]),
        SessionSpec(
            type="inference", engine="llamacpp", model="m.gguf", resources={"cuda.device": 1}
        ),
        SessionSpec(command=["x"], cluster=Cluster(size=2), retries=2),
    ]
    served = EndpointSpec(name="e", engine="llamacpp", model="m.gguf", resources={"cuda.device": 1})
    stored = [spec_columns(served)[0], served.template() | {"name": "e"}]
    read = (
        "import sys; from moorage.common.model.spec import EndpointSpec, SessionSpec\n"
        "for line in sys.stdin:\n"
        "    kind, text = line.split(' ', 1)\n"
        "    (EndpointSpec if kind == 'endpoint' else SessionSpec).model_validate_json(text)"
    )
    lines = [f"session {stored_json(one)}" for one in specs]
    lines += [f"endpoint {json.dumps(one)}" for one in stored]
    done = subprocess.run(
        [sys.executable, "-c", read],
        input="\n".join(lines),
        env=os.environ | {"PYTHONPATH": str(previous_release), **QUIET},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def check_counts(counts: Counter[str]) -> None:
    assert counts["streams"] == 1, counts
    assert counts["full reports requested"] == counts["orders wanted"] == 0, f"drift: {counts}"
    assert counts["tables"] >= 1, counts


# What its users type most, as its own help shows it.
COMMANDS = (
    "run --name first -- echo hello",
    "start --name dev",
    "exec dev -- true",
    "ps --all -o wide",
    "describe dev",
    "why dev",
    "plan",
    "logs first",
    "templates set train -f train.toml",
    "plan --template train --set epochs=3",
    "pipelines submit -f train.yaml --dry-run",
    "pipelines submit -f train.yaml",
    "pipelines describe train",
    "pipelines list",
    "agents list",
    "groups list",
    "groups describe default",
    "keys create laptop",
    "usage",
    "stop dev",
)


async def test_the_command_line_of_the_previous_release(
    platform: Platform, previous_release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(EXAMPLES / "train.toml", tmp_path)
    pipeline = (EXAMPLES / "pipeline.yaml").read_text()
    (tmp_path / "train.yaml").write_text(pipeline.replace("name: digits", "name: train"))
    monkeypatch.chdir(tmp_path)
    for name in ("manager", "agent", "proxy"):
        platform.start(name)

    await platform.wait_until_ready()
    platform.env |= {"PYTHONPATH": str(previous_release), **QUIET}
    failed = []
    for command in COMMANDS:
        done = await asyncio.to_thread(platform.run, *shlex.split(command))
        if done.returncode:
            failed.append(f"$ moorage {command}\n{done.stderr}")

    assert not failed, "\n".join(failed)


async def test_agents_and_proxies_of_the_previous_release(
    platform: Platform, previous_release: Path
) -> None:
    platform.start("manager")
    await platform.wait_until_ready()
    async with relay_to(platform) as relay:
        for name in ("agent", "proxy"):
            platform.start(name, env={"PYTHONPATH": str(previous_release), **QUIET})

        await run_a_session(platform)

        async def has_reported() -> bool:
            return relay.counts["delta reports"] >= 4

        await until("the agent has reported what changed", has_reported)
        await asyncio.sleep(1)  # components that drift report it by then
        check_counts(relay.counts)
        assert relay.counts["full reports"] == 1, f"a delta suffices: {relay.counts}"

    for name in ("manager", "agent", "proxy"):
        assert "Traceback" not in platform.output(name), platform.output(name)


class Jobs:
    """Short jobs, submitted one after the other to each of several managers in turn."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self._number = 0

    async def run(self, client: Client, manager: str) -> None:
        self._number += 1
        name = f"job-{self._number}"
        await client.sessions.create(SessionSpec(name=name, command=["true"], resources=RESOURCES))

        async def succeeded() -> bool:
            return (await client.sessions.get(name)).result == "SUCCESS"

        await until(f"{name} of {manager} succeeds", succeeded)
        self.done[manager] += 1

    async def run_while(self, client: Client, manager: str, awaited: Awaitable[None]) -> None:
        """At least one."""
        waiting = asyncio.ensure_future(awaited)
        while not waiting.done():
            await self.run(client, manager)
        await waiting


async def test_a_manager_of_the_previous_release_runs_on_beside_this_one(
    platform: Platform, previous_release: Path
) -> None:
    """This release's manager migrates the database while the other one runs under load, leaves,
    returns, and leads when the other one stops."""
    beside = f"127.0.0.1:{free_port()}"
    link = f"127.0.0.1:{free_port()}"
    listens = {"MOORAGE_MANAGER__LISTEN": beside, "MOORAGE_MANAGER__LINK_LISTEN": link}
    platform.start("manager", env={"PYTHONPATH": str(previous_release), **QUIET})
    await platform.wait_until_ready()

    async with relay_to(platform) as relay, AsyncExitStack() as stack:
        for name in ("agent", "proxy"):
            setting = f"MOORAGE_{name.upper()}__MANAGER"
            platform.start(name, env={setting: f"{platform.env[setting]},{link}"})

        older = await stack.enter_async_context(platform.client())
        newer = await stack.enter_async_context(Client(f"http://{beside}", platform.key))
        jobs = Jobs()
        await jobs.run(older, "older")
        await older.endpoints.create(SLOW)
        await until("the model answers", lambda: answers(platform, SLOW.name))

        async def newer_answers() -> bool:
            return (await newer.health()).status == "ok"

        async def newer_leads() -> bool:
            return [one.leader for one in await newer.managers.list()] == [True]

        platform.start("manager", env=listens, known_as="newer")
        await jobs.run_while(older, "older", until("the newer manager answers", newer_answers))
        await jobs.run(older, "older")
        await jobs.run(newer, "newer")
        assert not await newer_leads(), "a term that has begun goes on"

        # A full report is also requested when two managers change a kernel at the same moment.
        assert relay.counts["streams"] == 1, relay.counts
        assert "has diverged" not in platform.output("manager"), platform.output("manager")

        assert platform.stop("newer") == 0
        await jobs.run(older, "older")
        platform.start("manager", env=listens, known_as="newer")
        await jobs.run_while(
            older, "older", until("the newer manager answers again", newer_answers)
        )

        assert platform.stop("manager") == 0
        await until("the newer manager leads", newer_leads)
        await jobs.run(newer, "newer")
        await until("the model answers", lambda: answers(platform, SLOW.name))
        replicas = await newer.sessions.list(type="inference")
        assert [one.attempt for one in replicas] == [1], "nothing was started again"

    for name in ("manager", "newer", "agent", "proxy"):
        assert "Traceback" not in platform.output(name), platform.output(name)


async def test_agents_of_the_previous_release_go_on_in_a_renamed_group(
    platform: Platform, previous_release: Path
) -> None:
    """They do not know about the rename, and keep announcing the former name, even after a
    restart."""
    previous = {
        "PYTHONPATH": str(previous_release),
        **QUIET,
        "MOORAGE_AGENT__RESOURCE_GROUP": "fast",
    }
    platform.start("manager")
    await platform.wait_until_ready()
    platform.start("agent", env=previous)

    async with platform.client() as client:

        async def group_of_agent() -> list[str]:
            return [
                one.resource_group for one in await client.agents.list() if one.status == "ALIVE"
            ]

        async def has_group() -> bool:
            return await group_of_agent() == ["fast"]

        async def runs(name: str) -> bool:
            return (await client.sessions.get(name)).status == "RUNNING"

        async def run(name: str, group: str) -> None:
            fields = {
                "name": name,
                "type": "interactive",
                "command": ["sleep", "600"],
                "stop_grace_s": 1,
            }
            fields |= {"resources": {"cpu": "0.1", "mem": "64MiB"}, "resource_group": group}
            await client.sessions.create(SessionSpec.model_validate(fields))
            await until(f"{name} runs", lambda: runs(name))

        await until("the agent has made its group", has_group)
        await run("before", "fast")
        await client.groups.rename("fast", "quick")
        await run("by-the-former-name", "fast")
        platform.kill("agent")
        platform.start("agent", env=previous)
        await run("after-a-restart", "quick")
        assert await group_of_agent() == ["quick"]

        for name in ("before", "by-the-former-name", "after-a-restart"):
            view = await client.sessions.get(name)
            assert (view.resource_group, view.status, view.attempt) == ("quick", "RUNNING", 1), name
            await client.sessions.stop(name)

        assert [group.name for group in await client.groups.list()] == ["default", "quick"]
        with pytest.raises(ApiError, match="in use by 1 agents"):
            await client.groups.release_alias("fast")

    for name in ("manager", "agent"):
        assert "Traceback" not in platform.output(name), platform.output(name)
