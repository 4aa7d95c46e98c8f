"""Agent with the Docker runtime, against a scripted manager."""

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
from tests.wire.agent_harness import FakeManager, find_kernel

from .engine import PrivateEngine
from .node import Node, contained, containers

SLEEP = ("python3", "-c", "import time; time.sleep(3600)")
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(3600)"
SERVE = """
import http.server
http.server.test(http.server.SimpleHTTPRequestHandler, port={port}, bind="0.0.0.0")
"""


async def until_exited(fake_manager: FakeManager, spec: KernelSpec) -> Any:
    return await fake_manager.wait_for_kernel(spec.kernel_id, S.EXITED, S.GONE, timeout_s=40)


async def test_batch_kernel_runs_and_its_log_is_reported(
    fake_manager: FakeManager, node: Node
) -> None:
    program = "import os; print(os.environ['IMAGE_SAYS'], os.environ['MOORAGE_SESSION_NAME'])"
    spec = contained("python3", "-c", program)
    fake_manager.order(spec)
    ended = await until_exited(fake_manager, spec)
    assert (ended.reason, ended.exit_code) == (Reason.EXIT_ZERO, 0)
    assert ended.log_tail == "hello some-session\n"

    for number in range(2):  # from the engine, then from the saved log
        name = f"log-{number}"
        fake_manager.send(LogRequest(name, spec.kernel_id))
        await fake_manager.wait_for_logs(lambda name=name: name in fake_manager.logs_ended)  # type: ignore[misc]
        assert bytes(fake_manager.logs[name]) == b"hello some-session\n"
        fake_manager.order()
        await fake_manager.wait_for_report(
            lambda report: not report.kernels and report.orders_generation > 0
        )


async def test_container_gets_the_allocated_gpu(fake_manager: FakeManager, node: Node) -> None:
    program = (
        "import os; print(os.environ['NVIDIA_VISIBLE_DEVICES'], os.environ['CUDA_VISIBLE_DEVICES'])"
    )
    grant = DeviceGrant("cuda.device", "GPU-fake-one-1", 1000)
    spec = contained("python3", "-c", program, devices=(grant,))
    fake_manager.order(spec)
    assert (await until_exited(fake_manager, spec)).log_tail == "GPU-fake-one-1 GPU-fake-one-1\n"


async def test_refused_kernels_have_a_reason(fake_manager: FakeManager, node: Node) -> None:
    greedy = contained(*SLEEP, slots={"cpu": 4_000_000})
    missing = contained(*SLEEP, image="127.0.0.1:1/nothing:1")
    fake_manager.order(greedy, missing)
    assert (await until_exited(fake_manager, greedy)).reason is Reason.LIMIT_REFUSED
    assert (await until_exited(fake_manager, missing)).reason is Reason.IMAGE_MISSING


async def test_kernel_that_ignores_sigterm_is_killed(fake_manager: FakeManager, node: Node) -> None:
    spec = contained("python3", "-c", STUBBORN, stop_grace_s=1.0)
    fake_manager.order(spec)
    await fake_manager.wait_for_kernel(spec.kernel_id, S.RUNNING)
    fake_manager.send(LogRequest("up", spec.kernel_id, follow=True))
    await fake_manager.wait_for_logs(
        lambda: b"up" in fake_manager.logs.get("up", b"")
    )  # from now on it ignores SIGTERM
    fake_manager.order()
    await fake_manager.wait_for_kernel(spec.kernel_id, S.STOPPING)
    gone = await fake_manager.wait_for_report(
        lambda report: find_kernel(report, spec.kernel_id) is None
    )
    ended = [
        k
        for r in fake_manager.reports
        for k in r.kernels
        if k.kernel_id == spec.kernel_id and k.exit_code
    ]
    assert {k.exit_code for k in ended} == {-signal.SIGKILL}
    assert gone.kernels == ()


async def test_restarted_agent_adopts_its_containers(
    fake_manager: FakeManager, node: Node, stoppable_engine: PrivateEngine
) -> None:
    serving = contained(
        "python3",
        "-c",
        SERVE,
        session_type=SessionType.INFERENCE,
        probe_path="/",
        probe_period_s=0.1,
    )
    ending = contained("python3", "-c", "import time; time.sleep(3); raise SystemExit(5)")
    fake_manager.order(serving, ending)
    before = await fake_manager.wait_for_kernel(serving.kernel_id, S.RUNNING, timeout_s=40)
    await fake_manager.wait_for_kernel(ending.kernel_id, S.RUNNING)
    await node.kill()
    reports = len(fake_manager.reports)
    async with asyncio.timeout(20):
        while containers(stoppable_engine)[ending.kernel_id] != "exited":
            await asyncio.sleep(0.05)

    await node.start()
    assert (await until_exited(fake_manager, ending)).exit_code == 5
    after = await fake_manager.wait_for_kernel(serving.kernel_id, S.RUNNING)
    assert len(fake_manager.reports) > reports
    assert (after.host, after.port) == (before.host, before.port)

    async with (
        aiohttp.ClientSession() as http,
        http.get(f"http://{after.host}:{after.port}/") as answer,
    ):
        assert answer.status == 200

    assert sorted(containers(stoppable_engine)) == sorted([serving.kernel_id, ending.kernel_id])


async def test_lost_checkpoint_is_rebuilt_from_the_containers(
    fake_manager: FakeManager, node: Node, stoppable_engine: PrivateEngine, tmp_path: Path
) -> None:
    kept = contained(*SLEEP)
    stray = contained(*SLEEP)
    fake_manager.order(kept, stray)
    for spec in (kept, stray):
        await fake_manager.wait_for_kernel(spec.kernel_id, S.RUNNING)

    await node.kill()
    shutil.rmtree(tmp_path / "agent-one" / "checkpoint")
    fake_manager.order(kept)
    reports_before = len(fake_manager.reports)
    await node.start()
    await fake_manager.wait_for_report(
        lambda report: _only_running(report, kept) and len(fake_manager.reports) > reports_before
    )
    assert containers(stoppable_engine) == {kept.kernel_id: "running"}


def _only_running(report: Report, spec: KernelSpec) -> bool:
    return [(k.kernel_id, k.state) for k in report.kernels] == [(spec.kernel_id, S.RUNNING)]


async def test_engine_unavailable_at_the_start_of_the_agent(
    fake_manager: FakeManager, node: Node, stoppable_engine: PrivateEngine
) -> None:
    spec = contained(*SLEEP)
    late = contained(*SLEEP)
    fake_manager.order(spec)
    running = await fake_manager.wait_for_report(
        lambda r: (k := find_kernel(r, spec.kernel_id)) is not None and k.state is S.RUNNING
    )
    assert "docker" in running.info.runtimes
    await node.kill()
    stoppable_engine.stop(signal.SIGKILL)
    await node.start()
    unavailable = await fake_manager.wait_for_report(
        lambda r: (k := find_kernel(r, spec.kernel_id)) is not None and k.state is S.UNKNOWN
    )
    assert "docker" not in unavailable.info.runtimes
    fake_manager.order(spec, late)
    waiting = await fake_manager.wait_for_report(
        lambda r: r.orders_generation == fake_manager.generation
    )

    # Nothing is created until the engine has listed its containers, because one of them may be this
    # kernel.
    assert find_kernel(waiting, late.kernel_id) is None
    # An order withdrawn in the meantime is executed as soon as the engine answers.
    fake_manager.order()
    latest = await fake_manager.wait_for_report(
        lambda r: r.orders_generation == fake_manager.generation
    )
    assert [(k.kernel_id, k.state) for k in latest.kernels if k.kernel_id == spec.kernel_id]
    stoppable_engine.start()
    await fake_manager.wait_for_report(
        lambda r: not r.kernels and r.orders_generation == fake_manager.generation, timeout_s=30
    )
    assert containers(stoppable_engine) == {}


async def test_kernels_are_kept_while_docker_is_switched_off(
    fake_manager: FakeManager, node: Node
) -> None:
    spec = contained(*SLEEP)
    fake_manager.order(spec)
    await fake_manager.wait_for_kernel(spec.kernel_id, S.RUNNING)

    for docker, state in (("off", S.UNKNOWN), ("", S.RUNNING)):
        await node.kill()
        reports_before = len(fake_manager.reports)
        await node.start(docker)
        await fake_manager.wait_for_report(
            lambda r, n=reports_before: len(fake_manager.reports) > n
        )  # type: ignore[misc]
        await fake_manager.wait_for_kernel(spec.kernel_id, state)

    fake_manager.order(spec, another := contained(*SLEEP))
    await fake_manager.wait_for_kernel(another.kernel_id, S.RUNNING)


async def test_cluster_outlives_its_agent_and_its_network_is_removed_last(
    fake_manager: FakeManager, node: Node, stoppable_engine: PrivateEngine
) -> None:
    group = contained().kernel_id
    peers = (ClusterMember("main1", "127.0.0.1"), ClusterMember("sub1", "127.0.0.1"))
    given = {
        "mode": "single-node",
        "group": group,
        "members": peers,
        "private_key": "k",
        "public_key": "p",
    }
    main = contained(
        *SLEEP, kernel_id=group, cluster=ClusterMembership("main1", "main", 1, **given)
    )
    meet = "import os, socket; print(len(socket.gethostbyname(os.environ['MASTER_ADDR'])) > 6, flush=True)"
    sub = contained(
        "python3",
        "-c",
        f"{meet}; import time; time.sleep(3600)",
        cluster=ClusterMembership("sub1", "sub", 1, **given),
    )
    fake_manager.order(main)
    await fake_manager.wait_for_kernel(main.kernel_id, S.RUNNING)
    fake_manager.order(main, sub)
    await fake_manager.wait_for_kernel(sub.kernel_id, S.RUNNING)
    fake_manager.send(LogRequest("met", sub.kernel_id, follow=True))
    await fake_manager.wait_for_logs(lambda: b"True" in fake_manager.logs.get("met", b""))
    await node.kill()
    with contextlib.closing(stoppable_engine.api()) as api:
        api.kill(f"moorage-{sub.kernel_id}")
        assert [n["Name"] for n in api.networks() if group in n["Name"]] == [f"moorage-net-{group}"]

    fake_manager.reports.clear()
    await node.start()
    assert (await until_exited(fake_manager, sub)).reason is Reason.KILLED
    await fake_manager.wait_for_kernel(main.kernel_id, S.RUNNING)
    fake_manager.order(main)
    await fake_manager.wait_for_report(
        lambda report: find_kernel(report, sub.kernel_id) is None and bool(report.kernels)
    )

    with contextlib.closing(stoppable_engine.api()) as api:
        assert [n["Name"] for n in api.networks() if group in n["Name"]] == [f"moorage-net-{group}"]
        fake_manager.order()
        await fake_manager.wait_for_report(
            lambda report: (
                report.orders_generation == fake_manager.generation and not report.kernels
            )
        )
        assert [n["Name"] for n in api.networks() if group in n["Name"]] == []
