"""A private Docker Engine for tests, with its own socket, data directory, containerd, bridge and
namespaces. It does not touch an installed engine or the firewall of the machine."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, ClassVar

from moorage.agent.runtimes import procfs
from tests.addresses import ENGINES, number

_HOOK = "#!/bin/sh\ncat > /dev/null\n"
_serials = itertools.count()


def missing_requirement() -> str:
    """The first missing requirement of a private engine, or "" if none is known."""
    if os.geteuid() != 0:
        return "a Docker Engine needs root"

    missing = [
        name for name in ("dockerd", "containerd", "runc", "ip", "ldd") if not shutil.which(name)
    ]
    if missing:
        return f"not installed: {', '.join(missing)} (make test-docker installs them on Debian)"
    if not Path("/sys/fs/cgroup").is_mount():
        return "no control groups are mounted at /sys/fs/cgroup"

    name = f"mgprobe{os.getpid()}"
    created = subprocess.run(
        ["ip", "link", "add", name, "type", "bridge"], capture_output=True, text=True
    )
    if created.returncode:
        return f"cannot create a bridge: {created.stderr.strip()}"

    subprocess.run(["ip", "link", "delete", name], check=False, capture_output=True)
    return ""


class PrivateEngine:
    """``gpus``: install a fake NVIDIA runtime. ``cdi``: directory of CDI specifications, which
    needs Docker
    25. ``programs``: directories with a different engine from the machine's. ``live_restore``:
        containers outlive the engine. ``data_mib``: size of the data directory, in memory.
        ``firewalled``: run in a network namespace with a firewall, like an installed engine; the
        tests cannot reach published ports then. ``networks``: maximum number of networks (a power
        of two), each with 16 addresses for 28 ``network_bits``."""

    # Addresses of engines that were not closed. With five in one process, the fifth once took the
    # bridge of the first.
    _used: ClassVar[set[int]] = set()

    def __init__(
        self,
        folder: Path,
        *,
        gpus: bool,
        live_restore: bool,
        data_mib: int = 0,
        firewalled: bool = False,
        networks: int = 64,
        network_bits: int = 28,
        cdi: Path | None = None,
        programs: tuple[Path, ...] = (),
    ) -> None:
        # The name is unique because it is also the namespace in containerd.
        folder = folder / f"engine-{os.getpid()}-{next(_serials)}"
        self.folder = folder
        self.socket = folder / "docker.sock"
        place = number(ENGINES, self._used)
        self._place = place
        self._used.add(place)
        self._bridge = f"mge{place}"

        # 198.18.0.0/15 is reserved for benchmarks (RFC 2544), so no real network uses it.
        self._address = f"198.18.{place}.1/24"
        self._bin = folder / "bin"
        self._bin.mkdir(parents=True)

        if gpus:
            hook = self._bin / "nvidia-container-runtime-hook"
            hook.write_text(_HOOK)
            hook.chmod(0o755)

        self.data = folder / "data"
        if data_mib:
            self.data.mkdir()
            argv = [
                "mount",
                "-t",
                "tmpfs",
                "-o",
                f"size={data_mib}m,mode=711",
                "tmpfs",
                str(self.data),
            ]
            subprocess.run(argv, check=True, capture_output=True)

        self._options = ["--live-restore"] if live_restore else []
        config: dict[str, object] = {"deprecated-key-path": str(folder / "key.json")}
        if cdi is not None:
            config |= {"features": {"cdi": True}, "cdi-spec-dirs": [str(cdi)]}

        self._programs = ":".join(map(str, (self._bin, *programs)))
        (folder / "daemon.json").write_text(json.dumps(config))
        self._process: subprocess.Popen[bytes] | None = None
        self._walled = firewalled

        # The other half of that range, divided among the places; larger networks extend into the
        # parts of other places.
        size = network_bits - (networks - 1).bit_length()
        base = ipaddress.ip_network(f"198.19.{place * 256 // len(ENGINES)}.0/{size}", strict=False)
        self._options += ["--default-address-pool", f"base={base},size={network_bits}"]
        if firewalled:
            return

        # Left by a killed test.
        subprocess.run(["ip", "link", "delete", self._bridge], check=False, capture_output=True)
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("address", "add", self._address, "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def api(self) -> Any:
        """A client of the Docker SDK, independent of the runtime. The caller closes it."""
        import docker

        return docker.APIClient(base_url=f"unix://{self.socket}", timeout=60)

    def start(self) -> None:
        folder = self.folder
        # Left by a killed engine. If orphans are not reaped, the pid would look alive.
        for name in ("docker.pid", "x/containerd/containerd.pid"):
            (folder / name).unlink(missing_ok=True)

        argv = [
            "dockerd",
            *("--config-file", f"{folder}/daemon.json", "--host", f"unix://{self.socket}"),
            *("--data-root", f"{folder}/data", "--exec-root", f"{folder}/x"),
            *("--pidfile", f"{folder}/docker.pid", *self._options),
            *(
                "--containerd-namespace",
                folder.name,
                "--containerd-plugins-namespace",
                f"p-{folder.name}",
            ),
        ]
        if self._walled:
            argv = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *argv]
        else:
            argv += ["--bridge", self._bridge, "--iptables=false", "--ip6tables=false"]
            argv += ["--ip-masq=false", "--ip-forward=false"]

        env = os.environ | {"PATH": f"{self._programs}:{os.environ['PATH']}"}
        with (folder / "dockerd.log").open("ab") as log:
            self._process = subprocess.Popen(
                argv, env=env, stdout=log, stderr=log, start_new_session=True
            )

        end = time.monotonic() + 30
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop(signal.SIGKILL)
                output = (folder / "dockerd.log").read_text()[-2000:]
                raise RuntimeError(f"dockerd did not start:\n{output}")

            time.sleep(0.05)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the engine. Its containers keep running with live-restore."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None
            end = time.monotonic() + 10
            while self._remaining("containerd") and time.monotonic() < end:  # it exits with dockerd
                time.sleep(0.02)

    def close(self) -> None:
        """Stop the containers, the engine and all remaining processes, and delete the directory."""
        if self._answers():
            self._remove_containers()

        self.stop()
        end = time.monotonic() + 10
        while (remaining := self._remaining()) and time.monotonic() < end:
            # The container of a killed shim keeps running: also kill the children.
            children = [
                stat.pid
                for pid in procfs.pids()
                if (stat := procfs.stat(pid)) and stat.ppid in remaining
            ]
            for pid in (*children, *remaining):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

            time.sleep(0.05)

        if not self._walled:
            _ip("link", "delete", self._bridge)

        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for mount in reversed([mount for mount in mounts if mount.startswith(f"{self.folder}/")]):
            subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)

        shutil.rmtree(self.folder)
        self._used.discard(self._place)

    def _answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(2)
                probe.connect(str(self.socket))
                probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                return b" 200 " in probe.recv(64)
        except OSError:
            return False

    def _remove_containers(self) -> None:
        with contextlib.closing(self.api()) as api:
            for container in api.containers(all=True):
                api.remove_container(container["Id"], force=True, v=True)
            for network in api.networks():
                if network["Name"] not in ("bridge", "host", "none"):
                    api.remove_network(network["Id"])

    def _remaining(self, program: str = "") -> list[int]:
        """Pids of containerd and its shims, which may outlive a killed engine. Their arguments
        contain the directory of the engine."""
        found = []
        for pid in procfs.pids():
            with contextlib.suppress(OSError):
                argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                stat = procfs.stat(pid)
                ours = any(argument.startswith(bytes(self.folder)) for argument in argv)
                ours &= not program or os.path.basename(argv[0]) == program.encode()
                if ours and stat is not None and stat.alive:
                    found.append(pid)

        return found


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
