"""An agent over real gRPC with real processes, ports and an engine; the manager is a fake."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import agent_harness as h
import pytest
import pytest_asyncio
from tests.freezing import freeze

from moorage.agent.runtimes import ProcessRuntime, procfs
from moorage.agent.state.logs import LogStore
from moorage.common.config.settings import AgentSettings, CommonSettings
from moorage.common.link.messages import LogRequest
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import DeviceGrant
from moorage.common.model.reasons import Reason
from moorage.common.model.runtimes import unisolated
from moorage.common.model.status import ObservedState as S
from moorage.common.model.status import SessionType
from moorage.demo.model import write_tiny_gguf

# A server with a child process; its third probe is the first to succeed.
SERVER = """
import http.server, os, subprocess, sys
child = subprocess.Popen(["sleep", "3600"])
class Answer(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Answer.asked += 1
        ok = self.headers["Authorization"] == "Bearer kernel-secret" and Answer.asked > 2
        self.send_response(200 if ok else 503)
        self.end_headers()
        self.wfile.write(f"{os.getpid()}".encode())
    def log_message(self, *args):
        print("asked", self.path, flush=True)
http.server.HTTPServer((os.environ["HOST"], int(sys.argv[1])), Answer).serve_forever()
"""


def server(**fields: object) -> h.KernelSpec:
    command = (sys.executable, "-c", SERVER, "{port}")
    return h.kernel(*command, session_type=SessionType.INFERENCE, probe_path="/healthy", **fields)


@pytest_asyncio.fixture
async def manager() -> AsyncIterator[h.FakeManager]:
    async with h.run_fake_manager() as manager:
        yield manager


@pytest_asyncio.fixture(autouse=True)
async def cleanup(tmp_path: Path) -> AsyncIterator[None]:
    """Destroys everything that a failed test has left running."""
    yield
    state = tmp_path / "agent-one"
    runtime = ProcessRuntime(state, LogStore(state / "logs"), log_max_bytes=4096, log_keep_files=1)
    for handle in (await runtime.find()).values():
        await runtime.destroy(handle)


async def withdraw_all(manager: h.FakeManager) -> None:
    manager.order()
    await manager.wait_for_report(
        lambda r: r.orders_generation == manager.generation and not r.kernels
    )


async def test_first_report_describes_the_agent(manager: h.FakeManager, tmp_path: Path) -> None:
    async with h.make_agent(manager, tmp_path, labels={"rack": "7"}):
        report = await manager.wait_for_report(lambda r: True)

    assert (report.info.agent_id, report.orders_generation, report.kernels) == ("one", 0, ())
    assert report.info.labels == {
        "rack": "7",
        "gpu.name": "NVIDIA H100 (fake)",
        "gpu.model": "H100",
        "gpu.memory": "81920",
        "gpu.count": "2",
        "links": "none",
    }

    # Whether it isolates processes depends on the machine.
    assert [name for name in report.info.runtimes if not unisolated(name)] == ["process", "fake"]
    assert {"llamacpp", "custom"} <= set(report.info.engines)
    gpus = [offer for offer in report.info.offers if offer.slot == "cuda.device"]
    assert [(gpu.capacity, gpu.healthy) for gpu in gpus] == [(1000, True)] * 2
    assert not report.draining


async def test_kernel_from_order_to_removal(manager: h.FakeManager, tmp_path: Path) -> None:
    spec = server()
    async with h.make_agent(manager, tmp_path):
        manager.order(spec)
        first = await manager.wait_for_report(lambda r: r.orders_generation == 1)
        assert h.find_kernel(first, spec.kernel_id) is not None, (
            "a report of this generation must include its kernels"
        )
        running = await manager.wait_for_kernel(spec.kernel_id, S.RUNNING)
        assert (running.host, running.session_id) == ("127.0.0.1", spec.session_id)
        assert running.port in h.PORTS
        request = urllib.request.Request(f"http://127.0.0.1:{running.port}/healthy")
        request.add_header("Authorization", "Bearer kernel-secret")
        answer = await asyncio.to_thread(lambda: urllib.request.urlopen(request).read())
        assert int(answer) in set(h.processes(spec.kernel_id))
        assert len(list(h.processes(spec.kernel_id))) == 3  # supervisor, server and its child
        await withdraw_all(manager)
        assert list(h.processes(spec.kernel_id)) == []

    states = list(
        dict.fromkeys(k.state for r in manager.reports if (k := h.find_kernel(r, spec.kernel_id)))
    )
    # A short state can fall between two reports.
    assert S.RUNNING in states
    assert states == [s for s in (S.CREATING, S.RUNNING, S.STOPPING, S.EXITED) if s in states]


async def test_ended_batch_kernel_is_reported_until_withdrawn(
    manager: h.FakeManager, tmp_path: Path
) -> None:
    script = 'echo "gpus=$CUDA_VISIBLE_DEVICES"; echo "$0 $A_NAME $HOME"; exit 4'
    grants = (DeviceGrant("cuda.device", "GPU-a", 1000), DeviceGrant("cuda.shares", "GPU-b", 500))
    spec = h.kernel(
        "sh", "-c", script, "{model}", model="weights", devices=grants, env={"A_NAME": "a value"}
    )
    async with h.make_agent(manager, tmp_path):
        manager.order(spec)
        ended = await manager.wait_for_kernel(spec.kernel_id, S.EXITED)
        assert (ended.exit_code, ended.reason) == (4, Reason.EXIT_NONZERO)
        home = tmp_path / "agent-one" / "kernels" / spec.kernel_id / "work"
        # Placeholders are replaced only in commands of programs that serve.
        assert ended.log_tail == f"gpus=GPU-a,GPU-b\n{{model}} a value {home}\n"
        manager.order(spec)  # ordered again, but not started again
        await manager.wait_for_report(lambda r: r.orders_generation == 2)
        assert (await manager.wait_for_kernel(spec.kernel_id, S.EXITED)).exit_code == 4
        await withdraw_all(manager)
        assert not home.exists()
        manager.send(LogRequest("r1", spec.kernel_id))  # its log outlives it
        await manager.wait_for_logs(lambda: "r1" in manager.logs_ended)
        assert manager.logs["r1"].startswith(b"gpus=")


async def test_invalid_specs_end_with_their_reason(manager: h.FakeManager, tmp_path: Path) -> None:
    bad = {
        Reason.ENGINE_MISSING: h.kernel(
            engine="vllm", model="org/name", session_type=SessionType.INFERENCE
        ),
        Reason.MODEL_MISSING: h.kernel(engine="llamacpp", model="/no/such/model.gguf"),
        Reason.CREATE_FAILED: h.kernel("no-such-program-anywhere"),
        Reason.START_TIMEOUT: h.kernel("sleep", "3600", probe_path="/healthy", start_timeout_s=1.0),
    }
    async with h.make_agent(manager, tmp_path, vllm_command="no-such-vllm serve"):
        manager.order(*bad.values())
        for reason, spec in bad.items():
            ended = await manager.wait_for_kernel(spec.kernel_id, S.EXITED)
            assert ended.reason is reason, ended
            assert ended.detail
            assert list(h.processes(spec.kernel_id)) == []

        details = {k.kernel_id: k.detail for k in manager.last_report.kernels}
        assert "no-such-vllm" in details[bad[Reason.ENGINE_MISSING].kernel_id]
        assert "/no/such/model.gguf" in details[bad[Reason.MODEL_MISSING].kernel_id]
        assert "no-such-program-anywhere" in details[bad[Reason.CREATE_FAILED].kernel_id]
        assert "GET /healthy" in details[bad[Reason.START_TIMEOUT].kernel_id]
        await withdraw_all(manager)


async def test_kernel_ends_when_no_port_is_free(manager: h.FakeManager, tmp_path: Path) -> None:
    sockets = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = sockets.sockets[0].getsockname()[1]
    spec = server()
    async with sockets, h.make_agent(manager, tmp_path, port_range=f"{port}-{port}"):
        manager.order(spec)
        ended = await manager.wait_for_kernel(spec.kernel_id, S.EXITED)
        assert (ended.reason, str(port) in ended.detail) == (Reason.PORT_TAKEN, True)
        await withdraw_all(manager)


async def test_killed_kernel_is_reported_at_once(manager: h.FakeManager, tmp_path: Path) -> None:
    engine = h.kernel("sleep", "3600")
    orphaned = h.kernel("sh", "-c", "sleep 3600 & sleep 3600")
    async with h.make_agent(manager, tmp_path):
        manager.order(engine, orphaned)
        for spec in (engine, orphaned):
            await manager.wait_for_kernel(spec.kernel_id, S.RUNNING)

        os.kill(
            next(pid for pid in h.processes(engine.kernel_id) if not h.is_shim(pid)), signal.SIGKILL
        )
        ended = await manager.wait_for_kernel(engine.kernel_id, S.EXITED)
        assert (ended.exit_code, ended.reason) == (-9, Reason.KILLED)

        # Without a supervisor, the agent itself must destroy the kernel.
        os.kill(
            next(pid for pid in h.processes(orphaned.kernel_id) if h.is_shim(pid)), signal.SIGKILL
        )
        ended = await manager.wait_for_kernel(orphaned.kernel_id, S.EXITED)
        assert (ended.exit_code, ended.reason) == (None, Reason.KILLED)
        assert list(h.processes(orphaned.kernel_id)) == []
        await withdraw_all(manager)


async def test_order_withdrawn_during_creation(manager: h.FakeManager, tmp_path: Path) -> None:
    spec = h.kernel("sleep", "3600")
    async with h.make_agent(manager, tmp_path):
        for _ in range(3):
            manager.order(spec)
            manager.order()
            await manager.wait_for_report(
                lambda r: r.orders_generation == manager.generation and not r.kernels
            )
            await h.wait_until_no_processes(spec.kernel_id)


async def test_older_orders_are_refused_after_restarts(
    manager: h.FakeManager, tmp_path: Path
) -> None:
    spec = h.kernel("sleep", "3600")
    other = h.kernel("sleep", "3600")
    manager.generation = 10
    for _ in range(2):
        async with h.make_agent(manager, tmp_path):
            manager.order(spec)
            await manager.wait_for_report(lambda r: r.orders_generation == manager.generation)
            pid = (await _running(manager, spec.kernel_id))[0]
            manager.order(other, generation=3)
            manager.send(
                LogRequest(f"r{manager.generation}", spec.kernel_id)
            )  # it is answered after the old orders
            await manager.wait_for_logs(lambda: f"r{manager.generation}" in manager.logs_ended)
            assert h.find_kernel(manager.last_report, other.kernel_id) is None
            assert pid in set(h.processes(spec.kernel_id))

    manager.orders = None  # a manager that has lost its database
    manager.generation = 0
    async with h.make_agent(manager, tmp_path):
        before = len(manager.reports)
        manager.order()
        await manager.wait_for_report(lambda r: len(manager.reports) > before + 1)
        assert pid in set(h.processes(spec.kernel_id))
        manager.generation = 20
        await withdraw_all(manager)


async def _running(manager: h.FakeManager, kernel_id: str) -> list[int]:
    await manager.wait_for_kernel(kernel_id, S.RUNNING)
    return sorted(h.processes(kernel_id))


async def test_agent_restart_adopts_running_kernels(manager: h.FakeManager, tmp_path: Path) -> None:
    running = server()
    ending = h.kernel("sh", "-c", "sleep 1; exit 6")
    withdrawn = h.kernel("sleep", "3600")
    async with h.agent_process(manager, tmp_path) as agent:
        manager.order(running, ending, withdrawn)
        pids = await _running(manager, running.kernel_id)
        withdrawn_pids = await _running(manager, withdrawn.kernel_id)
        port = h.find_kernel(manager.last_report, running.kernel_id).port  # type: ignore[union-attr]
        agent.kill()
        await agent.wait()

    incarnation = manager.last_report.incarnation
    manager.orders = None  # the restarted agent is sent no orders before its first report
    await h.wait_until_no_processes(ending.kernel_id)

    async with h.make_agent(manager, tmp_path):
        report = await manager.wait_for_report(lambda r: r.incarnation != incarnation)
        assert report.orders_generation == 0
        assert {
            k.kernel_id: k.state for k in report.kernels if k.kernel_id != ending.kernel_id
        } == {
            running.kernel_id: S.RUNNING,
            withdrawn.kernel_id: S.RUNNING,
        }
        ended = await manager.wait_for_kernel(ending.kernel_id, S.EXITED)
        assert ended.exit_code == 6  # the supervisor recorded it
        manager.order(running)
        await manager.wait_for_report(
            lambda r: r.orders_generation == manager.generation and len(r.kernels) == 1
        )
        await h.wait_until_no_processes(withdrawn.kernel_id)
        assert not any(procfs.alive(pid, 0) for pid in withdrawn_pids)
        again = h.find_kernel(manager.last_report, running.kernel_id)
        assert again is not None
        assert (again.port, sorted(h.processes(running.kernel_id))) == (port, pids)
        await withdraw_all(manager)


async def test_lost_checkpoint_is_recovered_from_the_runtimes(
    manager: h.FakeManager, tmp_path: Path
) -> None:
    kept = server()
    unwanted = h.kernel("sleep", "3600")
    async with h.make_agent(manager, tmp_path):
        manager.order(kept, unwanted)
        pids = await _running(manager, kept.kernel_id)
        await _running(manager, unwanted.kernel_id)
        port = h.find_kernel(manager.last_report, kept.kernel_id).port  # type: ignore[union-attr]

    for path in (tmp_path / "agent-one" / "checkpoint").iterdir():
        path.write_text("{ not JSON")

    manager.order(kept)
    before = len(manager.reports)
    async with h.make_agent(manager, tmp_path):
        await manager.wait_for_report(lambda _: len(manager.reports) > before)
        first = {k.kernel_id: k.state for k in manager.reports[before].kernels}
        assert first == {kept.kernel_id: S.UNKNOWN, unwanted.kernel_id: S.UNKNOWN}, (
            "orphans hold their devices"
        )
        running = await manager.wait_for_kernel(kept.kernel_id, S.RUNNING)
        assert (running.port, sorted(h.processes(kept.kernel_id))) == (port, pids)
        await h.wait_until_no_processes(unwanted.kernel_id)
        await withdraw_all(manager)


async def test_reconnect_after_a_manager_restart(manager: h.FakeManager, tmp_path: Path) -> None:
    spec = h.kernel("sleep", "3600")
    async with h.make_agent(manager, tmp_path):
        manager.order(spec)
        pids = await _running(manager, spec.kernel_id)
        await manager.stop()
        count = len(manager.reports)
        await manager.start()
        await manager.wait_for_report(
            lambda r: len(manager.reports) > count and r.orders_generation == 1
        )
        assert manager.streams == 2
        assert sorted(h.processes(spec.kernel_id)) == pids
        await withdraw_all(manager)


async def test_frozen_manager_is_detected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attached = asyncio.Event()
    async with h.manager_process() as (process, port):
        settings = AgentSettings(id="one", inventory="fake:1xL4", manager=f"127.0.0.1:{port}")
        agent = h.Agent(
            settings,
            CommonSettings(link_tls="off"),
            clock=h.CLOCK,
            link_token=h.TOKEN,
            home=tmp_path,
            ready=attached.set,
        )
        async with agent:
            await asyncio.wait_for(attached.wait(), 30)
            attached.clear()
            await freeze(process.pid)  # its kernel keeps acknowledging packets
            async with asyncio.timeout(20):  # 5 + 4 s, according to the connection's options
                while "not connected" not in capsys.readouterr().out:
                    await asyncio.sleep(0.05)

            process.send_signal(signal.SIGCONT)
            await asyncio.wait_for(attached.wait(), 30)


async def test_log_is_followed_to_the_end(manager: h.FakeManager, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    spec = h.kernel("sh", "-c", f"echo before; cat {gate}")
    async with h.make_agent(manager, tmp_path):
        manager.order(spec)
        await manager.wait_for_kernel(spec.kernel_id, S.RUNNING)
        manager.send(LogRequest("follow", spec.kernel_id, follow=True))
        manager.send(LogRequest("missing", KernelId("no-such-kernel")))
        await manager.wait_for_logs(lambda: manager.logs.get("follow") == b"before\n")
        await manager.wait_for_logs(lambda: "missing" in manager.logs_ended)
        assert "no-such-kernel" in manager.log_errors["missing"]
        assert "follow" not in manager.logs_ended
        await asyncio.to_thread(gate.write_text, "after\n")
        await manager.wait_for_logs(lambda: "follow" in manager.logs_ended)
        assert manager.logs["follow"] == b"before\nafter\n"
        manager.send(LogRequest("timed", spec.kernel_id, timestamps=True))
        await manager.wait_for_logs(lambda: "timed" in manager.logs_ended)
        assert re.fullmatch(rb"20\S+Z before\n20\S+Z after\n", manager.logs["timed"])
        await withdraw_all(manager)


async def test_log_reader_may_disconnect(manager: h.FakeManager, tmp_path: Path) -> None:
    spec = h.kernel("sh", "-c", "echo first line; exec sleep 3600")
    manager.disconnecting_readers.add("disconnects")
    async with h.make_agent(manager, tmp_path):
        manager.order(spec)
        await manager.wait_for_kernel(spec.kernel_id, S.RUNNING)
        manager.send(LogRequest("disconnects", spec.kernel_id, follow=True))
        await manager.wait_for_logs(lambda: "disconnects" in manager.logs_ended)
        async with asyncio.timeout(5):  # although nothing is left to send
            while any(task.get_name() == "link.logs.disconnects" for task in asyncio.all_tasks()):
                await asyncio.sleep(0.01)

        await withdraw_all(manager)


async def test_llamacpp_engine_serves(manager: h.FakeManager, tmp_path: Path) -> None:
    model = tmp_path / "tiny.gguf"
    write_tiny_gguf(model)
    spec = h.kernel(
        engine="llamacpp", model=str(model), session_type=SessionType.INFERENCE, slots={"cpu": 1000},
        args=("--ctx-size", "512"), served_name="tiny",
    )  # fmt: skip
    broken = replace(spec, kernel_id=KernelId("bad-args"), args=("--no-such-option",))
    (tmp_path / "text.gguf").write_text("not a model")
    not_gguf = replace(spec, kernel_id=KernelId("bad-file"), model=str(tmp_path / "text.gguf"))
    async with h.make_agent(manager, tmp_path):
        manager.order(spec, broken, not_gguf)
        running = await manager.wait_for_kernel(spec.kernel_id, S.RUNNING)
        for wrong, word in ((broken, "--no-such-option"), (not_gguf, "is not a GGUF file")):
            ended = await manager.wait_for_kernel(wrong.kernel_id, S.EXITED)
            assert (ended.exit_code, ended.reason) == (2, Reason.EXIT_NONZERO)
            assert word in ended.log_tail

        # Tokens are random and may include the end of the text.
        body = b'{"model": "tiny", "prompt": "Hello", "max_tokens": 4, "ignore_eos": true}'
        request = urllib.request.Request(f"http://127.0.0.1:{running.port}/v1/completions", body)
        request.add_header("Content-Type", "application/json")
        request.add_header("Authorization", "Bearer kernel-secret")
        answer = await asyncio.to_thread(lambda: urllib.request.urlopen(request).read())
        assert b'"completion_tokens":4' in answer
        arguments = [
            Path(f"/proc/{pid}/cmdline").read_bytes() for pid in h.processes(spec.kernel_id)
        ]
        assert not any(b"kernel-secret" in argv for argv in arguments)
        await withdraw_all(manager)
        assert list(h.processes(spec.kernel_id)) == []


@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.005, 0.01, 0.02, 0.04])
async def test_agent_killed_at_any_moment_starts_nothing_twice(
    manager: h.FakeManager, tmp_path: Path, after_s: float
) -> None:
    starts = tmp_path / "starts"
    spec = h.kernel("sh", "-c", f"echo $$ >> {starts}; exec sleep 3600")
    async with h.agent_process(manager, tmp_path) as agent:
        await manager.wait_for_report(lambda r: True)
        manager.order(spec)
        await asyncio.sleep(after_s)  # the delay is the case under test, not a wait
        agent.kill()
        await agent.wait()

    count = len(manager.reports)
    async with h.make_agent(manager, tmp_path):
        await manager.wait_for_report(
            lambda r: len(manager.reports) > count and r.orders_generation == 1
        )
        found = await manager.wait_for_kernel(spec.kernel_id, S.RUNNING, S.EXITED, S.GONE)
        starts_seen = await h.wait_for_words(starts, 1 if found.state is S.RUNNING else 0)
        assert len(starts_seen) == (1 if found.state is S.RUNNING else 0)
        assert len([pid for pid in h.processes(spec.kernel_id) if not h.is_shim(pid)]) == len(
            starts_seen
        )
        await withdraw_all(manager)
        await h.wait_until_no_processes(spec.kernel_id)
