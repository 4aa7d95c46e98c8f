"""Revocation: goes through the table in docs/security.md that shows what ends when something is
revoked.

One manager, proxy and agent. Each column creates a separate user who opens everything that the rows
name, and revokes the column's object; everything open must then end or continue as the cells
specify. Only notifications may make the manager check again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import asyncssh
import grpc
import manager_harness
import pytest
from aiohttp import web
from manager_harness import Stream, attach, until
from peer_harness import Site, site
from proxy_harness import engine, event, stream_of
from tests.ssh_signing import SshSigner

from moorage.common.aio.clock import SystemClock
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.config.settings import CommonSettings, ProxySettings
from moorage.common.link import codec
from moorage.common.link.messages import ExecRequest, Observation, Orders, OrdersDelta
from moorage.common.link.pb import agent_pb2
from moorage.common.model.commands import ExecSpec
from moorage.common.model.service_ports import AppPort
from moorage.common.model.spec import Probe, SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.common.views.endpoints import NewEndpoint
from moorage.common.views.identity import Membership, ProjectSpec, UserPatch, UserSpec
from moorage.common.views.keys import KeySpec
from moorage.common.views.ssh_keys import SshKeySpec
from moorage.manager.api.http import long_requests
from moorage.manager.rpc import ssh as manager_ssh
from moorage.proxy import Proxy
from moorage.sdk import Client, Unreachable

__all__ = ["site"]  # fixture
DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
# The promise is two seconds on an otherwise idle machine.
WITHIN_S = 8.0
PASSWORD = "correct horse battery staple"


def read_table() -> dict[str, dict[str, bool]]:
    """For each column, the rows, each with whether the object that it names ends."""
    section = DOCUMENT.read_text().partition("## What ends when something is revoked\n")[2]
    table = re.search(r"(?:^\|.*\|\n)+", section, re.MULTILINE)
    assert table is not None
    lines = re.findall(r"^\|(.*)\|$", table[0], re.MULTILINE)
    head, _, *rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    assert {cell for row in rows for cell in row[1:]} == {"ends", "–"}

    return {
        column: {row[0]: row[number] == "ends" for row in rows}
        for number, column in enumerate(head)
        if number
    }


TABLE = read_table()
Ended = asyncio.Task[object]
"""A task that returns or raises a connection error when the open object ends."""


def ended(waits: Coroutine[Any, Any, object]) -> Ended:
    return asyncio.create_task(waits)


class World:
    """A user ``ann-N``, a member of project vision, with her own session on the agent."""

    def __init__(
        self, site: Site, proxy: Proxy, agent: Stream, number: int, *, stack: AsyncExitStack
    ) -> None:
        self.site = site
        self.proxy = proxy
        self.agent = agent
        self.user = f"ann-{number}"
        self.stack = stack
        self.session = f"dev-{number}"
        self.url = "http://{}:{}".format(*proxy.address)
        self.signer = SshSigner(number)

    async def begin(self) -> None:
        admin = self.site.client
        await admin.users.create(UserSpec(name=self.user))
        await admin.members.set("vision", self.user, Membership(role="member"))
        await admin.users.set_password(self.user, PASSWORD)
        made = await admin.keys.create(
            KeySpec(name=self.user, user=self.user, project="vision", create_missing=True)
        )
        self.auth = {"Authorization": f"Bearer {made.secret}"}
        self.http = await self.stack.enter_async_context(aiohttp.ClientSession())
        self.client = await self.stack.enter_async_context(Client(self.site.url, made.secret))
        challenge = (await self.client.ssh_keys.challenge()).challenge
        await self.client.ssh_keys.create(
            SshKeySpec(
                public_key=self.signer.public_key,
                name="laptop",
                challenge=challenge,
                signature=self.signer.armored(challenge),
            )
        )
        self.id = (await self.client.sessions.create(dev(self.session))).id
        await until(self.client, self.session, lambda view: view.status is Status.RUNNING)
        self.connection = await self.stack.enter_async_context(self.connect())

    def connect(self) -> Any:
        host, port = self.proxy.ssh_address or ("", 0)
        key = asyncssh.import_private_key(self.signer.private_key)
        keys = {"client_keys": [key], "known_hosts": None, "config": None, "agent_path": None}
        return asyncssh.connect(host, port, username=f"vision/{self.session}", **keys)

    async def reading(self, answer: aiohttp.ClientResponse) -> Ended:
        """An answer that has started."""
        assert answer.status == 200, await answer.text()
        await answer.content.readany()

        async def read() -> bytes:
            rest = await answer.content.read()
            assert b"[DONE]" not in rest
            return rest

        return ended(read())

    async def get(self, url: str, headers: dict[str, str]) -> Ended:
        return await self.reading(
            await self.stack.enter_async_context(self.http.get(url, headers=headers))
        )


def dev(name: str) -> SessionSpec:
    ports = [{"name": "web"}]
    return SessionSpec.model_validate(
        {
            "name": name,
            "type": "interactive",
            "command": ["x"],
            "ports": ports,
            "resources": {"cpu": 0.1},
        }
    )


async def model(world: World) -> Ended:
    body = {"model": "chat", "stream": True}
    url = f"{world.url}/v1/chat/completions"
    return await world.reading(
        await world.stack.enter_async_context(world.http.post(url, json=body, headers=world.auth))
    )


async def port_by_key(world: World) -> Ended:
    return await world.get(f"{world.url}/apps/{world.id}/web/", world.auth)


async def port_by_token(world: World) -> Ended:
    token = (await world.client.access_tokens.create(world.session, "web")).access_token
    return await world.get(
        f"{world.url}/apps/{world.id}/web/", {"Authorization": f"Bearer {token}"}
    )


async def command(world: World) -> Ended:
    running = await world.stack.enter_async_context(
        world.client.sessions.exec(world.session, ExecSpec(command=["cat"], stdin=True))
    )
    await running.read()
    return ended(running.read())


async def events(world: World) -> Ended:
    return await world.get(f"{world.site.url}/v1/events", world.auth)


async def console(world: World) -> Ended:
    body = {"user": world.user, "password": PASSWORD}
    async with world.http.post(
        f"{world.site.url}/v1/session", json=body, headers={"Origin": world.site.url}
    ) as made:
        assert made.status < 300, await made.text()
        cookie = "; ".join(f"{name}={one.value}" for name, one in made.cookies.items())
    return await world.get(f"{world.site.url}/v1/events", {"Cookie": cookie})


async def command_over_ssh(world: World) -> Ended:
    process = await world.connection.create_process("cat", encoding=None)
    await process.stdout.read(1)
    return ended(process.stdout.read())


async def ssh_connection(world: World) -> Ended:
    return ended(world.connection.wait_closed())


async def agent_link(world: World) -> Ended:
    return ended(world.agent.call.code())


async def proxy_link(world: World) -> Ended:
    url = "http://{}:{}/readyz".format(*world.proxy.internal_address)

    async def lost() -> None:
        while True:
            async with world.http.get(url) as answer:
                if (await answer.json())["checks"]["manager_feed"] != "connected":
                    return
            await asyncio.sleep(0.05)

    return ended(lost())


ROWS: dict[str, Callable[[World], Awaitable[Ended]]] = {
    "the link of the agent": agent_link,
    "the link of the proxy": proxy_link,
    "requests to models": model,
    "service ports, by the API key": port_by_key,
    "service ports, by an access token that the key made": port_by_token,
    "commands in sessions through the API": command,
    "event streams of the API": events,
    "event streams of a console session (password)": console,
    "commands and files over SSH, by an SSH key that the key registered": command_over_ssh,
    "the SSH connection": ssh_connection,
}


async def revoke_agent(world: World) -> None:
    await world.site.client.peers.revoke("agent", "node-1")


async def revoke_proxy(world: World) -> None:
    await world.site.client.peers.revoke("proxy", world.proxy.id)


async def revoke_key(world: World) -> None:
    await world.site.client.keys.revoke(world.user)


async def disable_user(world: World) -> None:
    await world.site.client.users.update(world.user, UserPatch(status="disabled"))


async def remove_member(world: World) -> None:
    await world.site.client.members.delete("vision", world.user)


async def make_viewer(world: World) -> None:
    await world.site.client.members.set("vision", world.user, Membership(role="viewer"))


async def remove_ssh_key(world: World) -> None:
    await world.client.ssh_keys.delete("laptop")


# In the order in which they are tried, because the agent serves all of them.
COLUMNS = {
    "API key": revoke_key,
    "user disabled": disable_user,
    "member removed": remove_member,
    "member becomes viewer": make_viewer,
    "SSH key removed": remove_ssh_key,
    "proxy": revoke_proxy,
    "agent": revoke_agent,
}


async def serve_kernels(agent: Stream) -> None:
    """The agent's script: every kernel runs at once, and every command prints one byte and
    continues."""
    tasks: list[asyncio.Task[None]] = []
    engines = AsyncExitStack()
    ports = dict[str, int]()

    async def run(request: ExecRequest) -> None:
        call = agent.stub.Exec()
        await call.write(agent_pb2.ExecOutput(request_id=request.request_id))
        await call.write(agent_pb2.ExecOutput(stdout=b"$"))
        with suppress(grpc.aio.AioRpcError):
            while await call.read() is not grpc.aio.EOF:
                pass

    try:
        while (wire := await agent.call.read()) is not grpc.aio.EOF:
            message = codec.manager_message_from_wire(wire)
            if isinstance(message, ExecRequest):
                tasks.append(spawn("test.command", run(message)))
            elif isinstance(message, Orders | OrdersDelta):
                for kernel in agent.follow(message).kernels:
                    if kernel.kernel_id not in ports:
                        ports[kernel.kernel_id] = await engines.enter_async_context(engine(begin))

                    port = ports[kernel.kernel_id]
                    apps = (AppPort("web", port, "http", False, port),) if kernel.ports else ()
                    agent.seen[kernel.kernel_id] = Observation(
                        *(kernel.kernel_id, kernel.session_id, ObservedState.RUNNING),
                        host="127.0.0.1", port=port, apps=apps,
                    )  # fmt: skip

                await agent.report()
    except grpc.aio.AioRpcError:
        pass
    finally:
        await cancel_and_wait(*tasks)
        await engines.aclose()


async def begin(request: web.Request) -> web.StreamResponse:
    """An answer that starts and does not end."""
    response = await stream_of(request, event("1"))
    await asyncio.Event().wait()
    return response


@asynccontextmanager
async def proxy_of(site: Site, name: str) -> AsyncIterator[Proxy]:
    await site.join(name, kind="proxy")
    listen = {
        "listen": "127.0.0.1:0",
        "internal_listen": "127.0.0.1:0",
        "ssh_listen": "127.0.0.1:0",
    }
    settings = ProxySettings(id=name, manager=site.manager.link_address, **listen)
    common = CommonSettings(link_tls="on")
    async with Proxy(
        settings, common, clock=SystemClock(), link_token="", home=site.home / name
    ) as running:
        yield running


async def greets(proxy: Proxy) -> bool:
    assert proxy.ssh_address is not None
    reader, writer = await asyncio.open_connection(*proxy.ssh_address)
    try:
        async with asyncio.timeout(0.2):
            return (await reader.readline()).startswith(b"SSH-2.0-")
    except (TimeoutError, OSError):
        return False
    finally:
        writer.close()


async def walk(world: World, column: str) -> None:
    """Try one column."""
    await world.begin()
    opened: dict[str, Ended] = {}
    for row, make in ROWS.items():
        opened[row] = await make(world)
        world.stack.push_async_callback(cancel_and_wait, opened[row])

    await asyncio.sleep(long_requests.YOUNG_S)
    wrong = [f"{row} ended before" for row, waits in opened.items() if waits.done()]
    await COLUMNS[column](world)
    ends = {waits for row, waits in opened.items() if TABLE[column][row]}
    await asyncio.wait(ends, timeout=WITHIN_S)
    wrong += [
        f"{row} goes on" for row, waits in opened.items() if waits in ends and not waits.done()
    ]
    await asyncio.sleep(0.3)
    wrong += [f"{row} ended" for row, waits in opened.items() if waits not in ends and waits.done()]
    for waits in (one for one in opened.values() if one.done()):
        error = waits.exception()
        assert error is None or isinstance(error, ERRORS), repr(error)

    assert not wrong, f"{column}: {wrong}"


# Connection errors when a connection breaks off.
ERRORS = (aiohttp.ClientError, OSError, asyncssh.Error, grpc.aio.AioRpcError, Unreachable)


def test_table_names_what_is_tried() -> None:
    assert TABLE.keys() == COLUMNS.keys()
    for column in TABLE.values():
        assert column.keys() == ROWS.keys()


@pytest.mark.timeout(180)
async def test_what_the_table_says(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_requests, "YOUNG_S", 0.2)
    # Sessions of members need a runtime that isolates them.
    monkeypatch.setattr(
        manager_harness,
        "INFO",
        replace(manager_harness.INFO, runtimes=("process", "isolated-process")),
    )
    monkeypatch.setattr(manager_ssh, "RECHECK_S", 3600.0)
    admin = site.client
    await site.join("node-1")
    await admin.projects.create(ProjectSpec(name="vision"))

    async with AsyncExitStack() as stack:
        agent = await stack.enter_async_context(attach(site.manager, dialer=site.dialer()))
        kernels = spawn("test.agent", serve_kernels(agent))
        stack.push_async_callback(cancel_and_wait, kernels)
        proxies = [
            await stack.enter_async_context(proxy_of(site, name)) for name in ("edge-1", "edge-2")
        ]
        chat = NewEndpoint(
            name="chat",
            engine="custom",
            command=["x"],
            probe=Probe(),
            resources={"cpu": 0.1},
            shared_with=["*"],
        )
        await admin.endpoints.create(chat)

        async with asyncio.timeout(30):
            while (await admin.endpoints.get("chat")).ready != 1 or not all(
                [await greets(p) for p in proxies]
            ):
                await asyncio.sleep(0.05)

        for number, column in enumerate(COLUMNS):
            proxy = proxies[column == "proxy"]
            async with AsyncExitStack() as scenario:
                await walk(World(site, proxy, agent, number, stack=scenario), column)

        revoked = proxies[1]
        assert not revoked.ready
        assert not list((site.home / "edge-2").rglob("routes.json"))

        async with aiohttp.ClientSession() as http:
            url = "http://{}:{}/v1/models".format(*revoked.address)
            async with http.get(
                url, headers={"Authorization": f"Bearer {site.manager.first_key}"}
            ) as answer:
                assert answer.status == 503, await answer.text()
