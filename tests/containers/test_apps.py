"""Container service ports: declared by the session and the image, published, and recovered after a
restart."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from pathlib import Path

import aiohttp

from moorage.common.model.service_ports import AppPort, ServicePort
from moorage.common.model.status import ObservedState as S
from tests.wire.agent_harness import FakeManager

from .engine import PrivateEngine
from .images import PYTHON_IMAGE
from .node import Node, contained

LABEL = "lab:9000+path,web:1,other:8080,ssh:22/tcp"
# Returns its port variables on both ports.
PROGRAM = """
import http.server, json, os, threading

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        variables = {name: value for name, value in os.environ.items() if name.startswith("MOORAGE_P")}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps([self.server.server_port, variables]).encode())

for port in (8080, 9000):
    server = http.server.ThreadingHTTPServer(("0.0.0.0", port), Handler)
    threading.Thread(target=server.serve_forever).start()
"""


def labelled(engine: PrivateEngine, image: str, label: str) -> str:
    with contextlib.closing(engine.api()) as api:
        created = api.create_container(PYTHON_IMAGE, entrypoint=["true"])
        name, _, tag = image.partition(":")
        api.commit(
            created["Id"],
            repository=name,
            tag=tag,
            changes=[f'LABEL moorage.service-ports="{label}"'],
        )
        api.remove_container(created["Id"])

    return image


async def ask(port: int) -> tuple[int, dict[str, str]]:
    async with asyncio.timeout(20), aiohttp.ClientSession() as http:
        while True:
            try:
                async with http.get(f"http://127.0.0.1:{port}/") as response:
                    inner, variables = json.loads(await response.text())
                    return inner, variables
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)


async def test_service_ports_are_published_and_recovered_without_a_checkpoint(
    fake_manager: FakeManager, node: Node, docker_engine: PrivateEngine, tmp_path: Path
) -> None:
    image = labelled(docker_engine, "moorage-test/lab:1", LABEL)
    declared = (ServicePort("web", 8080), ServicePort("free", guarded=True))
    spec = contained("python3", "-c", PROGRAM, image=image, ports=declared)
    fake_manager.order(spec)
    running = await fake_manager.wait_for_kernel(spec.kernel_id, S.RUNNING, timeout_s=40)
    web, free, lab, ssh = running.apps
    assert [(a.name, a.protocol, a.inner) for a in (web, lab, ssh)] == [
        ("web", "http", 8080),
        ("lab", "http", 9000),
        ("ssh", "tcp", 22),
    ], "the session takes precedence over the image, by name and by port"
    assert lab.base_path
    assert free == AppPort("free", free.port, guarded=True, inner=free.port)
    assert len({a.port for a in running.apps}) == 4
    inner, variables = await ask(web.port)
    assert inner == 8080
    assert variables["MOORAGE_PORT_WEB"] == "8080"
    assert variables["MOORAGE_PORT_FREE"] == str(free.port)
    assert variables["MOORAGE_PATH_LAB"] == f"/apps/{spec.session_id}/lab"
    assert (await ask(lab.port))[0] == 9000

    for lost_checkpoint in (False, True):
        await node.kill()
        if lost_checkpoint:
            shutil.rmtree(tmp_path / "agent-one" / "checkpoint")

        before = fake_manager.streams
        await node.start()
        await fake_manager.wait_for_report(lambda _, before=before: fake_manager.streams > before)  # type: ignore[misc]
        again = await fake_manager.wait_for_kernel(spec.kernel_id, S.RUNNING, timeout_s=40)
        assert again.apps == running.apps
        assert (await ask(lab.port))[0] == 9000

    fake_manager.order()
    await fake_manager.wait_for_report(lambda report: not report.kernels, timeout_s=40)


async def test_invalid_label_does_not_prevent_a_start(
    fake_manager: FakeManager, node: Node, docker_engine: PrivateEngine
) -> None:
    image = labelled(docker_engine, "moorage-test/bad:1", "Bad!")
    spec = contained("python3", "-c", "print('fine')", image=image)
    fake_manager.order(spec)
    exited = await fake_manager.wait_for_kernel(spec.kernel_id, S.EXITED, timeout_s=40)
    assert (exited.exit_code, exited.apps) == (0, ())
