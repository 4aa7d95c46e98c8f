"""Stand-in for systemctl on machines without systemd: it runs the units in /etc/systemd/system.

Understands the commands in docs/cluster.md and deploy/join.sh: ``start``, ``stop``, ``restart``,
``reload``, ``enable [--now]``, ``disable``, and Debian's Postgres units. A unit's output goes to
/var/log/units.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

UNITS = Path("/etc/systemd/system")
RUNNING = Path("/run/units")
LOGS = Path("/var/log/units")


def values(unit: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit.read_text(), re.MULTILINE)


def environment(unit: Path) -> dict[str, str]:
    env = {"PATH": os.environ["PATH"], "INVOCATION_ID": os.urandom(8).hex(), "HOME": "/root"}
    lines = [word for line in values(unit, "Environment") for word in shlex.split(line)]
    for file in values(unit, "EnvironmentFile"):
        path = Path(file.removeprefix("-"))
        if path.exists() or not file.startswith("-"):
            lines += [
                line for line in path.read_text().splitlines() if line and not line.startswith("#")
            ]
    return env | dict(line.split("=", 1) for line in lines)


def start(name: str) -> int:
    if match := re.fullmatch(r"postgresql@(\d+)-(\w+)", name):
        return subprocess.call(["pg_ctlcluster", match[1], match[2], "start"])
    if name.endswith(".timer"):
        return 0
    if runs(name):
        return 0

    unit = UNITS / f"{name}.service"
    env = environment(unit)
    for directory in values(unit, "StateDirectory"):
        state = Path("/var/lib", directory)
        state.mkdir(mode=0o700, exist_ok=True)
        # as systemd does, for the user that the unit runs as: here, it is always root, because
        # others may not be able to read the tree under test
        subprocess.run(["chown", "-R", "0:0", str(state)], check=True)

    [command] = values(unit, "ExecStart")
    words = [
        re.sub(r"\$\{(\w+)\}", lambda match: env[match[1]], word) for word in shlex.split(command)
    ]
    LOGS.mkdir(parents=True, exist_ok=True)

    with (LOGS / f"{name}.log").open("ab") as log:
        if values(unit, "Type") == ["oneshot"]:
            return subprocess.call(words, env=env, cwd="/", stdout=log, stderr=log)

        process = subprocess.Popen(
            words, env=env, cwd="/", stdout=log, stderr=log, start_new_session=True
        )

    (RUNNING / name).write_text(str(process.pid))
    return 0


def runs(name: str) -> bool:
    try:
        stat = Path("/proc", (RUNNING / name).read_text(), "stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def stop(name: str) -> int:
    if match := re.fullmatch(r"postgresql@(\d+)-(\w+)", name):
        return subprocess.call(["pg_ctlcluster", match[1], match[2], "stop"])
    file = RUNNING / name
    if file.exists():
        pid = int(file.read_text())
        end(pid, signal.SIGTERM)
        file.unlink()
    return 0


def end(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
        deadline = time.monotonic() + 60
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
    except (ProcessLookupError, FileNotFoundError):
        pass


def stop_everything() -> int:
    """Also stops processes that daemons leave behind: every process whose files belong to this
    machine."""
    own = os.stat("/proc/self/ns/mnt").st_ino
    if not RUNNING.is_dir():
        sys.exit("this is no machine of tests.cluster.machines")

    for name in sorted(file.name for file in RUNNING.iterdir()):
        stop(name)

    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.stat(process / "ns/mnt").st_ino != own or int(process.name) == os.getpid():
                continue
            if (process / "cmdline").read_bytes() != b"sleep\0infinity\0":
                os.kill(int(process.name), signal.SIGKILL)
        except (ProcessLookupError, FileNotFoundError, PermissionError):
            continue

    return 0


def main(verb: str, *words: str) -> int:
    names = [word.removesuffix(".service") for word in words if not word.startswith("-")]
    if verb == "stop-everything":
        return stop_everything()
    if verb in ("disable", "daemon-reload") or (verb == "enable" and "--now" not in words):
        return 0
    actions = {"start": [start], "enable": [start], "stop": [stop], "restart": [stop, start]}
    return max(action(name) for name in names for action in actions[verb])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
