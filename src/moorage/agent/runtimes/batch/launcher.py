"""Launcher of a kernel inside a batch job: a standalone program that runs on the site's node.

    python3 launcher.py DIRECTORY

DIRECTORY is on a file system that the node shares with the agent. ``spec.json`` there specifies the
program. The launcher chooses free ports and writes them to ``started.json``, the output to log
files, and the outcome to ``exit.json``. It stops the program on SIGTERM, with the grace period in
``grace`` if that file exists. It also stops the program if the agent's heartbeat file has not
changed for too long, because then no agent is left to cancel the job.

It uses only the standard library and supports Python 3.7 or later, because the site's node may lack
the agent's packages. ``kernel_log.py`` beside it is a copy of ``agent/state/log_writer.py``.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

if __name__ == "__main__":
    from kernel_log import Log  # type: ignore[import-not-found]
else:
    from moorage.agent.state.log_writer import Log

_TICK_S = 0.5
_PORT_TOKEN = "@MOORAGE_PORT@"
# After the program has exited, the launcher does not wait for more output from background
# processes.
_DRAIN_S = 1.0


class Heartbeat:
    """A watch on a file that the agent changes. Only changes matter, because the nodes' clocks may
    differ."""

    def __init__(self, path: str, timeout_s: float) -> None:
        self.path = path
        self.timeout_s = timeout_s
        self.seen: Any = None
        self.changed_at = time.monotonic()

    def is_over(self) -> bool:
        if not self.timeout_s:
            return False

        try:
            with open(self.path) as file:
                now: Any = file.read()
        except OSError:
            now = self.seen

        if now != self.seen:
            self.changed_at = time.monotonic()
            self.seen = now

        return time.monotonic() - self.changed_at > self.timeout_s


class Program:
    def __init__(self, folder: str, spec: dict[str, Any]) -> None:
        self.folder = folder
        self.spec = spec
        self.log = Log(folder, spec["log_max_bytes"], spec["log_keep_files"])
        self.heartbeat = Heartbeat(spec["heartbeat"], spec["heartbeat_s"])
        self.deadline: float | None = None
        self.reason = ""
        self.terms = 0

    def run(self) -> int:
        spec = self.spec
        tokens = self.spec.get("ports", {})
        free = free_ports(1 + len(tokens))
        port = free.pop() if spec["serves"] else 0
        ports = {name: free.pop() for name in tokens}
        values = {_PORT_TOKEN: port}
        values.update({token: ports[name] for name, token in tokens.items()})
        # Left by a run from before the site requeued the job.
        for mark in ("started.json", "exit.json"):
            if os.path.exists(os.path.join(self.folder, mark)):
                os.unlink(os.path.join(self.folder, mark))

        work = os.path.join(self.folder, "work")
        for path, text, mode in spec["files"]:
            write_private(os.path.join(work, path), text, mode)

        argv = [fill(word, values) for word in spec["argv"]]
        env = dict(os.environ)
        env.update({name: fill(value, values) for name, value in spec["env"].items()})
        wakeup, self.wakeup = os.pipe()
        os.set_blocking(self.wakeup, False)
        signal.set_wakeup_fd(self.wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self.on_term)
        ooms = oom_kills()

        try:
            process = subprocess.Popen(
                argv,
                env=env,
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self.end(None, f"cannot run {argv[0]!r}: {error.strerror}", never_started=True)
            return 127

        started = {"host": own_address(spec["agent"]), "port": port, "node": socket.gethostname()}
        started["ports"] = ports
        self.write("started.json", started)
        code = self.watch(process, wakeup)
        kill(process.pid, signal.SIGKILL)  # the program's remaining processes
        self.end(code, self.reason, oom=oom_kills() > ooms)

        return code if code >= 0 else 128 - code

    def watch(self, process: subprocess.Popen[bytes], wakeup: int) -> int:
        assert process.stdout is not None
        output = process.stdout.fileno()
        os.set_blocking(output, False)
        open_output = True
        exited_at = 0.0
        while True:
            readable = select.select([wakeup] + ([output] if open_output else []), [], [], _TICK_S)[
                0
            ]
            if wakeup in readable:
                os.read(wakeup, 512)

            if output in readable:
                data = os.read(output, 65536)
                open_output = bool(data)
                self.log.write(data)

            if process.poll() is None:
                self.check(process.pid)
                continue

            exited_at = exited_at or time.monotonic()
            if not open_output or (output not in readable and time.monotonic() - exited_at > 0.05):
                return process.returncode
            if time.monotonic() - exited_at > _DRAIN_S:
                return process.returncode

    def check(self, pid: int) -> None:
        if not self.reason and self.heartbeat.is_over():
            self.reason = "no-contact"
            self.terms += 1

        while self.terms:
            self.terms -= 1
            self.reason = self.reason or "terminated"
            ends_at = time.monotonic() + self.grace_s()
            self.deadline = ends_at if self.deadline is None else min(self.deadline, ends_at)
            kill(pid, signal.SIGTERM)

        if self.deadline is not None and time.monotonic() >= self.deadline:
            kill(pid, signal.SIGKILL)

    def grace_s(self) -> float:
        try:
            with open(os.path.join(self.folder, "grace")) as file:
                return float(file.read())
        except (OSError, ValueError):
            return float(self.spec["stop_grace_s"])

    def on_term(self, number: int, frame: Any) -> None:
        self.terms += 1

    def end(
        self, code: int | None, reason: str, never_started: bool = False, oom: bool = False
    ) -> None:
        end = {"code": code, "reason": reason, "never_started": never_started, "oom": oom}
        self.write("exit.json", dict(end, at=time.time()))

    def write(self, name: str, value: dict[str, Any]) -> None:
        write_private(os.path.join(self.folder, name), json.dumps(value), 0o600)


def oom_kills() -> int:
    """The number of processes in the job's control group that Linux has killed for lack of memory.
    0 if the site has no control groups."""
    for line in read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            counters = read(f"/sys/fs/cgroup{path}/memory.events")
        elif "memory" in controllers.split(","):
            counters = read(f"/sys/fs/cgroup/memory{path}/memory.oom_control")
        else:
            continue

        for counter in counters.splitlines():
            if counter.startswith("oom_kill "):
                return int(counter.split()[1])

    return 0


def read(path: str) -> str:
    """The file's text; empty if it cannot be read."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def write_private(path: str, text: str, mode: int) -> None:
    """Write a file atomically, so that a reader on another node never sees part of it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{os.getpid()}.{threading.get_ident()}.tmp"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def fill(text: str, values: dict[str, int]) -> str:
    for token, port in values.items():
        text = text.replace(token, str(port))
    return text


def free_ports(count: int) -> list[int]:
    """Distinct ports on this node on which no program listens."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def own_address(peer: str) -> str:
    """This node's address on the route to the agent. Nothing is sent."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, proto) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()


def kill(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def main() -> int:
    folder = sys.argv[1]
    with open(os.path.join(folder, "spec.json")) as file:
        spec = json.load(file)
    return Program(folder, spec).run()


if __name__ == "__main__":
    sys.exit(main())
