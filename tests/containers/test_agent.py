"""A whole agent with containers, against a manager that says only what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
from pathlib import Path
from typing import Any

import aiohttp

from moorage.common.link.messages import LogRequest, Report
from moorage.common.model.cluster import ClusterMember, ClusterMembership
from moorage.common.model.kernel import DeviceGrant, KernelSpec
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S
from moorage.common.model.status import SessionType
from tests.wire.agent_harness import Manager, seen

from .engine import PrivateEngine
from .node import Node, contained, containers

SLEEP = ("python3", "-c", "import time; time.sleep(3600)")
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(3600)"
SERVE = """
import http.server
http.server.test(http.server.SimpleHTTPRequestHandler, port={port}, bind="0.0.0.0")
"""


async def until_ended(boss: Manager, spec: KernelSpec) -> Any:
    return await boss.until_kernel(spec.kernel_id, S.EXITED, S.GONE, timeout_s=40)


async def test_a_program_runs_in_a_container_and_its_log_is_told(boss: Manager, node: Node) -> None:
    say = "import os; print(os.environ['IMAGE_SAYS'], os.environ['MOORAGE_SESSION_NAME'])"
    spec = contained("python3", "-c", say)
    boss.order(spec)
    ended = await until_ended(boss, spec)
    assert (ended.reason, ended.exit_code) == (Reason.EXIT_ZERO, 0)
    assert ended.log_tail == "hello some-session\n"
    for number in range(2):  # from the engine, and after the container is gone
        name = f"log-{number}"
        boss.say(LogRequest(name, spec.kernel_id))
        await boss.until_logs(lambda name=name: name in boss.logs_ended)  # type: ignore[misc]
        assert bytes(boss.logs[name]) == b"hello some-session\n"
        boss.order()
        await boss.until(lambda report: not report.kernels and report.orders_generation > 0)


async def test_its_gpu_is_the_one_that_was_planned(boss: Manager, node: Node) -> None:
    say = "import os; print(os.environ['NVIDIA_VISIBLE_DEVICES'], os.environ['CUDA_VISIBLE_DEVICES'])"
    grant = DeviceGrant("cuda.device", "GPU-fake-one-1", 1000)
    spec = contained("python3", "-c", say, devices=(grant,))
    boss.order(spec)
    assert (await until_ended(boss, spec)).log_tail == "GPU-fake-one-1 GPU-fake-one-1\n"


async def test_what_is_refused_has_its_reason(boss: Manager, node: Node) -> None:
    greedy = contained(*SLEEP, slots={"cpu": 4_000_000})
    missing = contained(*SLEEP, image="127.0.0.1:1/nothing:1")
    boss.order(greedy, missing)
    assert (await until_ended(boss, greedy)).reason is Reason.LIMIT_REFUSED
    assert (await until_ended(boss, missing)).reason is Reason.IMAGE_MISSING


async def test_a_program_that_ignores_the_polite_stop(boss: Manager, node: Node) -> None:
    spec = contained("python3", "-c", STUBBORN, stop_grace_s=1.0)
    boss.order(spec)
    await boss.until_kernel(spec.kernel_id, S.RUNNING)
    boss.say(LogRequest("up", spec.kernel_id, follow=True))
    await boss.until_logs(lambda: b"up" in boss.logs.get("up", b""))  # only now it is deaf
    boss.order()
    await boss.until_kernel(spec.kernel_id, S.STOPPING)
    gone = await boss.until(lambda report: seen(report, spec.kernel_id) is None)
    ended = [k for r in boss.reports for k in r.kernels if k.kernel_id == spec.kernel_id and k.exit_code]
    assert {k.exit_code for k in ended} == {-signal.SIGKILL}
    assert gone.kernels == ()


async def test_a_killed_agent_adopts_its_containers(
    boss: Manager, node: Node, mortal_engine: PrivateEngine
) -> None:
    serving = contained(
        "python3", "-c", SERVE, session_type=SessionType.INFERENCE, probe_path="/", probe_period_s=0.1
    )
    ending = contained("python3", "-c", "import time; time.sleep(3); raise SystemExit(5)")
    boss.order(serving, ending)
    before = await boss.until_kernel(serving.kernel_id, S.RUNNING, timeout_s=40)
    await boss.until_kernel(ending.kernel_id, S.RUNNING)
    await node.kill()
    reports = len(boss.reports)
    async with asyncio.timeout(20):
        while containers(mortal_engine)[ending.kernel_id] != "exited":
            await asyncio.sleep(0.05)
    await node.start()
    assert (await until_ended(boss, ending)).exit_code == 5
    after = await boss.until_kernel(serving.kernel_id, S.RUNNING)
    assert len(boss.reports) > reports
    assert (after.host, after.port) == (before.host, before.port)
    async with aiohttp.ClientSession() as http, http.get(f"http://{after.host}:{after.port}/") as answer:
        assert answer.status == 200
    assert sorted(containers(mortal_engine)) == sorted([serving.kernel_id, ending.kernel_id])


async def test_a_lost_ledger_is_made_good_by_looking(
    boss: Manager, node: Node, mortal_engine: PrivateEngine, tmp_path: Path
) -> None:
    kept, stray = contained(*SLEEP), contained(*SLEEP)
    boss.order(kept, stray)
    for spec in (kept, stray):
        await boss.until_kernel(spec.kernel_id, S.RUNNING)
    await node.kill()
    shutil.rmtree(tmp_path / "agent-one" / "ledger")
    boss.order(kept)
    seen_so_far = len(boss.reports)
    await node.start()
    await boss.until(lambda report: _only_running(report, kept) and len(boss.reports) > seen_so_far)
    assert containers(mortal_engine) == {kept.kernel_id: "running"}


def _only_running(report: Report, spec: KernelSpec) -> bool:
    return [(k.kernel_id, k.state) for k in report.kernels] == [(spec.kernel_id, S.RUNNING)]


async def test_an_engine_that_is_away_when_the_agent_starts(
    boss: Manager, node: Node, mortal_engine: PrivateEngine
) -> None:
    spec, late = contained(*SLEEP), contained(*SLEEP)
    boss.order(spec)
    running = await boss.until(lambda r: (k := seen(r, spec.kernel_id)) is not None and k.state is S.RUNNING)
    assert "docker" in running.info.runtimes
    await node.kill()
    mortal_engine.stop(signal.SIGKILL)
    await node.start()
    away = await boss.until(lambda r: (k := seen(r, spec.kernel_id)) is not None and k.state is S.UNKNOWN)
    assert "docker" not in away.info.runtimes
    boss.order(spec, late)
    assert (await until_ended(boss, late)).reason is Reason.RUNTIME_UNAVAILABLE
    # Withdrawn while nobody can say how it is: it is kept, and ended as soon as that is possible.
    boss.order()
    still = await boss.until(lambda r: r.orders_generation == boss.generation)
    assert [(k.kernel_id, k.state) for k in still.kernels if k.kernel_id == spec.kernel_id]
    mortal_engine.start()
    await boss.until(lambda r: not r.kernels and r.orders_generation == boss.generation, timeout_s=30)
    assert containers(mortal_engine) == {}


async def test_an_agent_that_was_told_to_do_without_docker(boss: Manager, node: Node) -> None:
    spec = contained(*SLEEP)
    boss.order(spec)
    await boss.until_kernel(spec.kernel_id, S.RUNNING)
    for docker, state in (("off", S.UNKNOWN), ("", S.RUNNING)):
        await node.kill()
        so_far = len(boss.reports)
        await node.start(docker)
        await boss.until(lambda r, n=so_far: len(boss.reports) > n)  # type: ignore[misc]
        await boss.until_kernel(spec.kernel_id, state)
    boss.order(spec, another := contained(*SLEEP))
    await boss.until_kernel(another.kernel_id, S.RUNNING)


async def test_a_cluster_outlives_its_agent_and_its_network_goes_last(
    boss: Manager, node: Node, mortal_engine: PrivateEngine
) -> None:
    group = contained().kernel_id
    peers = (ClusterMember("main1", "127.0.0.1"), ClusterMember("sub1", "127.0.0.1"))
    given = {"mode": "single-node", "group": group, "members": peers, "private_key": "k", "public_key": "p"}
    main = contained(*SLEEP, kernel_id=group, cluster=ClusterMembership("main1", "main", 1, **given))
    meet = "import os, socket; print(len(socket.gethostbyname(os.environ['MASTER_ADDR'])) > 6, flush=True)"
    sub = contained(
        "python3",
        "-c",
        f"{meet}; import time; time.sleep(3600)",
        cluster=ClusterMembership("sub1", "sub", 1, **given),
    )
    boss.order(main)
    await boss.until_kernel(main.kernel_id, S.RUNNING)
    boss.order(main, sub)
    await boss.until_kernel(sub.kernel_id, S.RUNNING)
    boss.say(LogRequest("met", sub.kernel_id, follow=True))
    await boss.until_logs(lambda: b"True" in boss.logs.get("met", b""))
    await node.kill()
    with contextlib.closing(mortal_engine.api()) as api:
        api.kill(f"moorage-{sub.kernel_id}")
        assert [n["Name"] for n in api.networks() if group in n["Name"]] == [f"moorage-net-{group}"]
    boss.reports.clear()
    await node.start()
    assert (await until_ended(boss, sub)).reason is Reason.KILLED
    await boss.until_kernel(main.kernel_id, S.RUNNING)
    boss.order(main)
    await boss.until(lambda report: seen(report, sub.kernel_id) is None and bool(report.kernels))
    with contextlib.closing(mortal_engine.api()) as api:
        assert [n["Name"] for n in api.networks() if group in n["Name"]] == [f"moorage-net-{group}"]
        boss.order()
        await boss.until(lambda report: report.orders_generation == boss.generation and not report.kernels)
        assert [n["Name"] for n in api.networks() if group in n["Name"]] == []
