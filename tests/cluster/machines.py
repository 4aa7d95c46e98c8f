"""Machines for a page that is followed word for word, each a network, mount and host name
namespace.

Files written below /etc, /var, /opt, /usr/local and /run are private to a machine, and are in
memory or below ``home``. ``systemctl``, ``ssh``, ``scp`` and ``apt-get`` are programs of this
module; all others are real. The units' daemons run as root, because the tests' interpreter may be
readable only by root.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
OVERLAID = ("/etc", "/var", "/opt", "/usr/local")
MOORAGE = f'#!/bin/sh\nPYTHONPATH={ROOT}/src exec {sys.executable} -m moorage "$@"\n'
SYSTEMCTL = f'#!/bin/sh\nexec {sys.executable} -I {Path(__file__).with_name("systemctl.py")} "$@"\n'
# `ssh HOST COMMAND` and `scp [-rp] HOST:PATH... TARGET`, through the process that holds the
# machine.
SSH = """#!/bin/bash
name=$1; shift
pid=$(cat {home}/$name/pid)
exec nsenter --target $pid --mount --net --uts --wd={root} bash -lc "$*"
"""
SCP = """#!/bin/bash
set -e
flags=(); paths=()
for word in "$@"; do
  case $word in
    -*) flags+=("$word");;
    *:*) paths+=("/proc/$(cat {home}/${{word%%:*}}/pid)/root${{word#*:}}");;
    *) paths+=("$word");;
  esac
done
exec cp "${{flags[@]}}" "${{paths[@]}}"
"""
SETUP = """set -e
mount --make-rprivate /
for part in {parts}; do
  own={home}/$(echo $part | tr / _)
  mkdir -p $own/upper $own/work
  mount -t overlay overlay -o lowerdir=$part,upperdir=$own/upper,workdir=$own/work $part
done
mount -t tmpfs tmpfs /run
mkdir -p /run/units /run/postgresql
chown postgres:postgres /run/postgresql
hostname {name}
ip link set lo up
"""


class Machines:
    """``names``: the machines with their addresses, all in 192.0.2.0/24. Use it as a context
    manager."""

    def __init__(self, home: Path, names: dict[str, str]) -> None:
        self.home = home
        self.names = names
        self._holders: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Machines:
        try:
            switch = self._hold("--net")
            self._run(["nsenter", "-t", str(switch), "-n", "sh", "-ec",
                       "ip link add hub type bridge; ip link set hub up"])  # fmt: skip
            for number, (name, address) in enumerate(self.names.items()):
                self._add(number, name, address, switch)
        except BaseException:
            self.close()
            raise

        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run(self, name: str, commands: str, timeout_s: float = 120) -> str:
        """Run commands in a login shell on that machine; stops at the first one that fails. Returns
        the output."""
        done = subprocess.run(
            [*self._on(name), "bash", "-lc", f"set -e -o pipefail\n{commands}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s,
        )  # fmt: skip
        output = done.stdout.decode(errors="replace")
        assert done.returncode == 0, (
            f"on {name}:\n{commands}\n{output[-4000:]}{self.logs()[-6000:]}"
        )

        return output

    def logs(self) -> str:
        files = sorted(self.home.glob("*/_var/upper/log/units/*.log"))
        return "".join(
            f"\n--- {file.relative_to(self.home)}\n{file.read_text()[-1500:]}" for file in files
        )

    def close(self) -> None:
        """Stop all processes on the machines, and remove the machines."""
        for name in reversed(self.names):
            if (self.home / name / "pid").exists():
                subprocess.run(
                    [*self._on(name), "systemctl", "stop-everything"], check=True, timeout=120
                )
        for holder in self._holders:
            holder.kill()
            holder.wait()

    def _add(self, number: int, name: str, address: str, switch: int) -> None:
        home = self.home / name
        home.mkdir()
        pid = self._hold("--net", "--mount", "--uts")
        (home / "pid").write_text(str(pid))
        setup = SETUP.format(parts=" ".join(OVERLAID), home=home, name=name)
        self._run([*self._on(name), "sh", "-c", setup])
        programs = {
            "/usr/local/sbin/systemctl": SYSTEMCTL,
            "/usr/local/sbin/ssh": SSH.format(home=self.home, root=ROOT),
            "/usr/local/sbin/scp": SCP.format(home=self.home),
            "/usr/local/sbin/apt-get": "#!/bin/sh\n",
        }
        root = Path(f"/proc/{pid}/root")
        for path, text in programs.items():
            (root / path[1:]).write_text(text)
            (root / path[1:]).chmod(0o755)

        self._run(["nsenter", "-t", str(switch), "-n", "sh", "-ec",
                   f"ip link add p{number} type veth peer name eth0 netns {pid};"
                   f"ip link set p{number} master hub up"])  # fmt: skip
        self._run([*self._on(name), "sh", "-ec",
                   f"ip addr add {address}/24 dev eth0; ip link set eth0 up"])  # fmt: skip

    def install(self, name: str) -> None:
        """The package that pip installs: the tree under test."""
        root = Path(f"/proc/{(self.home / name / 'pid').read_text()}/root")
        (root / "opt/moorage/bin").mkdir(parents=True)
        program = root / "opt/moorage/bin/moorage"
        program.write_text(MOORAGE)
        program.chmod(0o755)

    def pid(self, name: str) -> int:
        """The id of the process that holds the machine."""
        return int((self.home / name / "pid").read_text())

    def command(self, name: str, *words: str) -> list[str]:
        """The command that runs ``words`` on that machine."""
        return [*self._on(name), *words]

    def _on(self, name: str) -> list[str]:
        pid = (self.home / name / "pid").read_text()
        return ["nsenter", "--target", pid, "--mount", "--net", "--uts", f"--wd={ROOT}"]

    def _hold(self, *namespaces: str) -> int:
        """A process that keeps new namespaces alive, and dies with this one."""
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", *namespaces, "sleep", "infinity"]
        holder = subprocess.Popen(command)
        self._holders.append(holder)
        while not Path(f"/proc/{holder.pid}/comm").read_text().startswith("sleep"):
            os.sched_yield()
        return holder.pid

    @staticmethod
    def _run(command: Sequence[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
