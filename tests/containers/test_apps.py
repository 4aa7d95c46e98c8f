"""Service ports of containers: declared by the session and by the image, published, and known again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from pathlib import Path

import aiohttp

from moorage.common.model.service_ports import AppPort, ServicePort
from moorage.common.model.status import ObservedState as S
from tests.wire.agent_harness import Manager

from .engine import PrivateEngine
from .images import PYTHON_IMAGE
from .node import Node, contained

LABEL = "lab:9000+path,web:1,other:8080,ssh:22/tcp"
# Answers at both ports with what it was told.
PROGRAM = """
import http.server, json, os, threading

class Told(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        told = {name: value for name, value in os.environ.items() if name.startswith("MOORAGE_P")}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps([self.server.server_port, told]).encode())

for port in (8080, 9000):
    server = http.server.ThreadingHTTPServer(("0.0.0.0", port), Told)
    threading.Thread(target=server.serve_forever).start()
"""


def labelled(engine: PrivateEngine, image: str, label: str) -> str:
    with contextlib.closing(engine.api()) as api:
        made = api.create_container(PYTHON_IMAGE, entrypoint=["true"])
        name, _, tag = image.partition(":")
        api.commit(made["Id"], repository=name, tag=tag, changes=[f'LABEL moorage.service-ports="{label}"'])
        api.remove_container(made["Id"])
    return image


async def ask(port: int) -> tuple[int, dict[str, str]]:
    async with asyncio.timeout(20), aiohttp.ClientSession() as http:
        while True:
            try:
                async with http.get(f"http://127.0.0.1:{port}/") as answer:
                    inner, told = json.loads(await answer.text())
                    return inner, told
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)


async def test_ports_of_session_and_image_are_published_and_outlive_the_agent_and_its_ledger(
    boss: Manager, node: Node, docker_engine: PrivateEngine, tmp_path: Path
) -> None:
    image = labelled(docker_engine, "moorage-test/lab:1", LABEL)
    declared = (ServicePort("web", 8080), ServicePort("free", guarded=True))
    spec = contained("python3", "-c", PROGRAM, image=image, ports=declared)
    boss.order(spec)
    seen = await boss.until_kernel(spec.kernel_id, S.RUNNING, timeout_s=40)
    web, free, lab, ssh = seen.apps
    assert [(a.name, a.protocol, a.inner) for a in (web, lab, ssh)] == [
        ("web", "http", 8080),
        ("lab", "http", 9000),
        ("ssh", "tcp", 22),
    ], "what was asked for wins, by name and by port"
    assert lab.base_path
    assert free == AppPort("free", free.port, guarded=True, inner=free.port)
    assert len({a.port for a in seen.apps}) == 4
    inner, told = await ask(web.port)
    assert inner == 8080
    assert told["MOORAGE_PORT_WEB"] == "8080"
    assert told["MOORAGE_PORT_FREE"] == str(free.port)
    assert told["MOORAGE_PATH_LAB"] == f"/apps/{spec.session_id}/lab"
    assert (await ask(lab.port))[0] == 9000
    for lost_ledger in (False, True):
        await node.kill()
        if lost_ledger:
            shutil.rmtree(tmp_path / "agent-one" / "ledger")
        before = boss.streams
        await node.start()
        await boss.until(lambda _, before=before: boss.streams > before)  # type: ignore[misc]
        again = await boss.until_kernel(spec.kernel_id, S.RUNNING, timeout_s=40)
        assert again.apps == seen.apps
        assert (await ask(lab.port))[0] == 9000
    boss.order()
    await boss.until(lambda report: not report.kernels, timeout_s=40)


async def test_a_label_that_cannot_be_is_no_reason_not_to_run(
    boss: Manager, node: Node, docker_engine: PrivateEngine
) -> None:
    image = labelled(docker_engine, "moorage-test/bad:1", "Bad!")
    spec = contained("python3", "-c", "print('fine')", image=image)
    boss.order(spec)
    ended = await boss.until_kernel(spec.kernel_id, S.EXITED, timeout_s=40)
    assert (ended.exit_code, ended.apps) == (0, ())
