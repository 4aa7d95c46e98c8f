"""A Docker Engine of the tests' own: its own socket, data, containerd, bridge and name spaces. An engine that
is already on the machine is never spoken to, and the machine's firewall is not changed."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from moorage.agent.runtimes import procfs

_HOOK = "#!/bin/sh\ncat > /dev/null\n"
_numbers = itertools.count()


def lacks() -> str:
    """Why no engine of our own can be run on this machine; "" if nothing is known."""
    if os.geteuid() != 0:
        return "it takes root to run a Docker Engine"
    missing = [name for name in ("dockerd", "containerd", "runc", "ip", "ldd") if not shutil.which(name)]
    if missing:
        return f"not installed: {', '.join(missing)} (make test-docker installs them on Debian)"
    if not Path("/sys/fs/cgroup").is_mount():
        return "no control groups are mounted at /sys/fs/cgroup"
    name = f"mgprobe{os.getpid()}"
    made = subprocess.run(["ip", "link", "add", name, "type", "bridge"], capture_output=True, text=True)
    if made.returncode:
        return f"no bridge can be made: {made.stderr.strip()}"
    subprocess.run(["ip", "link", "delete", name], check=False, capture_output=True)
    return ""


class PrivateEngine:
    """``gpus``: the engine believes in the NVIDIA runtime (a stand-in: it proves nothing about drivers).
    ``live_restore``: its containers outlive it. ``data_mib``: its disk, in memory, is so large. ``walled``:
    in a network of its own, with a firewall, as an engine is installed; nothing it publishes is reached by
    the tests. ``networks``: so many can be made (a power of two),
    each of 16 addresses with 28 ``network_bits``."""

    def __init__(
        self,
        folder: Path,
        *,
        gpus: bool,
        live_restore: bool,
        data_mib: int = 0,
        walled: bool = False,
        networks: int = 64,
        network_bits: int = 28,
    ) -> None:
        number = next(_numbers)
        # Its name is that of a name space in containerd too, should ours find one on the machine.
        self.folder = folder = folder / f"engine-{os.getpid()}-{number}"
        self.socket = folder / "docker.sock"
        self._bridge = f"mg{os.getpid()}x{number}"
        # 198.18.0.0/15 is set aside for measurements: nobody's network.
        self._address = f"198.18.{(os.getpid() + number) % 256}.1/24"
        self._bin = folder / "bin"
        self._bin.mkdir(parents=True)
        if gpus:
            hook = self._bin / "nvidia-container-runtime-hook"
            hook.write_text(_HOOK)
            hook.chmod(0o755)
        self.data = folder / "data"
        if data_mib:
            self.data.mkdir()
            words = ["mount", "-t", "tmpfs", "-o", f"size={data_mib}m,mode=711", "tmpfs", str(self.data)]
            subprocess.run(words, check=True, capture_output=True)
        self._more = ["--live-restore"] if live_restore else []
        config = {"deprecated-key-path": str(folder / "key.json")}
        (folder / "daemon.json").write_text(json.dumps(config))
        self._process: subprocess.Popen[bytes] | None = None
        self._walled = walled
        # Of the other half of that range.
        size = network_bits - (networks - 1).bit_length()
        self._more += ["--default-address-pool", f"base=198.19.0.0/{size},size={network_bits}"]
        if walled:
            return
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("address", "add", self._address, "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")

    @property
    def runs(self) -> bool:
        return self._process is not None

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def api(self) -> Any:
        """Docker's own client, to look at what was made behind the runtime's back; close it."""
        import docker

        return docker.APIClient(base_url=f"unix://{self.socket}", timeout=60)

    def start(self) -> None:
        folder = self.folder
        # A killed one leaves these, and where nobody reaps orphans the number seems to be alive.
        for left in ("docker.pid", "x/containerd/containerd.pid"):
            (folder / left).unlink(missing_ok=True)
        words = [
            "dockerd",
            *("--config-file", f"{folder}/daemon.json", "--host", f"unix://{self.socket}"),
            *("--data-root", f"{folder}/data", "--exec-root", f"{folder}/x"),
            *("--pidfile", f"{folder}/docker.pid", *self._more),
            *("--containerd-namespace", folder.name, "--containerd-plugins-namespace", f"p-{folder.name}"),
        ]
        if self._walled:
            words = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *words]
        else:
            words += ["--bridge", self._bridge, "--iptables=false", "--ip6tables=false"]
            words += ["--ip-masq=false", "--ip-forward=false"]
        env = os.environ | {"PATH": f"{self._bin}:{os.environ['PATH']}"}
        with (folder / "dockerd.log").open("ab") as log:
            self._process = subprocess.Popen(words, env=env, stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + 30
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop(signal.SIGKILL)
                said = (folder / "dockerd.log").read_text()[-2000:]
                raise RuntimeError(f"dockerd did not start:\n{said}")
            time.sleep(0.05)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the engine, and with SIGKILL as rudely as that; its containers go on."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None
            end = time.monotonic() + 10
            while self._left("containerd") and time.monotonic() < end:  # it dies with its dockerd
                time.sleep(0.02)

    def close(self) -> None:
        """End its containers, itself, and whatever of it is left, each by its number."""
        if self._answers():
            self._remove_containers()
        self.stop()
        end = time.monotonic() + 10
        while (left := self._left()) and time.monotonic() < end:
            # A shim that dies does not take its container along.
            inside = [now.pid for pid in procfs.pids() if (now := procfs.stat(pid)) and now.ppid in left]
            for pid in (*inside, *left):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        if not self._walled:
            _ip("link", "delete", self._bridge)
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for mount in reversed([mount for mount in mounts if mount.startswith(f"{self.folder}/")]):
            subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
        shutil.rmtree(self.folder)

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

    def _left(self, program: str = "") -> list[int]:
        """containerd and its shims, which may outlive an engine that was killed: they name our folder."""
        found = []
        for pid in procfs.pids():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                now = procfs.stat(pid)
                ours = any(word.startswith(bytes(self.folder)) for word in words)
                ours &= not program or os.path.basename(words[0]) == program.encode()
                if ours and now is not None and now.alive:
                    found.append(pid)
        return found


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
