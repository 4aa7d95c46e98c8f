"""Played agents against a real manager with a real Postgres, and against one that says what it is told."""

from __future__ import annotations

import asyncio
import json
import os
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

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, ManagerSettings
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import TERMINAL, ObservedState, Status
from moorage.common.views.resources import SessionView
from moorage.manager import Manager
from moorage.sdk import Client
from moorage.simulator.fleet import Cast, Faults, Range, Script, Simulation
from moorage.simulator.fleet.listener import Answering, Refusing

CLOCK = SystemClock()
QUICK = Script(start_s=Range(0.005, 0.02), run_s=Range(0.05, 0.2))


@pytest_asyncio.fixture
async def manager(empty_database: str, tmp_path: Path) -> AsyncIterator[Manager]:
    settings = ManagerSettings(dsn=empty_database, listen="127.0.0.1:0", link_listen="127.0.0.1:0")
    async with Manager(settings, clock=CLOCK, link_token=h.TOKEN, home=tmp_path) as made:
        yield made


@pytest_asyncio.fixture
async def client(manager: Manager) -> AsyncIterator[Client]:
    assert manager.first_key is not None
    async with Client(f"http://{manager.api_address}", manager.first_key) as made:
        yield made


def play(
    target: str, agents: int, *, script: Script = QUICK, faults: Faults | None = None, **cast: Any
) -> Simulation:
    settings = AgentSettings(manager=target, report_interval_s=0.5)
    return Simulation(
        Cast(agents=agents, **cast), script, faults or Faults(), settings, clock=CLOCK, token=h.TOKEN
    )


async def until(true: Callable[[], bool], timeout_s: float = 20) -> None:
    async with asyncio.timeout(timeout_s):
        while not true():
            await asyncio.sleep(0.01)


async def running(client: Client, name: str, timeout_s: float = 20) -> None:
    seen = None
    try:
        async with asyncio.timeout(timeout_s):
            while seen is None or seen.status is not Status.RUNNING:
                await asyncio.sleep(0.05)
                seen = await client.get_session(name)
    except TimeoutError:
        raise AssertionError(f"not running: {seen}") from None


async def all_ended(client: Client, count: int, timeout_s: float = 60) -> list[SessionView]:
    left: list[SessionView] = []
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                found = (await client.list_sessions(limit=200)).items
                left = [s for s in found if s.status not in TERMINAL]
                if len(found) == count and not left:
                    return list(found)
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not ended: {left[:5]}") from None


async def test_every_session_ends_as_it_was_scripted(manager: Manager, client: Client) -> None:
    kinds: dict[str, tuple[dict[str, str], tuple[Status, str]]] = {
        "good": ({}, (Status.TERMINATED, "exit-zero")),
        "bad": ({"SIM_EXIT": "7"}, (Status.TERMINATED, "exit-nonzero")),
        "never": ({"SIM_FAIL_START": "1"}, (Status.ERROR, "create-failed")),
        "stopped": ({"SIM_RUN_S": "forever"}, (Status.TERMINATED, "user-requested")),
    }
    async with play(manager.link_address, 8, gpus=4) as simulation:
        await asyncio.gather(
            *(
                client.create_session(
                    SessionSpec(
                        name=f"{kind}-{i}",
                        command=["x"],
                        env=env,
                        max_attempts=2,
                        resources={"cuda.device": 1},
                    )
                )
                for kind, (env, _) in kinds.items()
                for i in range(15)
            )
        )
        for i in range(15):
            await running(client, f"stopped-{i}")
            await client.stop_session(f"stopped-{i}")
        ended = await all_ended(client, 60)
        for session in ended:
            kind = (session.name or "").partition("-")[0]
            assert (session.status, session.reason) == kinds[kind][1], session
        await until(lambda: not +simulation.tally.states)
        assert simulation.tally.ended["exit-nonzero"] == 15
        assert simulation.tally.ended["create-failed"] == 30, "each was tried on two agents"
        assert {a.id for a in await client.list_agents()} == {f"sim-{n}" for n in range(8)}


async def test_faults_cost_time_but_no_session(manager: Manager, client: Client) -> None:
    faults = Faults(lose_report=0.2, disconnect_every_s=0.1, die_every_s=0.3, down_s=Range(0.05, 0.3))
    slow = Script(start_s=Range(0.01, 0.1), run_s=Range(0.5, 2))
    async with play(manager.link_address, 6, script=slow, faults=faults, seed=3) as simulation:
        for i in range(60):
            await client.create_session(SessionSpec(name=f"s-{i}", command=["x"], resources={"cpu": 1}))
        ended = await all_ended(client, 60)
        assert Counter((s.status, s.reason) for s in ended) == {(Status.TERMINATED, "exit-zero"): 60}
        assert simulation.tally.faults["disconnect"] > 3
        assert simulation.tally.faults["death"] > 0
        await until(lambda: not +simulation.tally.states)


async def test_who_leaves_says_so(manager: Manager, client: Client) -> None:
    async with play(manager.link_address, 5) as simulation:
        await client.create_session(SessionSpec(name="s", command=["x"], env={"SIM_RUN_S": "forever"}))
        await running(client, "s")
        await until(lambda: simulation.tally.attached == 5)
    async with asyncio.timeout(10):
        while not all(agent.draining for agent in await client.list_agents()):
            await asyncio.sleep(0.05)
        while (await client.get_session("s")).status not in TERMINAL:
            await asyncio.sleep(0.05)
    assert (await client.get_session("s")).reason == "agent-shutdown"


async def test_what_a_lost_ledger_forgot_goes_on_and_can_be_stopped(manager: Manager, client: Client) -> None:
    faults = Faults(die_every_s=0.1, lose_ledger=1, down_s=Range(0.01, 0.1))
    async with play(manager.link_address, 1, faults=faults) as simulation:
        await client.create_session(SessionSpec(name="s", command=["x"], env={"SIM_RUN_S": "forever"}))
        await running(client, "s")
        seen = simulation.tally.faults["lost-ledger"]
        await until(lambda: simulation.tally.faults["lost-ledger"] > seen + 3)
        assert (await client.get_session("s")).status is Status.RUNNING
        assert simulation.tally.created == 1, "it was adopted each time, never begun again"
        await client.stop_session("s")
        (ended,) = await all_ended(client, 1)
        assert (ended.status, ended.reason) == (Status.TERMINATED, "user-requested")


async def test_who_is_attached_follows_the_manager() -> None:
    async with h.manager() as boss:
        boss.order()
        async with play(boss.target, 3) as simulation:
            await until(lambda: simulation.tally.attached == 3)
            await boss.stop()
            await until(lambda: simulation.tally.attached == 0)
            await boss.start()
            await until(lambda: simulation.tally.attached == 3)


async def test_a_cut_and_a_death_come_back() -> None:
    faults = Faults(disconnect_every_s=0.05, die_every_s=0.05, reboot=1, down_s=Range(0.01, 0.02))
    async with h.manager() as boss:
        kernel = h.kernel("x", env={"SIM_RUN_S": "forever"})
        boss.order(kernel)
        async with play(boss.target, 1, faults=faults) as simulation:
            gone = await boss.until_kernel(kernel.kernel_id, ObservedState.GONE)
            assert gone.detail == "its node was restarted"
            await until(lambda: simulation.tally.faults["disconnect"] > 0)
            await until(lambda: len({report.incarnation for report in boss.reports}) > 2)
            assert simulation.tally.created == 1, "what was begun once is never begun again"


async def test_a_served_kernel_answers_and_another_refuses() -> None:
    async with Answering("127.0.0.1") as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        assert (await http.get("/health")).status == 200
        ask = {"model": "m", "messages": [{"role": "user", "content": "Ready?"}]}
        whole = await (await http.post("/v1/chat/completions", json=ask)).json()
        assert (whole["model"], whole["choices"][0]["message"]["content"]) == ("m", "aye")
        text = await (await http.post("/v1/completions", json={"model": "m", "prompt": "x"})).json()
        assert text["choices"][0]["text"] == "aye"
        stream = (await (await http.post("/v1/chat/completions", json=ask | {"stream": True})).text()).split(
            "\n\n"
        )
        assert json.loads(stream[0].removeprefix("data: "))["choices"][0]["delta"]["content"] == "aye"
        assert stream[1] == "data: [DONE]"
        assert (await http.post("/v1/chat/completions", data=b"{")).status == 400
    async with Refusing("127.0.0.1") as port:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port))


async def simulate(home: Path, *options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "moorage", "simulate", "--home", str(home), *options,
        env=os.environ | {"MOORAGE_LINK_TOKEN": ""},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def test_the_command_plays_and_stops_when_told(tmp_path: Path) -> None:
    async with h.manager() as boss:
        boss.order()
        options = ["--manager", boss.target, "--link-token", h.TOKEN, "--output", "json"]
        process = await simulate(tmp_path, "--agents", "3", "--prefix", "p-", "--mem", "1TiB", *options)
        await boss.until(lambda report: report.info.agent_id == "p-2")
        offers = {offer.slot: offer.capacity for offer in boss.last.info.offers}
        assert offers["mem"] == 2**40
        assert Counter(offer.slot for offer in boss.last.info.offers)["cuda.device"] == 8
        async with asyncio.timeout(10):
            while boss.streams < 3:
                await asyncio.sleep(0.01)
        process.terminate()
        out, _ = await process.communicate()
        assert process.returncode == 0
        assert json.loads(out)["agents"] == 3
        timed = await simulate(tmp_path, "--agents", "2", "--for", "0.5", *options)
        out, _ = await timed.communicate()
        assert timed.returncode == 0
        assert json.loads(out)["seconds"] < 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--faults", "some"], ["--faults", "none, light, heavy"]),
        (["--run-s", "10..1"], ["--run-s", "LOW..HIGH"]),
        (["--mem", "much"], ["much", "16GiB"]),
        (["--engines", ","], ["--engines"]),
        (["--output", "xml"], ["--output", "json"]),
        (["--fail-run", "2"], ["--fail-run", "than or equal to 1"]),
    ],
)
async def test_the_command_says_what_is_wrong(tmp_path: Path, options: list[str], words: list[str]) -> None:
    process = await simulate(tmp_path, *options)
    _, err = await process.communicate()
    assert process.returncode not in (0, None)
    assert b"Traceback" not in err
    assert [word for word in words if word not in err.decode()] == []


async def test_a_wrong_token_is_said_once_for_all(tmp_path: Path) -> None:
    async with h.manager() as boss:
        options = ["--manager", boss.target, "--link-token", "wrong", "--for", "1.5", "--agents", "20"]
        process = await simulate(tmp_path, *options)
        _, err = await process.communicate()
        assert err.decode().count("rejects this link token") == 1
