"""A private one-node Slurm on loopback for tests: munged, slurmctld and slurmd in their own
directory.

A job that requests no memory gets a little. Slurm's daemons can be killed and restarted one by one.
It does not touch a Slurm installed on the machine.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.addresses import free_port

_START_S = 30.0
_CONF = """
ClusterName=moorage-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmdPort={d_port}
MailProg=/bin/true
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=64
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc={root}/jobcomp
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
ReturnToService=2
KillWait=2
MinJobAge={min_job_age}
InactiveLimit=0
SlurmctldTimeout=30
SlurmdTimeout=30
MessageTimeout=5
PreemptMode=OFF
JobRequeue=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=60 DefaultTime=10 State=UP OverSubscribe=NO
PartitionName=short Nodes={host} MaxTime=1 DefaultTime=1 State=UP
"""


class SlurmCluster:
    """``root``: an empty directory that any user can traverse. ``cpus``: how many CPUs the node
    claims to have. ``env``: the environment that Slurm's commands need to reach it."""

    def __init__(
        self, root: Path, *, cpus: int = 16, memory_mb: int = 4000, min_job_age_s: int = 300
    ) -> None:
        self.root = root
        self.host = socket.gethostname().partition(".")[0]
        for name in ("state", "spool"):
            (root / name).mkdir(mode=0o700)

        root.chmod(0o711)
        self.conf = root / "slurm.conf"
        self.conf.write_text(
            _CONF.format(
                root=root, host=self.host, cpus=cpus, memory=memory_mb, min_job_age=min_job_age_s,
                ctld_port=free_port(), d_port=free_port(),
            )
        )  # fmt: skip
        self.env = os.environ | {"SLURM_CONF": str(self.conf)}

        # For programs that accept a directory of commands.
        self.commands = root / "bin"
        self.commands.mkdir()
        for name in ("sbatch", "squeue", "scancel", "sinfo", "scontrol"):
            self.wrap(name, f'exec {shutil.which(name) or name} "$@"')

        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start all parts, and wait until the node accepts jobs."""
        key = self.root / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        self.start_munged()
        self.start_slurmctld()
        self.start_slurmd()
        self.wait_idle()

    def start_munged(self) -> None:
        options = {"socket": "munge.socket", "pid-file": "munge.pid", "log-file": "munge.log"}
        options |= {"seed-file": "munge.seed", "key-file": "munge.key"}
        paths = [f"--{name}={self.root / file}" for name, file in options.items()]
        self._start("munged", "munged", "--force", "--foreground", *paths)
        self._wait(lambda: (self.root / "munge.socket").exists(), "munged listens")

    def start_slurmctld(self) -> None:
        self._start("slurmctld", "slurmctld", "-D", "-f", str(self.conf))

    def start_slurmd(self) -> None:
        self._start("slurmd", "slurmd", "-D", "-f", str(self.conf), "-N", self.host)

    def kill(self, part: str, signal_number: int = signal.SIGKILL) -> None:
        """Kill ``munged``, ``slurmctld`` or ``slurmd``. Jobs keep running without any of them."""
        process = self._daemons.pop(part)
        process.send_signal(signal_number)
        process.wait(30)

    def wait_idle(self) -> None:
        self._wait(
            lambda: (
                self.run("sinfo", "-h", "-o", "%T", check=False).strip()[:4] in ("idle", "mixe")
            ),
            "idle",
        )

    def wrap(self, name: str, script: str) -> None:
        """Replace a command in ``commands`` with this shell script."""
        path = self.commands / name
        path.with_suffix(".new").write_text(f"#!/bin/sh\nexport SLURM_CONF={self.conf}\n{script}\n")
        path.with_suffix(".new").chmod(0o755)
        path.with_suffix(".new").replace(path)

    @contextlib.contextmanager
    def replaced(self, name: str, script: str) -> Iterator[None]:
        """Replace a command for a while. ``$REAL`` is the real one."""
        self.wrap(name, f"REAL={shutil.which(name)}\n{script}")
        try:
            yield
        finally:
            self.wrap(name, f'exec {shutil.which(name)} "$@"')

    @contextlib.contextmanager
    def drained(self) -> Iterator[None]:
        """The node accepts no job for a while, so all of them wait."""
        node = "scontrol", "update", f"NodeName={self.host}"
        self.run(*node, "State=DRAIN", "Reason=test")
        try:
            yield
        finally:
            self.run(*node, "State=RESUME")

    def run(self, *argv: str, check: bool = True) -> str:
        done = subprocess.run(
            argv, env=self.env, capture_output=True, text=True, check=False, timeout=60
        )
        if check and done.returncode:
            raise AssertionError(f"{argv}: {done.stderr}")
        return done.stdout

    def jobs(self) -> list[str]:
        """The names of waiting and running jobs."""
        return self.run("squeue", "-h", "-o", "%j").split()

    def stop(self) -> None:
        """End all jobs, then all parts."""
        if "slurmctld" in self._daemons:
            self.run("scancel", "--signal=KILL", "--full", "--me", check=False)
            self.run("scancel", "--me", check=False)
            deadline = time.monotonic() + 10
            while self.run("squeue", "-h", check=False) and time.monotonic() < deadline:
                time.sleep(0.1)

        for part in ("slurmd", "slurmctld", "munged"):
            if part in self._daemons:
                self.kill(part, signal.SIGTERM)

    def _start(self, part: str, *argv: str) -> None:
        program = shutil.which(argv[0])
        assert program, f"{argv[0]} is not installed: python -m tests.hpc.prepare"
        with (self.root / f"{part}.out").open("ab") as output:
            self._daemons[part] = subprocess.Popen(
                [program, *argv[1:]],
                env=self.env,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _START_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {_START_S} s: {what}; see {self.root}"
            for part, process in self._daemons.items():
                assert process.poll() is None, (
                    f"{part} has ended: {(self.root / f'{part}.out').read_text()}"
                )
            time.sleep(0.05)
