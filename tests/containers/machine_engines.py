"""A Docker Engine on each of several machines, which are namespaces (``tests.cluster.machines``),
with the first machine's images. ``docker compose`` is available; other ``docker`` commands are
not."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.cluster.machines import Machines

_DOCKER = """#!/bin/sh
test "$1" = compose || {{ echo "only docker compose is here" >&2; exit 1; }}
shift
exec {compose} "$@"
"""
# Engines look for shared mounts.
_SETUP = """install -d /var/lib/docker {data}
mount --bind {data} /var/lib/docker
mount --make-shared /var/lib/docker
"""
_DOCKERD = (
    *("dockerd", "--host", "unix:///run/docker.sock", "--iptables=false", "--ip6tables=false"),
    *("--ip-masq=false", "--ip-forward=false"),
)


class MachineEngines:
    def __init__(self, machines: Machines, compose: str) -> None:
        self._machines = machines
        self._daemons = dict[str, "subprocess.Popen[bytes]"]()
        for name in machines.names:
            machines.run(name, _SETUP.format(data=self._data(name)))
            program = Path(f"/proc/{machines.pid(name)}/root", "usr/local/sbin/docker")
            program.write_text(_DOCKER.format(compose=compose))
            program.chmod(0o755)

    def socket(self, name: str) -> Path:
        return self._machines.home / name / "docker.sock"

    def api(self, name: str) -> Any:
        """A Docker SDK client for that machine. The caller closes it."""
        import docker

        return docker.APIClient(base_url=f"unix://{self.socket(name)}", timeout=60)

    def start(self, name: str) -> None:
        log = self._machines.home / name / "dockerd.log"
        argv = self._machines.command(name, *_DOCKERD, "--host", f"unix://{self.socket(name)}")
        with log.open("ab") as file:
            self._daemons[name] = subprocess.Popen(argv, stdout=file, stderr=file)
        end = time.monotonic() + 60
        while not self._answers(name):
            if self._daemons[name].poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"dockerd did not start on {name}:\n{log.read_text()[-2000:]}")
            time.sleep(0.1)

    def copy_images(self, source: str) -> None:
        """Copy everything from the engine of ``source``, which is stopped, to the others."""
        for name in self._machines.names:
            if name != source:
                argv = ["cp", "-a", f"{self._data(source)}/.", str(self._data(name))]
                subprocess.run(argv, check=True, timeout=300)

    def stop(self, name: str) -> None:
        if daemon := self._daemons.pop(name, None):
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(60)

    def close(self) -> None:
        """Remove all containers, and stop the engines."""
        for name in list(self._daemons):
            if self._answers(name):
                api = self.api(name)
                for container in api.containers(all=True):
                    api.remove_container(container["Id"], force=True, v=True)

                api.close()

            self.stop(name)
            self._machines.run(name, "umount --recursive --lazy /var/lib/docker")
            shutil.rmtree(self._data(name))

    def _data(self, name: str) -> Path:
        return self._machines.home / name / "docker"

    def _answers(self, name: str) -> bool:
        import requests

        try:
            api = self.api(name)
            api.ping()
        except (requests.RequestException, OSError):
            return False
        except Exception as error:  # the SDK wraps the errors that it meets
            if type(error).__module__.startswith("docker"):
                return False
            raise

        api.close()
        return True
