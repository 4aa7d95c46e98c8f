"""A whole agent against a manager on real gRPC: real processes, real ports, a real engine."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import agent_harness as h
import pytest
import pytest_asyncio

from moorage.agent.runtimes import ProcessRuntime, procfs
from moorage.agent.state.logs import LogStore
from moorage.common.config.settings import AgentSettings, CommonSettings
from moorage.common.link.messages import LogRequest
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import DeviceGrant
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S
from moorage.common.model.status import SessionType
from moorage.demo.model import write_tiny_gguf

# A server with a child, so that there is a tree to end; it answers its probe only after a moment.
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
    words = (sys.executable, "-c", SERVER, "{port}")
    return h.kernel(*words, session_type=SessionType.INFERENCE, probe_path="/healthy", **fields)


@pytest_asyncio.fixture
async def boss() -> AsyncIterator[h.Manager]:
    async with h.manager() as boss:
        yield boss


@pytest_asyncio.fixture(autouse=True)
async def nothing_stays(tmp_path: Path) -> AsyncIterator[None]:
    """What a failed test left running."""
    yield
    state = tmp_path / "agent-one"
    runtime = ProcessRuntime(state, LogStore(state / "logs"), log_max_bytes=4096, log_keep_files=1)
    for handle in (await runtime.find()).values():
        await runtime.destroy(handle)


async def end_all(boss: h.Manager) -> None:
    boss.order()
    await boss.until(lambda r: r.orders_generation == boss.generation and not r.kernels)


async def test_the_first_report_says_who_it_is(boss: h.Manager, tmp_path: Path) -> None:
    async with h.make_agent(boss, tmp_path, labels={"rack": "7"}):
        report = await boss.until(lambda r: True)
    assert (report.info.agent_id, report.orders_generation, report.kernels) == ("one", 0, ())
    assert report.info.labels == {"rack": "7"}
    assert report.info.runtimes == ("process", "fake")
    assert {"llamacpp", "custom"} <= set(report.info.engines)
    gpus = [offer for offer in report.info.offers if offer.slot == "cuda.device"]
    assert [(gpu.capacity, gpu.healthy) for gpu in gpus] == [(1000, True)] * 2
    assert not report.draining


async def test_a_kernel_from_order_to_running_to_nothing(boss: h.Manager, tmp_path: Path) -> None:
    spec = server()
    async with h.make_agent(boss, tmp_path):
        boss.order(spec)
        first = await boss.until(lambda r: r.orders_generation == 1)
        assert h.seen(first, spec.kernel_id) is not None, "a report of this generation must have its kernels"
        running = await boss.until_kernel(spec.kernel_id, S.RUNNING)
        assert (running.host, running.session_id) == ("127.0.0.1", spec.session_id)
        assert running.port in h.PORTS
        request = urllib.request.Request(f"http://127.0.0.1:{running.port}/healthy")
        request.add_header("Authorization", "Bearer kernel-secret")
        answer = await asyncio.to_thread(lambda: urllib.request.urlopen(request).read())
        assert int(answer) in set(h.processes(spec.kernel_id))
        assert len(list(h.processes(spec.kernel_id))) == 3  # supervisor, server and its child
        await end_all(boss)
        assert list(h.processes(spec.kernel_id)) == []
    states = list(dict.fromkeys(k.state for r in boss.reports if (k := h.seen(r, spec.kernel_id))))
    # Short ones may fall between two reports.
    assert S.RUNNING in states
    assert states == [s for s in (S.CREATING, S.RUNNING, S.STOPPING, S.EXITED) if s in states]


async def test_a_batch_kernel_ends_by_itself_and_is_told_until_withdrawn(
    boss: h.Manager, tmp_path: Path
) -> None:
    script = 'echo "gpus=$CUDA_VISIBLE_DEVICES"; echo "$0 $A_NAME $HOME"; exit 4'
    grants = (DeviceGrant("cuda.device", "GPU-a", 1000), DeviceGrant("cuda.shares", "GPU-b", 500))
    spec = h.kernel("sh", "-c", script, "{model}", model="weights", devices=grants, env={"A_NAME": "a value"})
    async with h.make_agent(boss, tmp_path):
        boss.order(spec)
        ended = await boss.until_kernel(spec.kernel_id, S.EXITED)
        assert (ended.exit_code, ended.reason) == (4, Reason.EXIT_NONZERO)
        home = tmp_path / "agent-one" / "kernels" / spec.kernel_id / "work"
        assert ended.log_tail == f"gpus=GPU-a,GPU-b\nweights a value {home}\n"
        boss.order(spec)  # told again: not begun again
        await boss.until(lambda r: r.orders_generation == 2)
        assert (await boss.until_kernel(spec.kernel_id, S.EXITED)).exit_code == 4
        await end_all(boss)
        assert not home.exists()
        boss.say(LogRequest("r1", spec.kernel_id))  # its log stays
        await boss.until_logs(lambda: "r1" in boss.logs_ended)
        assert boss.logs["r1"].startswith(b"gpus=")


async def test_bad_input_ends_with_its_reason(boss: h.Manager, tmp_path: Path) -> None:
    bad = {
        Reason.ENGINE_MISSING: h.kernel(engine="vllm", model="org/name", session_type=SessionType.INFERENCE),
        Reason.MODEL_MISSING: h.kernel(engine="llamacpp", model="/no/such/model.gguf"),
        Reason.CREATE_FAILED: h.kernel("no-such-program-anywhere"),
        Reason.START_TIMEOUT: h.kernel("sleep", "3600", probe_path="/healthy", start_timeout_s=0.3),
    }
    async with h.make_agent(boss, tmp_path, vllm_command="no-such-vllm serve"):
        boss.order(*bad.values())
        for reason, spec in bad.items():
            ended = await boss.until_kernel(spec.kernel_id, S.EXITED)
            assert ended.reason is reason, ended
            assert ended.detail
            assert list(h.processes(spec.kernel_id)) == []
        said = {k.kernel_id: k.detail for k in boss.last.kernels}
        assert "no-such-vllm" in said[bad[Reason.ENGINE_MISSING].kernel_id]
        assert "/no/such/model.gguf" in said[bad[Reason.MODEL_MISSING].kernel_id]
        assert "no-such-program-anywhere" in said[bad[Reason.CREATE_FAILED].kernel_id]
        assert "GET /healthy" in said[bad[Reason.START_TIMEOUT].kernel_id]
        await end_all(boss)


async def test_no_port_left(boss: h.Manager, tmp_path: Path) -> None:
    sockets = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    taken = sockets.sockets[0].getsockname()[1]
    spec = server()
    async with sockets, h.make_agent(boss, tmp_path, port_range=f"{taken}-{taken}"):
        boss.order(spec)
        ended = await boss.until_kernel(spec.kernel_id, S.EXITED)
        assert (ended.reason, str(taken) in ended.detail) == (Reason.PORT_TAKEN, True)
        await end_all(boss)


async def test_a_kill_from_outside_is_told_at_once(boss: h.Manager, tmp_path: Path) -> None:
    engine, orphaned = h.kernel("sleep", "3600"), h.kernel("sh", "-c", "sleep 3600 & sleep 3600")
    async with h.make_agent(boss, tmp_path):
        boss.order(engine, orphaned)
        for spec in (engine, orphaned):
            await boss.until_kernel(spec.kernel_id, S.RUNNING)
        os.kill(next(pid for pid in h.processes(engine.kernel_id) if not h.is_shim(pid)), signal.SIGKILL)
        ended = await boss.until_kernel(engine.kernel_id, S.EXITED)
        assert (ended.exit_code, ended.reason) == (-9, Reason.KILLED)
        # Its supervisor killed: nothing may be left, although nobody is there any more to end it.
        os.kill(next(pid for pid in h.processes(orphaned.kernel_id) if h.is_shim(pid)), signal.SIGKILL)
        ended = await boss.until_kernel(orphaned.kernel_id, S.EXITED)
        assert (ended.exit_code, ended.reason) == (None, Reason.KILLED)
        assert list(h.processes(orphaned.kernel_id)) == []
        await end_all(boss)


async def test_an_order_withdrawn_while_it_is_created(boss: h.Manager, tmp_path: Path) -> None:
    spec = h.kernel("sleep", "3600")
    async with h.make_agent(boss, tmp_path):
        for _ in range(3):
            boss.order(spec)
            boss.order()
            await boss.until(lambda r: r.orders_generation == boss.generation and not r.kernels)
            await h.until_no_processes(spec.kernel_id)


async def test_older_orders_are_refused_over_restarts(boss: h.Manager, tmp_path: Path) -> None:
    spec, other = h.kernel("sleep", "3600"), h.kernel("sleep", "3600")
    boss.generation = 10
    for _ in range(2):
        async with h.make_agent(boss, tmp_path):
            boss.order(spec)
            await boss.until(lambda r: r.orders_generation == boss.generation)
            pid = (await _running(boss, spec.kernel_id))[0]
            boss.order(other, generation=3)
            boss.say(LogRequest(f"r{boss.generation}", spec.kernel_id))  # answered after the old orders
            await boss.until_logs(lambda: f"r{boss.generation}" in boss.logs_ended)
            assert h.seen(boss.last, other.kernel_id) is None
            assert pid in set(h.processes(spec.kernel_id))
    boss.orders = None  # a manager that lost its memory
    boss.generation = 0
    async with h.make_agent(boss, tmp_path):
        before = len(boss.reports)
        boss.order()
        await boss.until(lambda r: len(boss.reports) > before + 1)
        assert pid in set(h.processes(spec.kernel_id))
        boss.generation = 20
        await end_all(boss)


async def _running(boss: h.Manager, kernel_id: str) -> list[int]:
    await boss.until_kernel(kernel_id, S.RUNNING)
    return sorted(h.processes(kernel_id))


async def test_a_killed_agent_s_successor_adopts_its_kernels(boss: h.Manager, tmp_path: Path) -> None:
    runs, ends, is_withdrawn = server(), h.kernel("sh", "-c", "sleep 1; exit 6"), h.kernel("sleep", "3600")
    async with h.agent_process(boss, tmp_path) as agent:
        boss.order(runs, ends, is_withdrawn)
        pids = await _running(boss, runs.kernel_id)
        withdrawn = await _running(boss, is_withdrawn.kernel_id)
        port = h.seen(boss.last, runs.kernel_id).port  # type: ignore[union-attr]
        agent.kill()
        await agent.wait()
    incarnation = boss.last.incarnation
    boss.orders = None  # the next one is told nothing until it has said what it has
    await h.until_no_processes(ends.kernel_id)
    async with h.make_agent(boss, tmp_path):
        report = await boss.until(lambda r: r.incarnation != incarnation)
        assert report.orders_generation == 0
        assert {k.kernel_id: k.state for k in report.kernels if k.kernel_id != ends.kernel_id} == {
            runs.kernel_id: S.RUNNING,
            is_withdrawn.kernel_id: S.RUNNING,
        }
        ended = await boss.until_kernel(ends.kernel_id, S.EXITED)
        assert ended.exit_code == 6  # known although no agent was there
        boss.order(runs)
        await boss.until(lambda r: r.orders_generation == boss.generation and len(r.kernels) == 1)
        await h.until_no_processes(is_withdrawn.kernel_id)
        assert not any(procfs.alive(pid, 0) for pid in withdrawn)
        again = h.seen(boss.last, runs.kernel_id)
        assert again is not None
        assert (again.port, sorted(h.processes(runs.kernel_id))) == (port, pids)
        await end_all(boss)


async def test_a_lost_ledger_is_recovered_by_looking(boss: h.Manager, tmp_path: Path) -> None:
    kept, unwanted = server(), h.kernel("sleep", "3600")
    async with h.make_agent(boss, tmp_path):
        boss.order(kept, unwanted)
        pids = await _running(boss, kept.kernel_id)
        await _running(boss, unwanted.kernel_id)
        port = h.seen(boss.last, kept.kernel_id).port  # type: ignore[union-attr]
    for path in (tmp_path / "agent-one" / "ledger").iterdir():
        path.write_text("{ this is not")
    boss.order(kept)
    before = len(boss.reports)
    async with h.make_agent(boss, tmp_path):
        await boss.until(lambda _: len(boss.reports) > before)
        first = {k.kernel_id: k.state for k in boss.reports[before].kernels}
        assert first == {kept.kernel_id: S.UNKNOWN, unwanted.kernel_id: S.UNKNOWN}, "they hold their devices"
        running = await boss.until_kernel(kept.kernel_id, S.RUNNING)
        assert (running.port, sorted(h.processes(kept.kernel_id))) == (port, pids)
        await h.until_no_processes(unwanted.kernel_id)
        await end_all(boss)


async def test_the_manager_comes_back(boss: h.Manager, tmp_path: Path) -> None:
    spec = h.kernel("sleep", "3600")
    async with h.make_agent(boss, tmp_path):
        boss.order(spec)
        pids = await _running(boss, spec.kernel_id)
        await boss.stop()
        count = len(boss.reports)
        await boss.start()
        await boss.until(lambda r: len(boss.reports) > count and r.orders_generation == 1)
        assert boss.streams == 2
        assert sorted(h.processes(spec.kernel_id)) == pids
        await end_all(boss)


async def test_a_manager_that_falls_silent_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attached = asyncio.Event()
    async with h.manager_process() as (process, port):
        settings = AgentSettings(id="one", inventory="fake:1xL4", manager=f"127.0.0.1:{port}")
        agent = h.Agent(
            settings, CommonSettings(), clock=h.CLOCK, link_token=h.TOKEN, home=tmp_path, ready=attached.set
        )
        async with agent:
            await asyncio.wait_for(attached.wait(), 10)
            attached.clear()
            process.send_signal(signal.SIGSTOP)  # its node goes on acknowledging what we send
            async with asyncio.timeout(12):
                while "not connected" not in capsys.readouterr().out:
                    await asyncio.sleep(0.05)
            process.send_signal(signal.SIGCONT)
            await asyncio.wait_for(attached.wait(), 10)


async def test_logs_are_followed_to_the_end(boss: h.Manager, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    spec = h.kernel("sh", "-c", f"echo before; cat {gate}")
    async with h.make_agent(boss, tmp_path):
        boss.order(spec)
        await boss.until_kernel(spec.kernel_id, S.RUNNING)
        boss.say(LogRequest("follow", spec.kernel_id, follow=True))
        boss.say(LogRequest("missing", KernelId("no-such-kernel")))
        await boss.until_logs(lambda: boss.logs.get("follow") == b"before\n")
        await boss.until_logs(lambda: "missing" in boss.logs_ended)
        assert "no-such-kernel" in boss.log_errors["missing"]
        assert "follow" not in boss.logs_ended
        await asyncio.to_thread(gate.write_text, "after\n")
        await boss.until_logs(lambda: "follow" in boss.logs_ended)
        assert boss.logs["follow"] == b"before\nafter\n"
        await end_all(boss)


async def test_a_log_s_reader_may_leave(boss: h.Manager, tmp_path: Path) -> None:
    spec = h.kernel("sh", "-c", "echo first words; exec sleep 3600")
    boss.impatient.add("leaves")
    async with h.make_agent(boss, tmp_path):
        boss.order(spec)
        await boss.until_kernel(spec.kernel_id, S.RUNNING)
        boss.say(LogRequest("leaves", spec.kernel_id, follow=True))
        await boss.until_logs(lambda: "leaves" in boss.logs_ended)
        async with asyncio.timeout(5):  # although there is nothing to send any more
            while any(task.get_name() == "link.logs.leaves" for task in asyncio.all_tasks()):
                await asyncio.sleep(0.01)
        await end_all(boss)


async def test_a_real_engine(boss: h.Manager, tmp_path: Path) -> None:
    model = tmp_path / "tiny.gguf"
    write_tiny_gguf(model)
    spec = h.kernel(
        engine="llamacpp", model=str(model), session_type=SessionType.INFERENCE, slots={"cpu": 1000},
        args=("--ctx-size", "512"), served_name="tiny",
    )  # fmt: skip
    broken = replace(spec, kernel_id=KernelId("bad-args"), args=("--no-such-option",))
    (tmp_path / "text.gguf").write_text("not a model")
    not_gguf = replace(spec, kernel_id=KernelId("bad-file"), model=str(tmp_path / "text.gguf"))
    async with h.make_agent(boss, tmp_path):
        boss.order(spec, broken, not_gguf)
        running = await boss.until_kernel(spec.kernel_id, S.RUNNING)
        for wrong, word in ((broken, "--no-such-option"), (not_gguf, "is not a GGUF file")):
            ended = await boss.until_kernel(wrong.kernel_id, S.EXITED)
            assert (ended.exit_code, ended.reason) == (2, Reason.EXIT_NONZERO)
            assert word in ended.log_tail
        # It picks words by chance, and may pick the end.
        body = b'{"model": "tiny", "prompt": "Hello", "max_tokens": 4, "ignore_eos": true}'
        request = urllib.request.Request(f"http://127.0.0.1:{running.port}/v1/completions", body)
        request.add_header("Content-Type", "application/json")
        request.add_header("Authorization", "Bearer kernel-secret")
        answer = await asyncio.to_thread(lambda: urllib.request.urlopen(request).read())
        assert b'"completion_tokens":4' in answer
        arguments = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in h.processes(spec.kernel_id)]
        assert not any(b"kernel-secret" in words for words in arguments)
        await end_all(boss)
        assert list(h.processes(spec.kernel_id)) == []


@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.005, 0.01, 0.02, 0.04])
async def test_killed_at_any_moment_it_starts_nothing_twice(
    boss: h.Manager, tmp_path: Path, after_s: float
) -> None:
    starts = tmp_path / "starts"
    spec = h.kernel("sh", "-c", f"echo $$ >> {starts}; exec sleep 3600")
    async with h.agent_process(boss, tmp_path) as agent:
        await boss.until(lambda r: True)
        boss.order(spec)
        await asyncio.sleep(after_s)  # the moment is the point, not a wait for something
        agent.kill()
        await agent.wait()
    count = len(boss.reports)
    async with h.make_agent(boss, tmp_path):
        await boss.until(lambda r: len(boss.reports) > count and r.orders_generation == 1)
        told = await boss.until_kernel(spec.kernel_id, S.RUNNING, S.EXITED, S.GONE)
        begun = await h.words_in(starts, 1 if told.state is S.RUNNING else 0)
        assert len(begun) == (1 if told.state is S.RUNNING else 0)
        assert len([pid for pid in h.processes(spec.kernel_id) if not h.is_shim(pid)]) == len(begun)
        await end_all(boss)
        await h.until_no_processes(spec.kernel_id)
