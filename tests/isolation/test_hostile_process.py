"""Hostile process kernels: their attacks on the node and on other kernels fail, each for its
expected reason."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from moorage.agent.runtimes import CreateFailed, Handle, ProcessRuntime, procfs
from moorage.agent.runtimes.base import KERNEL_ID_VAR, OWNER_VAR, File
from moorage.agent.runtimes.execution import Command
from moorage.common.aio.sockets import source_address
from moorage.common.model.reasons import Reason
from moorage.common.model.status import ObservedState as S
from tests.addresses import free_port

from .conftest import (
    ALLOWED_PORT,
    HOSTILE,
    UIDS,
    UNIFIED,
    Node,
    attack,
    launch,
    python,
    until_exited,
)
from .hostile import SUCCEEDED

HAS_IPV6 = socket.has_dualstack_ipv6()
_VICTIM = """
import os, signal, socket, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open("diary", "w").write("secret of the victim")
os.chmod("diary", 0o666)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
while True:
    server.accept()[0].close()
"""


async def until_logged(runtime: ProcessRuntime, handle: Handle, text: str) -> None:
    async with asyncio.timeout(20):
        while text not in await runtime.log_tail(handle):
            await asyncio.sleep(0.05)


async def victim(runtime: ProcessRuntime, port: int) -> Handle:
    handle = await runtime.create(python(_VICTIM, str(port), session="victim"))
    await until_logged(runtime, handle, "ready")
    return handle


def listen_everywhere() -> socket.socket:
    if HAS_IPV6:
        return socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("0.0.0.0", 0))


@pytest.mark.parametrize("how", [pytest.param("kernel", marks=pytest.mark.smoke), "exec"])
async def test_hostile_kernel_reaches_nothing(node: Node, node_socket: str, how: str) -> None:
    runtime = await node.start()
    port = free_port()
    target = await victim(runtime, port)
    folder = node.state / "kernels" / target.state["kernel_id"]
    with contextlib.ExitStack() as stack:
        internal = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        on_all = stack.enter_context(listen_everywhere())
        engine = stack.enter_context(socket.socket(socket.AF_UNIX))
        engine.bind(node_socket)
        engine.listen()
        os.chmod(node_socket, 0o666)

        # A route to a documentation address uses one of the node's own addresses, if it has any.
        addresses = {
            "127.0.0.2",
            *(["::1"] if HAS_IPV6 else []),
            source_address("192.0.2.254", 1) or "127.0.0.3",
        }
        secrets = ["admin-key", "link-token", "postgres/password", "agent-one/identity.json"]
        targets = {
            "files": [
                *(str(node.home / name) for name in secrets),
                *(str(folder / name) for name in ("work/diary", "environ", "sandbox")),
                *("/etc/shadow", "/proc/1/environ", "/proc/1/cwd", "/proc/kcore"),
            ],
            "writes": [
                *("/etc/passwd", "/usr/bin/new", sys.executable, "/dev/new", "/proc/sysrq-trigger"),
                *("/proc/sys/kernel/core_pattern", "/sys/fs/cgroup/cgroup.procs"),
            ],
            "pids": [target.state["engine_pid"], target.state["shim_pid"], os.getpid()],
            # On cgroup v2 the whole kernel would end.
            "memory": not UNIFIED,
            "addresses": [
                *(["127.0.0.1", port] for port in (internal.getsockname()[1], port)),
                *([host, on_all.getsockname()[1]] for host in sorted(addresses)),
                *(node_socket, "/var/run/docker.sock"),
            ],
        }
        argv = (sys.executable, "-c", HOSTILE.read_text(), json.dumps(targets))
        if how == "kernel":
            outcomes = await attack(runtime, launch(*argv))
        else:
            outcomes = await attack_by_command(runtime, argv)

    assert {
        name: outcome for name, outcome in outcomes.items() if outcome.startswith(SUCCEEDED)
    } == {}
    assert "unavailable" in outcomes["fork without end"]  # EAGAIN
    assert outcomes.get("take memory", "") == ("" if UNIFIED else "OSError: killed by signal 9")
    assert outcomes["user namespace"] == "PermissionError: Operation not permitted"

    # Its loopback is its own.
    assert outcomes[f"connect to {['127.0.0.1', port]}"].startswith("ConnectionRefusedError")
    assert (await runtime.observe(target)).state is S.RUNNING


async def attack_by_command(runtime: ProcessRuntime, argv: tuple[str, ...]) -> dict[str, str]:
    handle = await runtime.create(launch("sleep", "600"))
    command = await runtime.exec(handle, Command(argv, {}, tty=False, stdin=False, rows=0, cols=0))
    output = b""
    while (piece := await command.read()) is not None:
        output += piece[1]
    assert await command.wait() == 0, output
    await runtime.destroy(handle)
    outcomes: dict[str, str] = json.loads(output.splitlines()[-1])
    return outcomes


async def test_kernels_of_one_session_and_allowed_ports_are_reachable(node: Node) -> None:
    runtime = await node.start()
    port = free_port()
    await victim(runtime, port)
    client = (
        "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 2); "
        "print('connected')"
    )
    with socket.create_server(("127.0.0.1", ALLOWED_PORT)):
        for session, reached in (("victim", port), ("other", ALLOWED_PORT)):
            handle = await runtime.create(python(client, str(reached), session=session))
            assert (await until_exited(runtime, handle)).exit_code == 0, await runtime.log_tail(
                handle
            )


@pytest.fixture
def of_node() -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(dir="/tmp") as file:
        yield Path(file.name)


async def test_environment_home_and_tmp_are_private(
    node: Node, monkeypatch: pytest.MonkeyPatch, of_node: Path
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_AGENT", "1")
    runtime = await node.start()
    program = """
import json, os
found = {name: os.listdir(name) for name in ("/tmp", "/var/tmp", "/run", "/dev/shm", ".")}
found["mode"] = oct(os.stat(".").st_mode & 0o777)
found["environment"] = sorted(os.environ)
found["again"] = open("/dev/stdout", "a").write("")
open("/tmp/mine", "w"), open("mine", "w")
print(json.dumps(found))
"""
    handle = await runtime.create(python(program))
    assert (await until_exited(runtime, handle)).exit_code == 0, await runtime.log_tail(handle)
    found = json.loads(await runtime.log_tail(handle))
    assert found["/run"] == found["/dev/shm"] == found["/var/tmp"] == found["."] == []

    # In this test the state directory is below /tmp: the parents of the working directory are
    # visible.
    assert of_node.name not in found["/tmp"]
    assert found["mode"] == "0o700"
    assert set(found["environment"]) <= {
        "PATH",
        KERNEL_ID_VAR,
        OWNER_VAR,
        "MOORAGE_PORT",
        "LC_CTYPE",
    }
    work = node.state / "kernels" / handle.state["kernel_id"] / "work"
    assert (work / "mine").stat().st_uid == work.stat().st_uid
    assert work.stat().st_uid in UIDS


async def test_out_of_memory_is_the_reason_even_if_a_child_was_killed(node: Node) -> None:
    runtime = await node.start()
    program = (
        "import subprocess, sys\n"
        "sys.exit(subprocess.run([sys.executable, '-c', sys.argv[1]]).returncode != 0)"
    )
    eat = "x = bytearray(1 << 30); x[::4096] = b'1' * len(x[::4096])"
    of_child = await runtime.create(python(program, eat))
    seen = await until_exited(runtime, of_child)

    # On cgroup v2 all of a kernel's processes end together.
    assert (seen.exit_code, seen.oom) == (-signal.SIGKILL if UNIFIED else 1, True)
    of_main = await until_exited(runtime, await runtime.create(python(eat)))
    assert (of_main.exit_code, of_main.oom) == (-signal.SIGKILL, True)
    killed = await until_exited(
        runtime, await runtime.create(python("import os; os.kill(os.getpid(), 9)"))
    )
    assert (killed.exit_code, killed.oom) == (-signal.SIGKILL, False)


async def test_exit_status_stop_and_missing_program_are_as_without_a_sandbox(node: Node) -> None:
    runtime = await node.start()
    assert (
        await until_exited(runtime, await runtime.create(python("raise SystemExit(7)")))
    ).exit_code == 7
    with pytest.raises(CreateFailed, match="No such file"):
        await runtime.create(launch("/no/such/program"))

    polite = (
        "import signal, sys\n"
        "signal.signal(15, lambda *_: sys.exit(3))\n"
        "print('ready', flush=True)\n"
        "signal.pause()"
    )
    handle = await runtime.create(python(polite))
    await until_logged(runtime, handle, "ready")
    await runtime.stop(handle, 30)
    assert (await until_exited(runtime, handle)).exit_code == 3


async def test_kernel_ends_with_its_supervisor_and_survives_its_agent(node: Node) -> None:
    before = await node.start()
    escape = (
        "import os, time; os.fork() or os.setsid(); print('ready', flush=True); time.sleep(600)"
    )
    handle = await before.create(python(escape))
    await until_logged(before, handle, "ready")
    before.close()
    after = await node.start()
    adopted = (await after.find())[handle.state["kernel_id"]]
    assert (await after.observe(adopted)).state is S.RUNNING
    command = await after.exec(
        adopted, Command(("id", "-u"), {}, tty=False, stdin=False, rows=0, cols=0)
    )
    output = await command.read()
    assert output is not None
    assert int(output[1]) in UIDS
    command.disconnect()
    os.kill(handle.state["shim_pid"], signal.SIGKILL)
    async with asyncio.timeout(20):
        while any(procfs.uid(pid) in UIDS and _is_alive(pid) for pid in procfs.pids()):
            await asyncio.sleep(0.05)

    assert (await until_exited(after, adopted)).detail
    await after.destroy(adopted)


def _is_alive(pid: int) -> bool:
    stat = procfs.stat(pid)
    return stat is not None and stat.alive


def mounts() -> set[str]:
    return set(Path(f"/proc/{os.getpid()}/mountinfo").read_text().splitlines())


async def test_nothing_remains_and_uids_are_used_again(node: Node) -> None:
    before = mounts()
    runtime = await node.start(uids=UIDS[:2])
    first = await runtime.create(launch("sleep", "600", session="a"))
    second = await runtime.create(launch("sleep", "600", session="b"))
    same = await runtime.create(launch("sleep", "600", session="a"))
    uids = [procfs.uid(handle.state["engine_pid"]) for handle in (first, second, same)]
    assert uids[0] == uids[2] != uids[1]
    with pytest.raises(CreateFailed) as caught:
        await runtime.create(launch("sleep", "600", session="c"))

    assert caught.value.reason is Reason.NOT_ISOLATED
    for handle in (first, same):
        await runtime.destroy(handle)

    third = await runtime.create(launch("sleep", "600", session="c"))
    assert procfs.uid(third.state["engine_pid"]) == uids[0]
    for handle in (second, third):
        await runtime.destroy(handle)

    runtime.close()
    leaked = [line for line in mounts() - before if "moorage" in line or str(node.home) in line]
    assert not leaked, "no mount leaks to the node"
    assert list((node.state / "kernels").iterdir()) == []


async def test_kept_workspace_belongs_to_its_session(node: Node) -> None:
    runtime = await node.start()
    kept = node.state / "workspaces" / "kept" / "one"
    kept.mkdir(parents=True)
    (kept / "model").write_text("weights")
    victim = node.home / "authorized_keys"
    victim.write_text("mine")
    (kept / ".ssh").symlink_to(node.home)
    order = python("print(open('model').read()); open('model', 'a').write('!')")
    work = runtime.work_dir(order.kernel_id)
    work.parent.mkdir(parents=True)
    work.symlink_to(kept)
    handle = await runtime.create(order)
    assert (await until_exited(runtime, handle)).exit_code == 0, await runtime.log_tail(handle)
    assert (kept / "model").read_text() == "weights!"
    assert kept.stat().st_uid in UIDS
    assert victim.stat().st_uid == node.home.stat().st_uid == 0

    # The agent, which is root, follows no link that a kernel has left.
    again = python("pass")
    path = runtime.work_dir(again.kernel_id)
    path.parent.mkdir(parents=True)
    path.symlink_to(kept)
    with pytest.raises(CreateFailed):
        await runtime.create(replace(again, files=(File(f"{path}/.ssh/authorized_keys", "evil"),)))

    assert victim.read_text() == "mine"


async def test_invented_environment_makes_no_kernel(node: Node) -> None:
    runtime = await node.start()
    program = (
        "import os, sys\n"
        "argv = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "os.execve(argv[0], argv, {'%s': 'invented', '%s': sys.argv[1], 'MOORAGE_SHIM': '1'})"
    )
    order = python(program % (KERNEL_ID_VAR, OWNER_VAR), str(node.state.resolve()))
    handle = await runtime.create(order)
    async with asyncio.timeout(20):
        while (procfs.environ(handle.state["engine_pid"]) or {}).get(KERNEL_ID_VAR) != "invented":
            await asyncio.sleep(0.05)

    assert set(await runtime.find()) == {order.kernel_id}
