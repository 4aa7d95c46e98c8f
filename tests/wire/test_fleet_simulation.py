"""Simulated agents against a real manager with a real Postgres, and against a stub that records
reports."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import agent_harness as h
import aiohttp
import pytest
import pytest_asyncio
from tests.addresses import free_port

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, ManagerSettings
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import TERMINAL, ObservedState, Status
from moorage.common.views.resources import SessionView
from moorage.manager import Manager
from moorage.sdk import Client
from moorage.simulator.fleet import Faults, FleetConfig, FleetSimulation, KernelProfile, Range
from moorage.simulator.fleet.listeners import RefusingPort, StubModelServer

CLOCK = SystemClock()
QUICK = KernelProfile(start_s=Range(0.005, 0.02), run_s=Range(0.05, 0.2))


@pytest_asyncio.fixture
async def manager(migrated_database: str, tmp_path: Path) -> AsyncIterator[Manager]:
    settings = ManagerSettings(
        dsn=migrated_database, listen="127.0.0.1:0", link_listen="127.0.0.1:0"
    )
    async with Manager(settings, clock=CLOCK, link_token=h.TOKEN, home=tmp_path) as running:
        yield running


@pytest_asyncio.fixture
async def client(manager: Manager) -> AsyncIterator[Client]:
    assert manager.first_key is not None
    async with Client(f"http://{manager.api_address}", manager.first_key) as connected:
        yield connected


def fleet(
    target: str,
    agents: int,
    *,
    profile: KernelProfile = QUICK,
    faults: Faults | None = None,
    **config: Any,
) -> FleetSimulation:
    settings = AgentSettings(manager=target, report_interval_s=0.5)
    return FleetSimulation(
        FleetConfig(agents=agents, **config),
        profile,
        faults or Faults(),
        settings,
        clock=CLOCK,
        token=h.TOKEN,
    )


async def until(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


async def wait_until_running(client: Client, name: str, timeout_s: float = 20) -> None:
    session = None
    try:
        async with asyncio.timeout(timeout_s):
            while session is None or session.status is not Status.RUNNING:
                await asyncio.sleep(0.05)
                session = await client.sessions.get(name)
    except TimeoutError:
        raise AssertionError(f"not running: {session}") from None


async def wait_until_ended(client: Client, count: int, timeout_s: float = 60) -> list[SessionView]:
    active: list[SessionView] = []
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                found = await client.sessions.list()
                active = [s for s in found if s.status not in TERMINAL]
                if len(found) == count and not active:
                    return list(found)

                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not ended: {active[:5]}") from None


async def test_sessions_end_as_scripted(manager: Manager, client: Client) -> None:
    expected: dict[str, tuple[dict[str, str], tuple[Status, str]]] = {
        "good": ({}, (Status.TERMINATED, "exit-zero")),
        "bad": ({"SIM_EXIT": "7"}, (Status.TERMINATED, "exit-nonzero")),
        "never": ({"SIM_FAIL_START": "1"}, (Status.ERROR, "create-failed")),
        "stopped": ({"SIM_RUN_S": "forever"}, (Status.TERMINATED, "user-requested")),
    }
    async with fleet(manager.link_address, 8, gpus=4) as simulation:
        await asyncio.gather(
            *(
                client.sessions.create(
                    SessionSpec(
                        name=f"{kind}-{i}",
                        command=["x"],
                        env=env,
                        max_attempts=2,
                        resources={"cuda.device": 1},
                    )
                )
                for kind, (env, _) in expected.items()
                for i in range(15)
            )
        )
        for i in range(15):
            await wait_until_running(client, f"stopped-{i}")
            await client.sessions.stop(f"stopped-{i}")

        ended = await wait_until_ended(client, 60)
        for session in ended:
            kind = (session.name or "").partition("-")[0]
            assert (session.status, session.reason) == expected[kind][1], session

        await until(lambda: not +simulation.statistics.states)
        assert simulation.statistics.ended["exit-nonzero"] == 15
        assert simulation.statistics.ended["create-failed"] == 30, "each ran two attempts"
        assert {a.id for a in await client.agents.list()} == {f"sim-{n}" for n in range(8)}


async def test_faults_delay_sessions_but_lose_none(manager: Manager, client: Client) -> None:
    faults = Faults(
        lose_report=0.2, disconnect_every_s=0.1, die_every_s=0.3, down_s=Range(0.05, 0.3)
    )
    slow = KernelProfile(start_s=Range(0.01, 0.1), run_s=Range(0.5, 2))
    async with fleet(manager.link_address, 6, profile=slow, faults=faults, seed=3) as simulation:
        for i in range(60):
            await client.sessions.create(
                SessionSpec(name=f"s-{i}", command=["x"], resources={"cpu": 1})
            )

        ended = await wait_until_ended(client, 60)
        assert Counter((s.status, s.reason) for s in ended) == {
            (Status.TERMINATED, "exit-zero"): 60
        }
        assert simulation.statistics.faults["disconnect"] > 3
        assert simulation.statistics.faults["death"] > 0
        await until(lambda: not +simulation.statistics.states)


async def test_leaving_agents_report_draining_and_end_their_kernels(
    manager: Manager, client: Client
) -> None:
    async with fleet(manager.link_address, 5) as simulation:
        await client.sessions.create(
            SessionSpec(name="s", command=["x"], env={"SIM_RUN_S": "forever"})
        )
        await wait_until_running(client, "s")
        await until(lambda: simulation.statistics.connected == 5)

    async with asyncio.timeout(10):
        while not all(agent.draining for agent in await client.agents.list()):
            await asyncio.sleep(0.05)
        while (await client.sessions.get("s")).status not in TERMINAL:
            await asyncio.sleep(0.05)

    assert (await client.sessions.get("s")).reason == "agent-shutdown"


async def test_kernels_survive_a_lost_checkpoint_and_can_be_stopped(
    manager: Manager, client: Client
) -> None:
    faults = Faults(die_every_s=0.1, lose_checkpoint=1, down_s=Range(0.01, 0.1))
    async with fleet(manager.link_address, 1, faults=faults) as simulation:
        await client.sessions.create(
            SessionSpec(name="s", command=["x"], env={"SIM_RUN_S": "forever"})
        )
        await wait_until_running(client, "s")
        before = simulation.statistics.faults["lost-checkpoint"]
        await until(lambda: simulation.statistics.faults["lost-checkpoint"] > before + 3)
        assert (await client.sessions.get("s")).status is Status.RUNNING
        assert simulation.statistics.created == 1, "adopted each time, never created again"
        await client.sessions.stop("s")
        (ended,) = await wait_until_ended(client, 1)
        assert (ended.status, ended.reason) == (Status.TERMINATED, "user-requested")


async def test_connected_count_follows_the_manager() -> None:
    async with h.run_fake_manager() as manager:
        manager.order()
        async with fleet(manager.target, 3) as simulation:
            await until(lambda: simulation.statistics.connected == 3)
            await manager.stop()
            await until(lambda: simulation.statistics.connected == 0)
            await manager.start()
            await until(lambda: simulation.statistics.connected == 3)


async def test_agents_reconnect_after_disconnects_and_deaths() -> None:
    faults = Faults(disconnect_every_s=0.05, die_every_s=0.05, reboot=1, down_s=Range(0.01, 0.02))
    async with h.run_fake_manager() as manager:
        kernel = h.kernel("x", env={"SIM_RUN_S": "forever"})
        manager.order(kernel)
        async with fleet(manager.target, 1, faults=faults) as simulation:
            gone = await manager.wait_for_kernel(kernel.kernel_id, ObservedState.GONE)
            assert gone.detail == "its node was restarted"
            await until(lambda: simulation.statistics.faults["disconnect"] > 0)
            await until(lambda: len({report.incarnation for report in manager.reports}) > 2)
            assert simulation.statistics.created == 1, "a kernel is never created twice"


async def test_served_port_answers_and_unserved_port_refuses() -> None:
    async with (
        StubModelServer("127.0.0.1") as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        assert (await http.get("/health")).status == 200
        request = {"model": "m", "messages": [{"role": "user", "content": "Ready?"}]}
        whole = await (await http.post("/v1/chat/completions", json=request)).json()
        assert (whole["model"], whole["choices"][0]["message"]["content"]) == ("m", "aye")
        text = await (await http.post("/v1/completions", json={"model": "m", "prompt": "x"})).json()
        assert text["choices"][0]["text"] == "aye"
        stream = (
            await (await http.post("/v1/chat/completions", json=request | {"stream": True})).text()
        ).split("\n\n")
        assert (
            json.loads(stream[0].removeprefix("data: "))["choices"][0]["delta"]["content"] == "aye"
        )
        assert stream[1] == "data: [DONE]"
        assert (await http.post("/v1/chat/completions", data=b"{")).status == 400

    async with RefusingPort("127.0.0.1") as port:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port))


async def simulate(home: Path, *options: str, token: str = "") -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "moorage", "simulate", "--home", str(home), *options,
        env=os.environ | {
            "MOORAGE_COMMON__LINK_TOKEN": token, "MOORAGE_COMMON__LINK_TLS": "off", "PYTHONFAULTHANDLER": "1",
        },
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def test_command_runs_until_signalled_or_timed_out(tmp_path: Path) -> None:
    async with h.run_fake_manager() as manager:
        manager.order()
        options = ["--manager", manager.target, "--output", "json"]
        process = await simulate(
            tmp_path, "--agents", "3", "--prefix", "p-", "--mem", "1TiB", *options, token=h.TOKEN
        )
        await manager.wait_for_report(lambda report: report.info.agent_id == "p-2")
        offers = {offer.slot: offer.capacity for offer in manager.last_report.info.offers}
        assert offers["mem"] == 2**40
        assert Counter(offer.slot for offer in manager.last_report.info.offers)["cuda.device"] == 8
        async with asyncio.timeout(10):
            while manager.streams < 3:
                await asyncio.sleep(0.01)

        process.terminate()
        out, _ = await process.communicate()
        assert process.returncode == 0
        assert json.loads(out)["agents"] == 3
        timed = await simulate(tmp_path, "--agents", "2", "--for", "500ms", *options, token=h.TOKEN)
        out, _ = await timed.communicate()
        assert timed.returncode == 0
        assert json.loads(out)["seconds"] >= 0.5


async def test_command_finds_the_manager_in_etcd(tmp_path: Path) -> None:
    """The command reads only the stored form, because no etcd listens."""
    async with h.run_fake_manager() as manager:
        manager.order()
        (tmp_path / "etcd-managers.json").write_text(json.dumps([manager.target]))
        etcd = f"etcd://127.0.0.1:{free_port()}"
        process = await simulate(tmp_path, "--manager", etcd, "--agents", "1", token=h.TOKEN)
        await manager.wait_for_report(lambda report: report.info.agent_id == "sim-0")
        process.terminate()
        _, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        assert b"using the managers found before" in err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--faults", "some"], ["--faults", "none, light, heavy"]),
        (["--run-time", "10s..1s"], ["--run-time", "LOW..HIGH"]),
        (["--mem", "much"], ["much", "16GiB"]),
        (["--engines", ","], ["--engines"]),
        (["--output", "xml"], ["--output", "json"]),
        (["--fail-run", "2"], ["--fail-run", "than or equal to 1"]),
    ],
)
async def test_command_names_the_invalid_option(
    tmp_path: Path, options: list[str], expected: list[str]
) -> None:
    process = await simulate(tmp_path, *options)
    _, err = await process.communicate()
    assert process.returncode not in (0, None)
    assert b"Traceback" not in err
    assert [text for text in expected if text not in err.decode()] == []


async def test_wrong_token_is_logged_once_for_all_agents(tmp_path: Path) -> None:
    async with h.run_fake_manager() as manager:
        process = await simulate(
            tmp_path, "--manager", manager.target, "--agents", "20", token="wrong"
        )
        ended = asyncio.create_task(process.communicate())
        await until(lambda: manager.refused > 20, 60)  # one of them tries again
        process.terminate()
        if not (await asyncio.wait([ended], timeout=60))[0]:
            # PYTHONFAULTHANDLER: it writes each thread's stack
            process.send_signal(signal.SIGABRT)

        _, err = await ended
        assert process.returncode == 0, err.decode()
        assert err.decode().count("rejects this link token") == 1


async def test_nodes_report_the_usage_of_their_devices(manager: Manager, client: Client) -> None:
    """A device that a session holds is busy, and warmer than one that is free."""
    async with fleet(manager.link_address, 15, gpus=2) as simulation:
        await until(lambda: simulation.statistics.connected == 15)
        spec = SessionSpec(
            name="busy",
            command=["x"],
            env={"SIM_RUN_S": "forever"},
            resources={"cpu": 1, "cuda.device": 1},
        )
        await client.sessions.create(spec)
        await wait_until_running(client, "busy")
        [kernel] = (await client.sessions.get("busy")).kernels
        assert kernel.agent_id is not None
        [held] = [grant.device_id for grant in kernel.devices if grant.device_id]
        async with asyncio.timeout(40):
            while True:
                found = await client.agents.stats(kernel.agent_id)
                devices = {device.device_id: device for device in found.devices}
                if devices[held].gpu:
                    break
                await asyncio.sleep(0.1)

    [free] = [device for name, device in devices.items() if name != held]
    busy = devices[held]
    assert found.cpu is not None
    assert 200 < found.cpu < 600, "of one processor"
    assert busy.gpu is not None
    assert (450 <= busy.gpu <= 950, free.gpu) == (True, 0)
    for name in ("memory", "temperature", "power"):
        assert getattr(busy, name) > getattr(free, name) > 0, name
