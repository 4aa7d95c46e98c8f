"""The sandbox of process kernels: system calls, mounts, limits, uids, refusals."""

from __future__ import annotations

import errno
import marshal
import os
import struct
from pathlib import Path

import pytest

from moorage.agent.runtimes import CreateFailed, Launch, ProcessRuntime
from moorage.agent.runtimes.host_names import hosts_file, resolve_hosts
from moorage.agent.runtimes.process.control_groups import Hierarchy, limits, parse_mounts
from moorage.agent.runtimes.process.isolation import mount_plan
from moorage.agent.runtimes.process.sandbox import Sandbox
from moorage.agent.runtimes.process.system_calls import deny_filter
from moorage.agent.runtimes.process.uids import KernelUids
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import SystemClock
from moorage.common.model.ids import KernelId
from moorage.common.model.reasons import Reason

ALLOW = 0x7FFF0000
EPERM = 0x00050000 | errno.EPERM
ENOSYS = 0x00050000 | errno.ENOSYS
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def verdict(machine: str, number: int, first: int = 0, arch: int | None = None) -> int:
    """Runs the filter as Linux would."""
    program = list(struct.iter_unpack("=HBBI", deny_filter(machine)))
    data = struct.pack("=IIQQ", number, AUDIT_ARCH[machine] if arch is None else arch, 0, first)
    at = register = 0
    while True:
        code, if_true, if_false, value = program[at]
        at += 1
        if code == 0x06:
            return int(value)
        if code == 0x20:
            register = struct.unpack_from("=I", data, value)[0]
            continue

        holds = {0x15: register == value, 0x35: register >= value, 0x45: bool(register & value)}[
            code
        ]
        at += if_true if holds else if_false


def test_hosts_of_a_cluster_come_before_those_of_the_node() -> None:
    addresses = resolve_hosts({"main1": "192.0.2.1", "sub1": "2001:db8::1"})
    text = hosts_file(addresses, "127.0.0.1 localhost\n192.0.2.9 main1\n")
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "192.0.2.1 main1",
        "2001:db8::1 sub1",
        "127.0.0.1 localhost",
        "192.0.2.9 main1",
    ]


@pytest.mark.parametrize(("hosts", "fields"), [("", 8), ("/var/lib/moorage/kernels/k/hosts", 9)])
def test_agent_of_the_previous_release_reads_a_sandbox_without_hosts(
    hosts: str, fields: int
) -> None:
    sandbox = Sandbox(
        "one",
        1,
        ("g",),
        "m",
        empty=("/tmp",),
        visible=("/usr",),
        writable=("/w", "/w"),
        system_calls=b"filter",
        hosts=hosts,
    )
    encoded = sandbox.encode()
    assert vars(Sandbox.decode(encoded)) == vars(sandbox)
    assert len(marshal.loads(bytes.fromhex(encoded))) == fields


@pytest.mark.parametrize(
    ("machine", "number", "first", "expected"),
    [
        ("x86_64", 0, 0, ALLOW),  # read
        ("x86_64", 59, 0, ALLOW),  # execve
        ("x86_64", 272, 0x10000000, EPERM),  # unshare
        ("x86_64", 165, 0, EPERM),  # mount
        ("x86_64", 425, 0, EPERM),  # io_uring_setup
        ("x86_64", 56, 17, ALLOW),  # clone, as fork does it
        ("x86_64", 56, 0x3D0F00, ALLOW),  # clone, as threads do it
        ("x86_64", 56, 0x10000011, EPERM),  # clone with CLONE_NEWUSER
        ("x86_64", 435, 0, ENOSYS),  # clone3
        ("x86_64", 0x40000000 + 272, 0, EPERM),  # x32
        ("aarch64", 63, 0, ALLOW),  # read
        ("aarch64", 97, 0x10000000, EPERM),  # unshare
        ("aarch64", 220, 0x10000011, EPERM),  # clone
        ("aarch64", 272, 0, ALLOW),  # kcmp: unshare elsewhere
    ],
)
def test_system_calls(machine: str, number: int, first: int, expected: int) -> None:
    assert verdict(machine, number, first) == expected


def test_system_calls_of_another_architecture_are_refused() -> None:
    assert verdict("x86_64", 1, arch=0x40000003) == EPERM  # i386


def test_needed_paths_are_mounted_again_where_their_place_is_hidden(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    for name in ("home/keys", "private/python/lib", "private/secrets", "open/tool"):
        (root / name).mkdir(parents=True)
    (root / "link").symlink_to(root / "private/python")
    needed = (f"{root}/link", f"{root}/private/python/lib", f"{root}/open/tool", f"{root}/missing")
    empty, visible = mount_plan((f"{root}/home",), needed, lambda path: path == f"{root}/private")
    assert empty == (f"{root}/home", f"{root}/private")
    assert visible == (f"{root}/private/python",)


V1 = """30 25 0:26 / /cg/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
31 25 0:27 / /cg/memory rw - cgroup cgroup rw,memory
32 25 0:28 / /cg/pids rw - cgroup cgroup rw,pids
33 25 0:29 / /cg/unified rw - cgroup2 cgroup2 rw
"""


def test_hierarchies() -> None:
    found = parse_mounts(V1, "cpuset cpu io memory pids")
    assert found == (
        Hierarchy(Path("/cg/unified"), frozenset({"memory", "pids", "cpu"}), unified=True),
    )

    # A v2 tree without controllers beside v1.
    found = parse_mounts(V1, "hugetlb")
    assert [(str(h.root), sorted(h.controllers)) for h in found] == [
        ("/cg/cpu,cpuacct", ["cpu"]),
        ("/cg/memory", ["memory"]),
        ("/cg/pids", ["pids"]),
    ]
    assert parse_mounts(V1.replace("pids", "freezer"), "hugetlb") == ()


def test_limits() -> None:
    [unified] = parse_mounts(V1, "memory pids cpu")
    slots = {"mem": 64 << 20, "cpu": 250}
    assert limits(unified, slots, 99, no_swap=True) == (
        ("memory.oom.group", "1"),
        ("memory.max", str(64 << 20)),
        ("memory.swap.max", "0"),
        ("pids.max", "99"),
        ("cpu.max", "25000 100000"),
    )
    old = [limit for h in parse_mounts(V1, "") for limit in limits(h, slots, 99, no_swap=True)]
    assert old == [
        ("cpu.cfs_quota_us", "25000"),
        ("memory.limit_in_bytes", str(64 << 20)),
        ("memory.memsw.limit_in_bytes", str(64 << 20)),
        ("pids.max", "99"),
    ]
    assert limits(unified, {}, 99, no_swap=False) == (("memory.oom.group", "1"), ("pids.max", "99"))


def test_uid_belongs_to_one_session_until_its_kernels_are_gone(tmp_path: Path) -> None:
    uids = KernelUids(range(5000, 5002), tmp_path / "kept")
    first = uids.acquire(KernelId("k1"), "one")
    assert uids.acquire(KernelId("k2"), "one") == first
    second = uids.acquire(KernelId("k3"), "two")
    assert {first, second} == {5000, 5001}
    uids.release(KernelId("k1"))
    with pytest.raises(CreateFailed, match="all 2 uids"):
        uids.acquire(KernelId("k4"), "three")

    uids.release(KernelId("k2"))
    assert uids.acquire(KernelId("k4"), "three") == first
    restarted = KernelUids(range(5000, 5002), tmp_path / "kept")
    restarted.load({KernelId("k3"): ("two", second)})
    assert restarted.acquire(KernelId("k5"), "five") == first


def test_uid_of_a_kept_workspace_stays_with_its_session(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    own = os.getuid()
    uids = KernelUids(range(own, own + 2), tmp_path)
    assert uids.acquire(KernelId("k1"), "two") == own + 1
    assert uids.acquire(KernelId("k2"), "one") == own


async def test_member_is_refused_where_kernels_cannot_be_isolated(tmp_path: Path) -> None:
    # Never probed, so nothing is known to work.
    runtime = ProcessRuntime(
        tmp_path, LogStore(tmp_path / "logs"), log_max_bytes=10_000, log_keep_files=1
    )
    launch = Launch(KernelId(SystemClock().new_id()), ("true",), {}, isolated=True)
    with pytest.raises(CreateFailed) as caught:
        await runtime.create(launch)
    assert (caught.value.reason, caught.value.clean) == (Reason.NOT_ISOLATED, True)
    assert await runtime.find() == {}
