"""Stored responses through a proxy: any worker requests each from the replica that created it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from proxy_harness import (
    AUTH,
    KEY,
    KEY_GRANT,
    Client,
    RouteServer,
    engine,
    routes,
    serving,
    target,
    until,
)
from test_proxy_workers import daemon

from moorage.common.link.messages import KeyGrant
from moorage.common.model.ids import KernelId

CREATE = {"model": "tiny", "input": "hello"}


class StoringEngine:
    """Keeps the responses that it creates, as vLLM does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stored: dict[str, dict[str, object]] = {}

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/v1/responses":
            given = await request.json()
            name = given.get("request_id", f"resp_{self.name}{len(self.stored)}")
            made = {"id": name, "object": "response", "status": "completed"}
            self.stored[made["id"]] = made
            if not given.get("stream"):
                return web.json_response(made)

            stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await stream.prepare(request)
            for kind in ("created", "completed"):
                line = json.dumps({"type": f"response.{kind}", "response": made})
                await stream.write(f"event: response.{kind}\ndata: {line}\n\n".encode())

            return stream

        found = self.stored.get(request.path.split("/")[3])
        if found is None:
            return web.json_response({"error": {"message": "not here"}}, status=404)
        if request.method == "DELETE":
            del self.stored[str(found["id"])]

        seen = {"method": request.method, "path": request.path_qs, "replica": self.name}
        return web.json_response(found | {"seen": seen})


async def create(client: Client, **fields: object) -> str:
    """Create a response, and return its id."""
    async with client.post(CREATE | fields, "/v1/responses") as response:
        assert response.status == 200
        text = await response.text()
    return text.partition('"id": "')[2].partition('"')[0]


@pytest.mark.parametrize("plane", ["asyncio", "simple"])
async def test_stored_responses(tmp_path: Path, plane: str) -> None:
    one = StoringEngine("a")
    two = StoringEngine("b")
    stranger = KeyGrant(hashlib.sha256(b"stranger").hexdigest(), project="theirs")
    mine = replace(KEY_GRANT, project="mine")
    async with engine(one.serve) as port_a, engine(two.serve) as port_b:
        table = routes(1, tiny=[target("a", port_a), target("b", port_b)])
        shared = tuple(replace(route, shared_with=("*",)) for route in table.models)
        table = replace(table, models=shared, keys=(mine, stranger))
        async with serving(tmp_path, table, plane=plane) as client:

            async def ask(method: str, path: str, key: str = KEY) -> tuple[int, dict]:
                url = f"{client.url}/v1/responses/{path}"
                headers = {"Authorization": f"Bearer {key}"}
                async with client.session.request(method, url, headers=headers) as response:
                    return response.status, await response.json()

            made = list[str]()
            # Each may reach either replica. The first one is deleted below, and another one from
            # "a" is used.
            while {name[5] for name in made[1:]} != {"a", "b"} or len(made) < 8:
                made.append(await create(client, stream=len(made) % 2 == 0))

            for name in made:
                for method, rest in (
                    ("GET", "?stream=false"),
                    ("POST", "/cancel"),
                    ("GET", "/input_items"),
                ):
                    status, found = await ask(method, name + rest)
                    assert status == 200
                    path = f"/v1/responses/{name}{rest}"
                    assert found["seen"] == {"method": method, "path": path, "replica": name[5]}

                for key, path in (("stranger", name), (KEY, name + "x")):
                    status, found = await ask("GET", path, key)
                    assert (status, found["error"]["code"]) == (404, "response_not_found")

                follows = await create(client, previous_response_id=name)
                assert follows[5] == name[5]

            assert (await ask("DELETE", made[0]))[0] == 200
            assert (await ask("GET", made[0]))[1] == {"error": {"message": "not here"}}
            other = next(name for name in made[1:] if name[5] == "a")
            left = tuple(replace(route, targets=route.targets[1:]) for route in shared)
            await client.manager.publish(replace(table, generation=2, models=left))
            await until(lambda: client.has_generation(2))
            status, found = await ask("GET", other)
            assert (status, found["error"]["code"]) == (404, "response_not_found")
            assert "has ended" in found["error"]["message"]


async def test_any_worker_finds_the_replica(tmp_path: Path) -> None:
    one = StoringEngine("a")
    two = StoringEngine("b")
    async with engine(one.serve) as port_a, engine(two.serve) as port_b:
        table = routes(1, tiny=[target("a", port_a), target("b", port_b)])
        async with RouteServer(table) as manager, daemon(tmp_path, manager) as proxy:
            url = proxy.url + "/v1/responses"
            for _ in range(8):  # each connection reaches one of two workers
                async with (
                    aiohttp.ClientSession(headers=AUTH) as session,
                    session.post(url, json=CREATE) as response,
                ):
                    made = (await response.json())["id"]

                for _ in range(3):
                    async with (
                        aiohttp.ClientSession(headers=AUTH) as session,
                        session.get(f"{url}/{made}") as response,
                    ):
                        assert (await response.json())["seen"]["replica"] == made[5]


async def test_another_proxy_finds_the_replica(tmp_path: Path) -> None:
    """Two proxies, each a process with its own workers and state."""
    one = StoringEngine("a")
    two = StoringEngine("b")
    stranger = KeyGrant(hashlib.sha256(b"stranger").hexdigest(), project="theirs")
    async with engine(one.serve) as port_a, engine(two.serve) as port_b:
        targets = [
            replace(target(name, port), kernel_id=KernelId(f"kernel-{name}"), engine="vllm")
            for name, port in (("a", port_a), ("b", port_b))
        ]
        table = routes(1, tiny=targets)
        shared = tuple(replace(route, shared_with=("*",)) for route in table.models)
        table = replace(table, models=shared, keys=(replace(KEY_GRANT, project="mine"), stranger))
        homes = tmp_path / "first", tmp_path / "second"
        for home in homes:
            home.mkdir()

        async with (
            RouteServer(table) as manager,
            daemon(homes[0], manager) as first,
            daemon(homes[1], manager) as second,
            aiohttp.ClientSession() as session,
        ):

            async def ask(
                method: str, url: str, key: str = KEY, **body: object
            ) -> tuple[int, dict]:
                headers = {"Authorization": f"Bearer {key}"}
                async with session.request(
                    method, url, headers=headers, json=body or None
                ) as response:
                    return response.status, await response.json()

            for here, there in ((first, second), (second, first)) * 3:
                status, made = await ask("POST", f"{here.url}/v1/responses", **CREATE)
                assert status == 200
                name = made["id"]
                url = f"{there.url}/v1/responses/{made['id']}"
                for method, address in (("GET", url), ("POST", f"{url}/cancel")):
                    status, found = await ask(method, address)
                    assert status == 200, found
                    assert f"resp_kernel-{found['seen']['replica']}." in name

                for proxy in (here, there):
                    for method, rest in (("GET", ""), ("POST", "/cancel"), ("DELETE", "")):
                        address = f"{proxy.url}/v1/responses/{name}{rest}"
                        status, found = await ask(method, address, "stranger")
                        assert (status, found["error"]["code"]) == (404, "response_not_found")

                status, found = await ask("DELETE", url)
                assert (status, found["error"]["code"]) == (404, "unknown_url"), "vLLM deletes none"
