"""A hostile kernel: tries to reach resources that are not its own, and prints the outcome of each
attack as JSON.

Run as ``python hostile.py TARGETS``; TARGETS is JSON. Uses the standard library only, because it
also runs inside images. An outcome is the reason why the attack failed, or starts with SUCCEEDED.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

CLONE_NEWUSER = 0x10000000
PTRACE_ATTACH = 16
KEYCTL = {"x86_64": 250, "aarch64": 219}
SUCCEEDED = "SUCCEEDED"
libc = ctypes.CDLL(None, use_errno=True)


def outcome(attack: Callable[[], object]) -> str:
    try:
        result = attack()
    except OSError as error:
        return f"{type(error).__name__}: {error.strerror or error}"
    return f"{SUCCEEDED}: {result!r}"[:200]


def call(name: str, *arguments: Any) -> int:
    result = int(getattr(libc, name)(*arguments))
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def read(path: str) -> object:
    if os.path.isdir(path):
        return os.listdir(path)
    with open(path, "rb") as file:
        return file.read(200)


def write(path: str) -> object:
    with open(path, "a") as file:
        return file.write("1")


def connect(address: Any) -> object:
    if isinstance(address, str):
        family = socket.AF_UNIX
    else:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family) as client:
        client.settimeout(1)
        client.connect(address if isinstance(address, str) else tuple(address))
        return client.getsockname()


def memory_of(pid: int) -> object:
    with open(f"/proc/{pid}/maps") as maps:
        start = int(maps.readline().split("-")[0], 16)
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(start)
        return memory.read(16)


def fork_without_end() -> object:
    children: list[int] = []
    try:
        while len(children) < 2_000:
            pid = os.fork()
            if pid == 0:
                time.sleep(60)
                os._exit(0)

            children.append(pid)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    return f"{len(children)} children"


def take_memory() -> object:
    """In a child, which Linux kills."""
    pid = os.fork()
    if pid == 0:
        taken = bytearray(1 << 30)
        taken[::4096] = b"1" * len(taken[::4096])
        os._exit(0)

    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        raise OSError(f"killed by signal {os.WTERMSIG(status)}")

    return "1 GiB"


def new_user_namespace() -> object:
    return call("unshare", CLONE_NEWUSER)


def become_root() -> object:
    if os.getuid() == 0:
        raise OSError("already the root of the image")
    return os.setuid(0)


def capabilities() -> object:
    with open("/proc/self/status") as file:
        status = dict(line.split(":\t") for line in file.read().splitlines() if ":\t" in line)
    held = {name: status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    if status["NoNewPrivs"] != "1" or any(int(value, 16) for value in held.values()):
        return held
    raise OSError("no capabilities, and no new privileges")


def foreign_processes() -> object:
    """Processes that are not in this process's pid namespace."""
    own = os.stat("/proc/self/ns/pid").st_ino
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}/ns/pid").st_ino != own:
                found.append(name)
        except OSError:
            if name != "1":  # process 1 is the supervisor inside, which cannot be examined
                found.append(name)

    if found:
        return found

    raise OSError("only processes of the session are visible")


def attacks(targets: dict[str, Any]) -> dict[str, Callable[[], object]]:
    found: dict[str, Callable[[], object]] = {
        "become root": become_root,
        "capabilities": capabilities,
        "user namespace": new_user_namespace,
        "processes of others": foreign_processes,
        "mount": lambda: call("mount", b"none", b"/mnt", b"tmpfs", 0, None),
        "raw socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close(),
        "device": lambda: os.mknod("device", 0o600 | 0o60000, os.makedev(8, 0)),
        "keyring": lambda: call("syscall", KEYCTL[os.uname().machine], 0, -3, 0),
        "link to a file of root": lambda: os.link("/etc/shadow", "shadow"),
        "fork without end": fork_without_end,
    }
    if targets["memory"]:
        found["take memory"] = take_memory

    for path in targets["files"]:
        found[f"read {path}"] = lambda path=path: read(path)  # type: ignore[misc]
    for path in targets["writes"]:
        found[f"write {path}"] = lambda path=path: write(path)  # type: ignore[misc]

    for pid in targets["pids"]:
        found[f"environment of {pid}"] = lambda pid=pid: read(f"/proc/{pid}/environ")  # type: ignore[misc]
        found[f"files of {pid}"] = lambda pid=pid: read(f"/proc/{pid}/cwd")  # type: ignore[misc]
        found[f"memory of {pid}"] = lambda pid=pid: memory_of(pid)  # type: ignore[misc]
        found[f"trace {pid}"] = lambda pid=pid: call("ptrace", PTRACE_ATTACH, pid, 0, 0)  # type: ignore[misc]
        found[f"signal {pid}"] = lambda pid=pid: os.kill(pid, signal.SIGTERM)  # type: ignore[misc]

    for address in targets["addresses"]:
        found[f"connect to {address}"] = lambda address=address: connect(address)  # type: ignore[misc]

    return found


def main() -> None:
    targets = json.loads(sys.argv[1])
    print(json.dumps({name: outcome(attack) for name, attack in attacks(targets).items()}))


if __name__ == "__main__":
    main()
