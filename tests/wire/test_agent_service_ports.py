"""Service ports on a real node: allocation, environment, reporting, recovery after a crash,
release."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import agent_harness as h
import aiohttp
import pytest_asyncio
from tests.addresses import port_range

from moorage.common.link.messages import Observation
from moorage.common.model.service_ports import AppPort, ServicePort
from moorage.common.model.status import ObservedState

PORTS = (ServicePort("lab", base_path=True, guarded=True), ServicePort("db", protocol="tcp"))
# Responds with its arguments and the port variables of its environment.
PROGRAM = """
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Echo(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        ports = {name: value for name, value in os.environ.items() if name.startswith("MOORAGE_P")}
        self.wfile.write(json.dumps([sys.argv[1:], ports]).encode())

HTTPServer(("127.0.0.1", int(sys.argv[1])), Echo).serve_forever()
"""


@pytest_asyncio.fixture
async def manager() -> AsyncIterator[h.FakeManager]:
    async with h.run_fake_manager() as running:
        yield running


def program(**fields: object):
    command = (
        sys.executable,
        "-c",
        PROGRAM,
        "{port:lab}",
        "{path:lab}",
        "{port:db}",
        "{port:none}",
    )
    return h.kernel(*command, ports=PORTS, **fields)


def ports_of(seen: Observation) -> list[int]:
    return [app.port for app in seen.apps]


async def test_ports_are_passed_to_the_program_and_reported(
    manager: h.FakeManager, tmp_path: Path
) -> None:
    spec = program()
    plain = h.kernel("sleep", "60")
    manager.order(spec, plain)

    async with h.make_agent(manager, tmp_path):
        seen = await manager.wait_for_kernel(spec.kernel_id, ObservedState.RUNNING)
        lab, db = seen.apps
        assert lab == AppPort(
            "lab", lab.port, protocol="http", base_path=True, inner=lab.port, guarded=True
        )
        assert (db.name, db.protocol) == ("db", "tcp")
        assert seen.host == "127.0.0.1"
        assert (await manager.wait_for_kernel(plain.kernel_id, ObservedState.RUNNING)).apps == ()
        argv, env = await ask(lab.port)
        path = f"/apps/{spec.session_id}/lab"
        assert argv == [str(lab.port), path, str(db.port), "{port:none}"]
        of_ports = ("MOORAGE_PORT_", "MOORAGE_PATH_")
        assert {name: env[name] for name in env if name.startswith(of_ports)} == {
            "MOORAGE_PORT_LAB": str(lab.port),
            "MOORAGE_PATH_LAB": path,
            "MOORAGE_PORT_DB": str(db.port),
        }
        manager.order()
        await manager.wait_for_report(lambda report: not report.kernels)
        again = program()
        manager.order(again)
        new = await manager.wait_for_kernel(again.kernel_id, ObservedState.RUNNING)
        assert not set(ports_of(new)) & set(ports_of(seen)), "released ports cool down"
        manager.order()
        await manager.wait_for_report(lambda report: not report.kernels)


async def test_ports_survive_an_agent_crash(manager: h.FakeManager, tmp_path: Path) -> None:
    spec = program()
    manager.order(spec)
    async with h.agent_process(manager, tmp_path) as agent:
        before = await manager.wait_for_kernel(spec.kernel_id, ObservedState.RUNNING)
        agent.kill()
        await agent.wait()

    for lost_checkpoint in (False, True):
        if lost_checkpoint:
            shutil.rmtree(tmp_path / "agent-one" / "checkpoint")

        streams = manager.streams
        other = program()
        async with h.make_agent(manager, tmp_path):
            manager.order(spec, other)
            await manager.wait_for_report(lambda _, streams=streams: manager.streams > streams)
            new = await manager.wait_for_kernel(other.kernel_id, ObservedState.RUNNING)
            after = await manager.wait_for_kernel(spec.kernel_id, ObservedState.RUNNING)
            assert after.apps == before.apps
            assert (await ask(before.apps[0].port))[0][0] == str(before.apps[0].port)
            assert not set(ports_of(new)) & set(ports_of(before))
            manager.order(spec)
            await manager.wait_for_report(lambda report: len(report.kernels) == 1)

    async with h.make_agent(manager, tmp_path):
        manager.order()
        await manager.wait_for_report(
            lambda report: report.orders_generation == manager.generation and not report.kernels
        )

    await h.wait_until_no_processes(spec.kernel_id)


async def test_kernel_without_free_ports_ends_and_releases_all(
    manager: h.FakeManager, tmp_path: Path
) -> None:
    many = h.kernel("sleep", "60", ports=tuple(ServicePort(f"p{n}") for n in range(4)))
    manager.order(many)
    async with h.make_agent(manager, tmp_path, port_range=port_range(h.PORTS[:3])):
        refused = await manager.wait_for_kernel(many.kernel_id, ObservedState.EXITED)
        assert (refused.reason, refused.apps) == ("port-taken", ())
        few = h.kernel("sleep", "60", ports=tuple(ServicePort(f"p{n}") for n in range(3)))
        manager.order(few)
        assert len((await manager.wait_for_kernel(few.kernel_id, ObservedState.RUNNING)).apps) == 3
        manager.order()
        await manager.wait_for_report(lambda report: not report.kernels)


async def ask(port: int) -> tuple[list[str], dict[str, str]]:
    async with aiohttp.ClientSession() as http:
        for _ in range(200):
            try:
                async with http.get(f"http://127.0.0.1:{port}/") as answer:
                    return tuple(json.loads(await answer.text()))
            except aiohttp.ClientConnectionError:
                await h.asyncio.sleep(0.05)
    raise AssertionError(f"nothing listens at {port}")
