"""Parts of the sandbox of process kernels, one at a time: another part often stops the same
attack."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from moorage.agent.runtimes import CreateFailed, ProcessRuntime, RuntimeFailed, procfs, wireguard
from moorage.agent.runtimes.base import Overlay, OverlayPeer
from moorage.agent.runtimes.execution import Command, ExecFailed
from moorage.agent.runtimes.process.isolation import IsolationRules, KernelIsolation
from moorage.agent.runtimes.process.networks import KernelNetwork
from moorage.agent.runtimes.process.sandbox import Sandbox
from moorage.agent.state.logs import LogStore
from moorage.common.model.service_ports import AppPort
from tests.addresses import free_port

from .conftest import PATH, UIDS, Node, launch, python, until_exited

EAT = "x = bytearray(1 << 30); x[::4096] = b'1' * len(x[::4096])"
IPC_CREAT = 0o1000
IPC_RMID = 0


async def output_of(
    runtime: ProcessRuntime, how: str, program: str, *arguments: str, **fields: Any
) -> str:
    """The output of a Python program that runs as a kernel's main program, or as a command in a
    kernel."""
    if how == "kernel":
        handle = await runtime.create(python(program, *arguments, **fields))
        await until_exited(runtime, handle)
        return await runtime.log_tail(handle, 100_000)
    handle = await runtime.create(launch("sleep", "600", **fields))
    return await output_of_command(runtime, handle, (sys.executable, "-c", program, *arguments), {})


async def output_of_command(
    runtime: ProcessRuntime, handle: Any, argv: tuple[str, ...], env: dict[str, str]
) -> str:
    command = await runtime.exec(handle, Command(argv, env, tty=False, stdin=False, rows=0, cols=0))
    output = b""
    while (piece := await command.read()) is not None:
        output += piece[1]
    assert await command.wait() == 0, output
    return output.decode()


@pytest.mark.parametrize("how", ["kernel", "kernel with ports", "command"])
async def test_environment_of_a_kernel_does_not_reach_its_supervisors(node: Node, how: str) -> None:
    """The dynamic linker of a program that runs as root would write files or load libraries."""
    runtime = await node.start()
    trace = node.home / "traces"
    trace.mkdir()
    hostile = {"PATH": PATH, "LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": f"{trace}/of"}
    if how == "command":
        handle = await runtime.create(launch("sleep", "600"))
        await output_of_command(runtime, handle, ("true",), hostile)
    else:
        apps = (AppPort("lab", free_port()),) if "ports" in how else ()
        await until_exited(runtime, await runtime.create(launch("true", env=hostile, apps=apps)))

    assert [path.name for path in trace.iterdir()] == []


@pytest.mark.parametrize("how", ["kernel", "command"])
async def test_mounts(node: Node, how: str) -> None:
    runtime = await node.start()
    text = await output_of(runtime, how, "print(open('/proc/self/mountinfo').read())")
    writable = {}
    for line in text.strip().splitlines():
        fields, _, kind = line.partition(" - ")
        _, _, _, _, target, options, *propagation = fields.split()
        assert propagation == [], f"{target} is shared with the node"
        assert {"nosuid"} <= set(options.split(",")), line
        if "rw" in options.split(","):
            writable[target] = (kind.split()[0], set(options.split(",")))

    assert writable.pop("/proc") == ("proc", {"rw", "nosuid", "nodev", "noexec", "relatime"})
    [work] = [
        target
        for target, (kind, _) in writable.items()
        if kind != "tmpfs" or target.endswith("/work")
    ]
    assert "nodev" in writable.pop(work)[1]
    assert {"/tmp", "/var/tmp", "/dev/shm", "/run"} <= writable.keys()
    assert all("nodev" in options for _, options in writable.values())


@pytest.mark.parametrize("how", ["kernel", "command"])
async def test_host_names_of_a_cluster_resolve(node: Node, how: str) -> None:
    runtime = await node.start()
    program = (
        "import socket\n"
        "for name in ('main1', 'sub1', 'localhost'):\n"
        "    print(name, socket.gethostbyname(name))\n"
        "for line in open('/proc/self/mountinfo'):\n"
        "    if line.split()[4] == '/etc/hosts': options = line.split()[5].split(',')\n"
        "print('ro' in options, 'nosuid' in options)"
    )
    hosts = {"main1": "127.0.0.1", "sub1": "127.0.0.1"}
    before = Path("/etc/hosts").read_bytes()
    text = await output_of(runtime, how, program, hosts=hosts)
    assert text.splitlines() == [
        "main1 127.0.0.1",
        "sub1 127.0.0.1",
        "localhost 127.0.0.1",
        "True True",
    ]
    assert Path("/etc/hosts").read_bytes() == before


@pytest.mark.skipif(bool(wireguard.missing_requirement()), reason="no WireGuard on this machine")
async def test_cluster_with_an_address_that_does_not_resolve_is_refused(node: Node) -> None:
    runtime = await node.start()
    peer = OverlayPeer(
        "sub1", "100.127.0.2", public_key="", endpoint="no-such-node.invalid", port=25_001
    )
    interface = Overlay("", "100.127.0.1", 25_000, (peer,))
    with pytest.raises(CreateFailed, match="address of sub1") as refused:
        await runtime.create(launch("true", hosts={"sub1": peer.address}, overlay=interface))
    assert refused.value.clean
    assert await runtime.find() == {}


@pytest.mark.parametrize("how", ["kernel", "command"])
async def test_only_its_streams_are_open(node: Node, how: str) -> None:
    runtime = await node.start()
    program = (
        "import os\n"
        "found = os.listdir('/proc/self/fd')\n"
        "print([fd for fd in found if os.path.exists(f'/proc/self/fd/{fd}')])  # without that of listdir"
    )
    assert (await output_of(runtime, how, program)).strip() == "['0', '1', '2']"


def test_privileges_are_dropped_whatever_the_agent_has() -> None:
    """An agent with supplementary groups and inheritable capabilities."""
    program = (
        "import ctypes, os\n"
        "from moorage.agent.runtimes.process.sandbox import Sandbox\n"
        "from moorage.agent.runtimes.process.system_calls import deny_filter\n"
        "os.setgroups([4242])\n"
        "libc, header = ctypes.CDLL(None), (0x20080522).to_bytes(4, 'little') + bytes(4)\n"
        "held = ctypes.create_string_buffer(24)\n"
        "assert libc.capget(header, held) == 0\n"
        "both = held.raw[:8] + held.raw[4:8] + held.raw[12:20] + held.raw[16:20]\n"
        "assert libc.capset(header, both) == 0\n"
        "assert int(open('/proc/self/status').read().split('CapInh:')[1].split()[0], 16)\n"
        "denied = deny_filter(os.uname().machine)\n"
        "paths = {'empty': (), 'visible': (), 'writable': ('', '')}\n"
        f"sandbox = Sandbox('one', {UIDS[0]}, (), '', **paths, system_calls=denied)\n"
        "sandbox.drop_privileges()\n"
        "print(open('/proc/self/status').read())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300
    )
    status = dict(line.split(":", 1) for line in done.stdout.splitlines() if ":" in line)
    fields = {name: value.split() for name, value in status.items()}
    assert (fields["Uid"], fields["Gid"]) == ([str(UIDS[0])] * 4, [str(UIDS[0])] * 4)
    assert fields["Groups"] == []
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert fields[name] == ["0" * 16], name

    assert (fields["NoNewPrivs"], fields["Seccomp"]) == (["1"], ["2"])


@pytest.fixture
def shared_memory() -> Iterator[int]:
    """The id of a System V segment on the node that all its users can read and change."""
    libc = ctypes.CDLL(None, use_errno=True)
    segment = libc.shmget(0x4D6F6F72, 4096, IPC_CREAT | 0o666)
    assert segment >= 0
    yield segment
    libc.shmctl(segment, IPC_RMID, None)


@pytest.mark.parametrize("how", ["kernel", "command"])
async def test_shared_memory_of_the_node_is_out_of_reach(
    node: Node, shared_memory: int, how: str
) -> None:
    runtime = await node.start()
    program = "import ctypes; print(ctypes.CDLL(None).shmget(0x4D6F6F72, 4096, 0))"
    assert (await output_of(runtime, how, program)).strip() == "-1"


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory on the node that every user can write to, and a closed one inside it."""
    folder = Path("/var/moorage-test-isolation")
    (folder / "closed").mkdir(parents=True)
    (folder / "closed" / "weights").write_text("of a model")
    (folder / "closed").chmod(0o700)
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("how", ["kernel", "command"])
async def test_places_where_everybody_may_write_are_read_only(
    node: Node, open_directory: Path, how: str
) -> None:
    runtime = await node.start()
    program = (
        "import sys\ntry: open(sys.argv[1] + '/new', 'w')\nexcept OSError as error: "
        "print(error.strerror)"
    )
    assert await output_of(runtime, how, program, str(open_directory)) == "Read-only file system\n"


@pytest.mark.parametrize(
    ("isolated", "expected"), [(True, "Permission denied"), (False, "of a model")]
)
async def test_closed_files_are_for_administrators(
    node: Node, open_directory: Path, isolated: bool, expected: str
) -> None:
    runtime = await node.start()
    weights = f"{open_directory}/closed/weights"
    handle = await runtime.create(launch("cat", weights, paths=(weights,), isolated=isolated))
    await until_exited(runtime, handle)
    assert expected in await runtime.log_tail(handle)


@pytest.mark.parametrize(("how", "count"), [("kernel", 2), ("command", 3)])
async def test_it_is_among_the_processes_of_its_kernel(node: Node, how: str, count: int) -> None:
    """It sees process 1 and itself; a command also sees the main program."""
    runtime = await node.start()
    program = (
        "import os\n"
        "assert os.readlink('/proc/self') == str(os.getpid())\n"
        "print(len(list(filter(str.isdigit, os.listdir('/proc')))))"
    )
    assert await output_of(runtime, how, program) == f"{count}\n"


async def test_process_1_cannot_be_traced_or_read(node: Node) -> None:
    runtime = await node.start()
    program = (
        "import ctypes, os\n"
        "libc = ctypes.CDLL(None)\n"
        "found = [str(libc.ptrace(16, 1, 0, 0))]\n"
        "for name in ('mem', 'environ', 'maps', 'fd', 'root'):\n"
        "    try:\n"
        "        read = os.listdir if name in ('fd', 'root') else lambda path: open(path).read(9)\n"
        "        found.append(read(f'/proc/1/{name}'))\n"
        "    except PermissionError:\n"
        "        found.append('')\n"
        "print(found)"
    )
    assert await output_of(runtime, "kernel", program) == "['-1', '', '', '', '', '']\n"


async def test_kernels_share_a_limit_of_memory(node: Node) -> None:
    runtime = await node.start(memory=256 << 20)
    handle = await runtime.create(python(EAT, slots={}))
    assert (await until_exited(runtime, handle)).oom


async def test_rules_of_the_previous_release_end_with_its_kernels(node: Node) -> None:
    """These kernels have no network of their own."""

    def tables() -> str:
        return subprocess.run(
            ["nft", "list", "tables"], check=True, capture_output=True, text=True
        ).stdout

    table = f"moorage_{UIDS[0]}"
    subprocess.run(["nft", "add", "table", "inet", table], check=True)
    before = await node.start()
    assert table not in tables()
    handle = await before.create(launch("sleep", "600"))
    before.close()
    record = node.state / "kernels" / handle.state["kernel_id"] / "network"
    text = record.read_text()
    record.unlink()
    subprocess.run(["nft", "add", "table", "inet", table], check=True)
    after = await node.start()
    assert table in tables()
    record.write_text(text)
    after.close()
    last = await node.start()
    assert table not in tables()
    last.close()


async def test_next_agent_gives_the_uid_of_a_running_kernel_to_nobody_else(node: Node) -> None:
    uids = UIDS[:2]
    first, second = [name for name in "abcdefgh" if crc32(name.encode()) % len(uids) == 0][:2]
    before = await node.start(uids=uids)
    handle = await before.create(launch("sleep", "600", session=first))
    before.close()
    after = await node.start(uids=uids)
    other = await after.create(launch("sleep", "600", session=second))
    assert procfs.uid(handle.state["engine_pid"]) != procfs.uid(other.state["engine_pid"])


async def test_members_are_refused_where_the_trial_of_a_sandbox_fails(tmp_path: Path) -> None:
    isolation = KernelIsolation(tmp_path, IsolationRules(uids=UIDS))

    def attempt(sandbox: Sandbox, network: KernelNetwork) -> None:
        raise RuntimeFailed("no namespaces here", next_step="elsewhere")

    isolation.prepare(attempt)
    try:
        assert (isolation.problem, isolation.cure) == ("no namespaces here", "elsewhere")
        assert isolation.refuses(True)
        assert not isolation.refuses(False)
        assert not isolation.applies(True)
    finally:
        isolation.close()


async def test_members_are_refused_where_programs_fail_in_a_sandbox(tmp_path: Path) -> None:
    """These tests are here because their libraries are hidden."""
    rules = IsolationRules(uids=UIDS, hidden=("/usr",))
    logs = LogStore(tmp_path / "logs")
    runtime = ProcessRuntime(tmp_path, logs, log_max_bytes=9999, log_keep_files=1, isolation=rules)
    try:
        capabilities = await runtime.probe()
        assert not capabilities.isolates
        assert "a program in a sandbox on this node fails" in capabilities.detail
    finally:
        runtime.close()


async def test_damaged_record_of_a_sandbox_stops_neither_the_agent_nor_lets_commands_out(
    node: Node,
) -> None:
    before = await node.start()
    handle = await before.create(launch("sleep", "600"))
    (node.state / "kernels" / handle.state["kernel_id"] / "sandbox").write_text("")
    before.close()
    after = await node.start()
    with pytest.raises(ExecFailed, match="damaged"):
        await after.exec(handle, Command(("id",), {}, tty=False, stdin=False, rows=0, cols=0))

    await after.destroy(handle)
    assert await after.find() == {}
