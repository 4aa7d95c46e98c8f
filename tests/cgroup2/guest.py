"""Process 1 of the virtual machine: makes it a node with only cgroup v2, runs the tests, and powers
it off.

``/tests.json`` lists what to load and run. The standard library only.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys

RESULT = "the tests in the virtual machine ended with"
_MOUNTS = (
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", ""),
    ("devpts", "/dev/pts", "ptmxmode=666"),
    ("tmpfs", "/dev/shm", ""),
    ("tmpfs", "/run", "mode=755"),
    ("cgroup2", "/sys/fs/cgroup", ""),
)
_FINIT_MODULE = 313
_SIOCSIFFLAGS = 0x8914
_UP = 1
_POWER_OFF = 0x4321FEDC
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _set_up(modules: list[str]) -> None:
    for kind, target, options in _MOUNTS:
        os.makedirs(target, exist_ok=True)
        _check(
            _libc.mount(kind.encode(), target.encode(), kind.encode(), 0, options.encode()), target
        )

    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(f"/proc/self/{target}", f"/dev/{name}")
    for folder in ("/tmp", "/var/tmp"):
        os.makedirs(folder, exist_ok=True)
        os.chmod(folder, 0o1777)

    for module in modules:
        fd = os.open(module, os.O_RDONLY | os.O_CLOEXEC)
        _check(_libc.syscall(_FINIT_MODULE, fd, b"", 0), module)
        os.close(fd)

    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _UP))


def main() -> None:
    status: object = "no test"
    try:
        with open("/tests.json") as file:
            task = json.load(file)

        _set_up(task["modules"])
        status = subprocess.run(task["argv"], env=task["env"], cwd=task["cwd"]).returncode
    except (OSError, ValueError, KeyError) as error:
        status = repr(error)

    print(f"\n{RESULT} {status}", flush=True)
    sys.stdout.flush()
    _libc.reboot(_POWER_OFF)


if __name__ == "__main__":
    main()
