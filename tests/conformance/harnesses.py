"""Nodes and sites on which the runtime conformance suite runs. A new runtime adds its
``Harness``."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from tests.addresses import free_port
from tests.containers.images import PYTHON_IMAGE
from tests.heappe import HeappeServer, Script, Site, Template, Timing
from tests.hpc.slurm import SlurmCluster

from moorage.agent.runtimes import FakeRuntime, Launch, ProcessRuntime, Runtime
from moorage.agent.runtimes.docker import (
    ContainerRules,
    DockerEngine,
    DockerRuntime,
    ImageGarbageCollector,
    ImageGcRules,
    PulledImages,
)
from moorage.agent.runtimes.docker.labels import load_label_signer
from moorage.agent.runtimes.fake import FakeNode
from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.records import JobRecords
from moorage.agent.runtimes.heappe.runtime import HeappeRules, HeappeRuntime
from moorage.agent.runtimes.heappe.site import SiteChoice
from moorage.agent.runtimes.heappe.transport import Account
from moorage.agent.runtimes.slurm.commands import Slurm
from moorage.agent.runtimes.slurm.folders import JobFolders
from moorage.agent.runtimes.slurm.runtime import SlurmRules, SlurmRuntime
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import SystemClock
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import HpcJob


class FakeHarness:
    def __init__(self, folder: Path) -> None:
        self._logs = LogStore(folder / "logs")
        self._node = FakeNode()

    def runtime(self) -> Runtime:
        return FakeRuntime(self._logs, self._node)

    def launch(
        self, *, run_s: float | None = None, code: int = 0, stubborn: bool = False, output: str = ""
    ) -> Launch:
        env = {
            "FAKE_EXIT_CODE": str(code),
            "FAKE_LOG": output,
            "FAKE_IGNORE_TERM": "1" if stubborn else "",
        }
        env |= {"FAKE_CPU": "1", "FAKE_MEMORY": "1000000"}
        if run_s is not None:
            env["FAKE_RUN_S"] = str(run_s)

        return Launch(new_kernel_id(), ("fake",), env, port=4711)

    async def close(self) -> None:
        pass


class FakeSiteHarness(FakeHarness):
    """A batch system with a queue."""

    def runtime(self) -> Runtime:
        return FakeRuntime(self._logs, self._node, silence_grace_s=86_400.0, max_jobs=100)

    def launch(
        self, *, run_s: float | None = None, code: int = 0, stubborn: bool = False, output: str = ""
    ) -> Launch:
        launch = super().launch(run_s=run_s, code=code, stubborn=stubborn, output=output)
        return replace(launch, env=launch.env | {"FAKE_QUEUE_S": "0.1", "FAKE_WALLTIME_S": "120"})


PROGRAM = """
import os, signal, sys, time
run_s, code, stubborn, output = sys.argv[1:]
if stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if output == "busy":
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        pass
sys.stdout.write(output)
sys.stdout.flush()
time.sleep(float(run_s) if run_s else 3600)
sys.exit(int(code))
"""


class ProcessHarness:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runtimes: list[ProcessRuntime] = []

    def runtime(self) -> Runtime:
        logs = LogStore(self._folder / "logs")
        runtime = ProcessRuntime(self._folder, logs, log_max_bytes=100_000, log_keep_files=3)
        self._runtimes.append(runtime)
        return runtime

    async def close(self) -> None:
        for runtime in self._runtimes:
            runtime.close()

    def launch(
        self, *, run_s: float | None = None, code: int = 0, stubborn: bool = False, output: str = ""
    ) -> Launch:
        seconds = "" if run_s is None else str(run_s)
        argv = (
            sys.executable,
            "-S",
            "-c",
            PROGRAM,
            seconds,
            str(code),
            "1" if stubborn else "",
            output,
        )
        return Launch(new_kernel_id(), argv, {"PATH": os.environ["PATH"]}, port=4711)


def new_kernel_id() -> KernelId:
    return KernelId(SystemClock().new_id())


class DockerHarness:
    """Uses an engine that all tests share; a separate key keeps its containers apart."""

    def __init__(self, folder: Path, socket: Path) -> None:
        self._folder = folder
        self._socket = socket
        self._runtimes: list[DockerRuntime] = []

    def runtime(self) -> Runtime:
        signer = load_label_signer(self._folder / "docker.key", SystemClock())
        engine = DockerEngine(self._socket)
        logs = LogStore(self._folder / "logs")
        clock = SystemClock()
        image_gc = ImageGarbageCollector(
            engine, ImageGcRules(), PulledImages(self._folder / "images.json", clock), clock
        )
        runtime = DockerRuntime(
            engine, signer, logs, rules=ContainerRules(), address="127.0.0.1", image_gc=image_gc
        )
        self._runtimes.append(runtime)

        return runtime

    def launch(
        self, *, run_s: float | None = None, code: int = 0, stubborn: bool = False, output: str = ""
    ) -> Launch:
        seconds = "" if run_s is None else str(run_s)
        argv = ("python3", "-S", "-c", PROGRAM, seconds, str(code), "1" if stubborn else "", output)
        return Launch(
            new_kernel_id(), argv, {}, port=free_port(), image=PYTHON_IMAGE, slots={"mem": 64 << 20}
        )

    async def close(self) -> None:
        for runtime in self._runtimes:
            await runtime.close()


class SlurmHarness:
    """Jobs of a private Slurm that all tests share; a separate identity keeps its jobs apart.
    ``calls``: the Slurm commands run by all its runtimes."""

    def __init__(self, folder: Path, cluster: SlurmCluster) -> None:
        self.heartbeat_s = 600.0
        self.poll_s = 0.2
        self._slurms: list[Slurm] = []
        self.work = cluster.root / f"work-{SystemClock().new_id()}"
        self._folder = folder
        self._cluster = cluster
        self._runtimes: list[SlurmRuntime] = []

    def runtime(self) -> Runtime:
        rules = SlurmRules(
            max_jobs=100, python=sys.executable, poll_s=self.poll_s, heartbeat_s=self.heartbeat_s
        )
        folders = JobFolders(self.work, LogStore(self._folder / "logs"))
        slurm = Slurm(str(self._cluster.commands))
        self._slurms.append(slurm)
        runtime = SlurmRuntime(slurm, folders, rules, SystemClock(), identity=str(self.work))
        self._runtimes.append(runtime)
        return runtime

    def launch(
        self, *, run_s: float | None = None, code: int = 0, stubborn: bool = False, output: str = ""
    ) -> Launch:
        seconds = "" if run_s is None else str(run_s)
        argv = (
            sys.executable,
            "-S",
            "-c",
            PROGRAM,
            seconds,
            str(code),
            "1" if stubborn else "",
            output,
        )
        job = HpcJob(walltime_s=120)
        return Launch(new_kernel_id(), argv, {}, slots={"cpu": 1000, "mem": 64 << 20}, hpc=job)

    def calls(self) -> int:
        return sum(slurm.calls for slurm in self._slurms)

    async def close(self) -> None:
        for runtime in self._runtimes:
            await runtime.close()


class HeappeHarness:
    """Jobs of a scripted cluster that run our program, behind a server that speaks HEAppE's
    protocol."""

    def __init__(self, folder: Path, profile: str = "6.3.2") -> None:
        command = str(Path(__file__).parents[2] / "deploy" / "heappe" / "run.sh")
        self._server = HeappeServer(
            profile,
            site=Site(templates=(Template(11, "engine", 7, command=command),)),
            timing=Timing(poll_s=0.2, cache_s=0.1),
        )
        self._server.cluster.script = lambda job: Script(engine="program", queue_s=0.1)
        self._folder = folder
        self._runtimes: list[HeappeRuntime] = []

    async def start(self) -> None:
        await self._server.start()

    def runtime(self) -> Runtime:
        clock = SystemClock()
        runtime = HeappeRuntime(
            HeappeClient(Account(self._server.url, "agent", "secret-agent"), clock),
            JobRecords(self._folder / "heappe"),
            LogStore(self._folder / "logs"),
            HeappeRules(
                max_jobs=100,
                defaults=SiteChoice("EXA-00-1", walltime_s=120),
                poll_s=0.2,
                hurried_poll_s=0.1,
            ),
            clock=clock,
            identity=str(self._folder),
            host="127.0.0.1",
            allocate=free_port,
        )
        self._runtimes.append(runtime)
        return runtime

    def launch(
        self, *, run_s: float | None = None, code: int = 0, stubborn: bool = False, output: str = ""
    ) -> Launch:
        seconds = "" if run_s is None else str(run_s)
        argv = (
            sys.executable,
            "-S",
            "-c",
            PROGRAM,
            seconds,
            str(code),
            "1" if stubborn else "",
            output,
        )
        return Launch(new_kernel_id(), argv, {}, stop_grace_s=0.3)

    async def close(self) -> None:
        for runtime in self._runtimes:
            await runtime.close()
        await self._server.stop()


class NewerHeappeHarness(HeappeHarness):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "6.5")
