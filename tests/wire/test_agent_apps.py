"""Service ports on a real node: given, told to the program, reported, kept over a death, and given back."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import agent_harness as h
import aiohttp
import pytest_asyncio

from moorage.common.link.messages import Observation
from moorage.common.model.service_ports import AppPort, ServicePort
from moorage.common.model.status import ObservedState

PORTS = (ServicePort("lab", base_path=True, guarded=True), ServicePort("db", protocol="tcp"))
# Answers with what it was told: of its command, then of its environment.
PROGRAM = """
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Told(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        told = {name: value for name, value in os.environ.items() if name.startswith("MOORAGE_P")}
        self.wfile.write(json.dumps([sys.argv[1:], told]).encode())

HTTPServer(("127.0.0.1", int(sys.argv[1])), Told).serve_forever()
"""


@pytest_asyncio.fixture
async def boss() -> AsyncIterator[h.Manager]:
    async with h.manager() as running:
        yield running


def program(**fields: object):
    command = (sys.executable, "-c", PROGRAM, "{port:lab}", "{path:lab}", "{port:db}", "{port:none}")
    return h.kernel(*command, ports=PORTS, **fields)


def ports_of(seen: Observation) -> list[int]:
    return [app.port for app in seen.apps]


async def test_a_program_is_told_its_ports_and_the_manager_too(boss: h.Manager, tmp_path: Path) -> None:
    spec, plain = program(), h.kernel("sleep", "60")
    boss.order(spec, plain)
    async with h.make_agent(boss, tmp_path):
        seen = await boss.until_kernel(spec.kernel_id, ObservedState.RUNNING)
        lab, db = seen.apps
        assert lab == AppPort("lab", lab.port, "http", True, lab.port, True)
        assert (db.name, db.protocol) == ("db", "tcp")
        assert seen.host == "127.0.0.1"
        assert (await boss.until_kernel(plain.kernel_id, ObservedState.RUNNING)).apps == ()
        argv, told = await ask(lab.port)
        path = f"/apps/{spec.session_id}/lab"
        assert argv == [str(lab.port), path, str(db.port), "{port:none}"]
        assert {name: told[name] for name in told if name != "MOORAGE_PORT"} == {
            "MOORAGE_PORT_LAB": str(lab.port),
            "MOORAGE_PATH_LAB": path,
            "MOORAGE_PORT_DB": str(db.port),
        }
        boss.order()
        await boss.until(lambda report: not report.kernels)
        again = program()
        boss.order(again)
        new = await boss.until_kernel(again.kernel_id, ObservedState.RUNNING)
        assert not set(ports_of(new)) & set(ports_of(seen)), "released ports rest for a while"
        boss.order()
        await boss.until(lambda report: not report.kernels)


async def test_ports_are_still_its_own_after_the_agent_was_killed(boss: h.Manager, tmp_path: Path) -> None:
    spec = program()
    boss.order(spec)
    async with h.agent_process(boss, tmp_path) as agent:
        before = await boss.until_kernel(spec.kernel_id, ObservedState.RUNNING)
        agent.kill()
        await agent.wait()
    for lost_ledger in (False, True):
        if lost_ledger:
            shutil.rmtree(tmp_path / "agent-one" / "ledger")
        streams, other = boss.streams, program()
        async with h.make_agent(boss, tmp_path):
            boss.order(spec, other)
            await boss.until(lambda _, streams=streams: boss.streams > streams)
            new = await boss.until_kernel(other.kernel_id, ObservedState.RUNNING)
            after = await boss.until_kernel(spec.kernel_id, ObservedState.RUNNING)
            assert after.apps == before.apps
            assert (await ask(before.apps[0].port))[0][0] == str(before.apps[0].port)
            assert not set(ports_of(new)) & set(ports_of(before))
            boss.order(spec)
            await boss.until(lambda report: len(report.kernels) == 1)
    async with h.make_agent(boss, tmp_path):
        boss.order()
        await boss.until(lambda report: report.orders_generation == boss.generation and not report.kernels)
    await h.until_no_processes(spec.kernel_id)


async def test_ports_that_are_not_to_be_had_end_it_and_leave_none_taken(
    boss: h.Manager, tmp_path: Path
) -> None:
    many = h.kernel("sleep", "60", ports=tuple(ServicePort(f"p{n}") for n in range(4)))
    boss.order(many)
    async with h.make_agent(boss, tmp_path, port_range="23990-23992"):
        refused = await boss.until_kernel(many.kernel_id, ObservedState.EXITED)
        assert (refused.reason, refused.apps) == ("port-taken", ())
        few = h.kernel("sleep", "60", ports=tuple(ServicePort(f"p{n}") for n in range(3)))
        boss.order(few)
        assert len((await boss.until_kernel(few.kernel_id, ObservedState.RUNNING)).apps) == 3
        boss.order()
        await boss.until(lambda report: not report.kernels)


async def ask(port: int) -> tuple[list[str], dict[str, str]]:
    async with aiohttp.ClientSession() as http:
        for _ in range(200):
            try:
                async with http.get(f"http://127.0.0.1:{port}/") as answer:
                    return tuple(json.loads(await answer.text()))
            except aiohttp.ClientConnectionError:
                await h.asyncio.sleep(0.05)
    raise AssertionError(f"nothing listens at {port}")
