"""Process runtime: starts each kernel under a supervisor (``shim.py``) that outlives the agent."""

from __future__ import annotations

import asyncio
import errno
import os
import py_compile
import shutil
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import structlog

from moorage.agent.runtimes import procfs
from moorage.agent.runtimes.base import (
    APPS_VAR,
    KERNEL_ID_VAR,
    OWNER_VAR,
    PORT_VAR,
    Capabilities,
    Counters,
    CreateFailed,
    Handle,
    Isolation,
    KernelLease,
    Launch,
    OnProgress,
    RuntimeFailed,
    RuntimeObservation,
    failed_write,
    ignore_progress,
)
from moorage.agent.runtimes.execution import Command, ExecFailed, Execution
from moorage.agent.runtimes.process import execution, suspension
from moorage.agent.runtimes.process.directories import NAME, KernelDirectories, kernel_id_of
from moorage.agent.runtimes.process.disks import kernel_disk, workspace_disk
from moorage.agent.runtimes.process.files import write_files
from moorage.agent.runtimes.process.isolation import IsolationRules, KernelIsolation
from moorage.agent.runtimes.process.networks import KernelNetwork
from moorage.agent.runtimes.process.proc_usage import ProcessMeter
from moorage.agent.runtimes.process.process_tree import ProcessTree
from moorage.agent.runtimes.process.programs import COMMAND_SHIM, SHIM, compile_programs, program
from moorage.agent.runtimes.process.sandbox import Sandbox
from moorage.agent.runtimes.process.shim_start import start_shim
from moorage.agent.runtimes.process.signals import deliver
from moorage.agent.state.log_times import LogRange
from moorage.agent.state.logs import LogStore, data_of
from moorage.common.link.log_request import LogPiece
from moorage.common.model.ids import KernelId
from moorage.common.model.reasons import Reason
from moorage.common.model.service_ports import ServicePort, encode_ports
from moorage.common.model.status import ObservedState

log = structlog.get_logger("moorage.agent.process")
_SHIM_EXIT_S = 3.0
_NO_LEASE = KernelLease(0, 0, "")
# This is delayed, because it would compete for the CPU with the kernel that has just started.
_REPLENISH_DELAY_S = 0.2
_RULES = IsolationRules()


class ProcessRuntime:
    """The runtime. ``state``: the agent's state directory, which identifies the agent's kernels
    among all processes."""

    name = NAME
    silence_grace_s = 0.0
    capabilities = Capabilities(
        node_processes=True, code=True, devices=True, leases=True, signals=True, suspension=True
    )

    def __init__(
        self,
        state: Path,
        logs: LogStore,
        *,
        log_max_bytes: int,
        log_keep_files: int,
        isolation: IsolationRules = _RULES,
    ) -> None:
        self._directories = KernelDirectories(state, isolation.uids)
        self._logs = logs
        self._log_limits = (str(log_max_bytes), str(log_keep_files))
        self._state = state
        self._isolation = KernelIsolation(state, isolation)
        self._shim = program(state, SHIM)
        self._command_shim = program(state, COMMAND_SHIM)
        self._compile_lock = threading.Lock()
        self._meter = ProcessMeter()
        self._publisher = ThreadPoolExecutor(4, thread_name_prefix="kernel-ports")

    def close(self) -> None:
        """Remove resources prepared for further kernels. Kernels keep running."""
        self._publisher.shutdown()
        self._isolation.close()

    async def probe(self) -> Isolation:
        if not hasattr(os, "pidfd_open") or procfs.stat(os.getpid()) is None:
            raise RuntimeFailed(
                "the process runtime needs Linux 5.3 or later with /proc",
                next_step="mount /proc, or use another runtime",
            )
        await asyncio.to_thread(self._compile_shims)
        await asyncio.to_thread(self._isolation.prepare, self._try_sandbox)
        self._replenish()
        return self._isolation_state()

    def _isolation_state(self) -> Isolation:
        return Isolation.of(self._isolation.problem, self._isolation.cure)

    async def check(self) -> Isolation:
        """Return the current result of ``probe``. Restores state that other programs may have
        removed."""
        await asyncio.to_thread(self._isolation.ensure)
        return self._isolation_state()

    def isolates(self, isolated: bool) -> bool:
        """Whether a kernel runs in a sandbox. ``isolated`` is ``Launch.isolated``."""
        return self._isolation.applies(isolated)

    def work_dir(self, kernel_id: KernelId) -> Path:
        """A kernel's HOME and working directory."""
        return self._directories.path(kernel_id) / "work"

    async def prepare(
        self, launch: Launch, on_progress: OnProgress = ignore_progress
    ) -> tuple[ServicePort, ...]:
        return ()

    async def create(self, launch: Launch) -> Handle:
        handle = await asyncio.to_thread(self._create, launch)
        asyncio.get_running_loop().call_later(_REPLENISH_DELAY_S, self._replenish)
        return handle

    async def observe(self, handle: Handle) -> RuntimeObservation:
        try:
            return self._observe(handle)
        except (OSError, ValueError) as error:
            return RuntimeObservation(
                ObservedState.UNKNOWN,
                detail=f"/proc or the kernel's directory is unreadable: {error}",
            )

    async def wait(self, handle: Handle, last_state: ObservedState) -> None:
        pid, start = self._directories.shim_of(handle)
        try:
            pidfd = os.pidfd_open(pid) if pid > 0 else -1
        except ProcessLookupError:
            pidfd = -1

        if pidfd < 0:
            return

        loop = asyncio.get_running_loop()
        exited = asyncio.Event()
        try:
            if not procfs.alive(pid, start):
                return

            loop.add_reader(pidfd, exited.set)
            try:
                # An adopted supervisor that has not started its program yet will not signal the
                # start, so poll.
                async with asyncio.timeout(0.02 if last_state is ObservedState.CREATING else None):
                    await exited.wait()
            except TimeoutError:
                pass
            finally:
                loop.remove_reader(pidfd)
        finally:
            os.close(pidfd)

    async def stop(self, handle: Handle, grace_s: float) -> None:
        await asyncio.to_thread(self._stop, handle, grace_s)

    async def destroy(self, handle: Handle) -> None:
        await asyncio.to_thread(self._destroy, handle)

    async def find(self) -> dict[KernelId, Handle]:
        return await asyncio.to_thread(self._directories.find)

    async def usage(self, handles: Mapping[KernelId, Handle]) -> dict[KernelId, Counters]:
        roots = {
            kernel_id: self._directories.shim_of(handle) for kernel_id, handle in handles.items()
        }
        return await asyncio.to_thread(self._meter.measure, roots)

    def logs(
        self, handle: Handle, tail_lines: int = 0, follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        return data_of(self.log_range(handle, LogRange(tail_lines, follow)))

    def log_range(self, handle: Handle, wanted: LogRange) -> AsyncGenerator[LogPiece, None]:
        shim = self._directories.shim_of(handle)
        return self._logs.read_range(kernel_id_of(handle), wanted, lambda: procfs.alive(*shim))

    async def log_tail(self, handle: Handle, max_bytes: int = 8192) -> str:
        return self._logs.tail(kernel_id_of(handle), max_bytes)

    async def exec(self, handle: Handle, command: Command) -> Execution:
        if (observation := await self.observe(handle)).state is not ObservedState.RUNNING:
            raise ExecFailed(f"no command can be run in it: it is {observation.state}")
        kernel = execution.Supervisors(self._directories.shim_of(handle), self._main_of(handle))
        return execution.start(
            self._command_shim, self._directories.path_of(handle), kernel, command
        )

    async def suspend(self, handle: Handle) -> None:
        await asyncio.to_thread(suspension.suspend, *self._directories.shim_of(handle))

    async def resume(self, handle: Handle) -> None:
        await asyncio.to_thread(suspension.resume, *self._directories.shim_of(handle))

    async def signal(self, handle: Handle, name: str) -> None:
        await deliver(*self._main_of(handle), name)

    def _observe(self, handle: Handle) -> RuntimeObservation:
        # The supervisor writes the exit file before it exits, so check the file, the supervisor,
        # and the file again.
        if exited := self._directories.exit_status(handle):
            return exited

        pid, start = self._directories.shim_of(handle)
        folder = self._directories.path_of(handle)
        if procfs.alive(pid, start):
            started = handle.state["engine_pid"] or (folder / "pids").exists()
            return RuntimeObservation(ObservedState.RUNNING if started else ObservedState.CREATING)

        self._reap(pid)
        if exited := self._directories.exit_status(handle):
            return exited
        if handle.state["boot_id"] != self._directories.boot_id:
            return RuntimeObservation(ObservedState.GONE, detail="the node was restarted")

        if not (folder / "pids").exists() and not self._tree(handle).pids():
            return RuntimeObservation(
                ObservedState.GONE, detail="" if folder.exists() else "its directory is also gone"
            )

        return RuntimeObservation(
            ObservedState.EXITED,
            all_exited=False,
            detail="its supervisor was killed, and the program with it",
        )

    @staticmethod
    def _reap(pid: int) -> None:
        # This fails for an adopted shim, which is not a child of this agent and is reaped by init.
        if pid > 0:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _main_of(self, handle: Handle) -> tuple[int, int]:
        engine = (handle.state["engine_pid"], handle.state["engine_start"])
        if not engine[0] and (stored := self._directories.load(kernel_id_of(handle))):
            engine = (stored.state["engine_pid"], stored.state["engine_start"])
        return engine

    def _tree(self, handle: Handle) -> ProcessTree:
        engine = self._main_of(handle)
        if handle.state["boot_id"] != self._directories.boot_id:
            engine = (0, 0)
        return ProcessTree(kernel_id_of(handle), self._directories.owner, engine)

    # The methods below run in a thread.

    def _try_sandbox(self, sandbox: Sandbox, network: KernelNetwork) -> None:
        """Run this agent's interpreter in a sandbox. Raises ``RuntimeFailed``."""
        folder = Path(sandbox.writable[1]).parent
        for name in ("exit", "pids"):
            (folder / name).unlink(missing_ok=True)

        launch = Launch(
            KernelId("trial"), (sys.executable, "-I", "-S", "-c", ""), {"PATH": os.defpath}
        )
        pid, status = self._spawn(launch, folder, sandbox, network)
        _await_exit_of_child(pid)
        outcome = self._directories.exit_of(folder)
        if not status.startswith("started") or outcome is None or outcome.exit_code != 0:
            output = self._logs.tail(launch.kernel_id, 300).strip()
            failure = status.strip().removeprefix("sandbox ")
            raise RuntimeFailed(
                f"a program in a sandbox on this node fails: {output or failure or outcome}",
                next_step=(
                    "it requires Linux 5.12 and an agent outside of a container; or use containers"
                ),
            )

    def _compile_shims(self) -> None:
        with self._compile_lock:
            self._state.mkdir(parents=True, exist_ok=True, mode=0o700)
            compile_programs(self._state)

    def _replenish(self) -> None:
        self._isolation.replenish()
        threading.Thread(
            target=self._isolation.disks.replenish, name="kernel-disk", daemon=True
        ).start()

    def _create(self, launch: Launch) -> Handle:
        if existing := self._directories.load(launch.kernel_id):
            return existing

        if self._isolation.refuses(launch.isolated):
            raise CreateFailed(
                f"this agent runs no processes of members: {self._isolation.problem}",
                reason=Reason.NOT_ISOLATED,
                clean=True,
                next_step=self._isolation.cure,
            )

        folder = self._directories.path(launch.kernel_id)
        try:
            self._make_work_dir(launch)
            if not self._shim.exists():
                self._compile_shims()

            sandbox = None
            network = None
            published = None
            if self._isolation.applies(launch.isolated):
                sandbox, network = self._make_sandbox(launch, folder)
                published = self._publisher.submit(self._isolation.publish, launch)

            pid, status = self._spawn(launch, folder, sandbox, network)
            if published is not None:
                published.result()
        except RuntimeFailed as error:
            # The kernel may be running, but it cannot be reached.
            raise CreateFailed(
                error.message, reason=Reason.NO_NETWORK, next_step=error.next_step
            ) from None
        except (OSError, ValueError, py_compile.PyCompileError) as error:
            reason = (
                failed_write(error.errno) if isinstance(error, OSError) else Reason.CREATE_FAILED
            )
            raise CreateFailed(f"cannot start {launch.argv[0]!r}: {error}", reason=reason) from None

        keyword, *values = status.split() or [""]
        if keyword == "started":
            stat = procfs.stat(pid)
            start = stat.start if stat else 0
            handle = self._directories.handle(
                launch.kernel_id, (pid, start), (int(values[0]), int(values[1]))
            )
            return replace(handle, started=True)

        if keyword == "busy" and (existing := self._directories.load(launch.kernel_id)):
            _await_exit_of_child(pid)
            return existing
        if refusal := self._refusal(launch, keyword, values):
            _await_exit_of_child(pid)
            raise refusal

        detail = (folder / "shim.log").read_text(errors="replace")[-500:].strip()
        raise CreateFailed(f"the supervisor did not start its program. {detail}".strip())

    def _make_work_dir(self, launch: Launch) -> None:
        """Create the working directory. Raises ``CreateFailed`` or ``OSError``."""
        work = self.work_dir(launch.kernel_id)
        work.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._isolation.applies(launch.isolated):
            is_kept = work.is_symlink()
            name = workspace_disk(launch.session_id) if is_kept else kernel_disk(launch.kernel_id)
            self._isolation.disks.provide(Path(os.path.realpath(work)), name)
        write_files(work, launch.files, launch.inputs)

    def _refusal(self, launch: Launch, keyword: str, values: list[str]) -> CreateFailed | None:
        """The error in the status line of a supervisor that has started nothing; None for any other
        line."""
        if keyword == "exec" and int(values[0]) == errno.E2BIG:
            return CreateFailed(
                f"cannot run {launch.argv[0]!r}: an argument or variable is longer than 128 KiB, "
                "or all of them together are larger than Linux allows",
                next_step="pass large values in a file",
            )

        if keyword == "exec":
            return CreateFailed(
                f"cannot run {launch.argv[0]!r}: {os.strerror(int(values[0]))}",
                next_step="use the path of a program on the agent's node",
            )

        if keyword == "state":
            number = int(values[0])
            return CreateFailed(
                f"the agent's node has no space for the state of a kernel: {os.strerror(number)}",
                reason=failed_write(number),
                next_step=(
                    f"free some space on the disk of "
                    f"{self._directories.path(launch.kernel_id).parent}"
                ),
            )

        if keyword == "port":
            return CreateFailed(
                f"port {values[0]} of the agent's node: {os.strerror(int(values[1]))}",
                reason=Reason.PORT_TAKEN,
                next_step="another program listens there: keep agent.port_range free for kernels",
            )

        if keyword == "sandbox":
            return CreateFailed(
                f"cannot isolate the kernel: {' '.join(values)}",
                reason=Reason.NOT_ISOLATED,
                next_step="restart the agent on that node: it reports what is missing",
            )

        return None

    def _make_sandbox(self, launch: Launch, folder: Path) -> tuple[Sandbox, KernelNetwork]:
        try:
            network = self._isolation.enter_network(launch, folder)
            return self._isolation.create(launch, folder), network
        except CreateFailed:
            self._isolation.release(folder)
            self._remove_folder(launch.kernel_id)
            raise

    def _remove_folder(self, kernel_id: KernelId) -> None:
        """Remove a kernel's directory except its session's kept workspace."""
        work = self.work_dir(kernel_id)
        if not work.is_symlink():
            self._isolation.disks.remove(work, kernel_disk(kernel_id))
        shutil.rmtree(self._directories.path(kernel_id), ignore_errors=True)

    def _spawn(
        self, launch: Launch, folder: Path, sandbox: Sandbox | None, network: KernelNetwork | None
    ) -> tuple[int, str]:
        """Start the supervisor and return its pid and status line."""
        logs = self._logs.folder(launch.kernel_id)
        lease = launch.lease or _NO_LEASE
        arguments = [str(folder), str(logs), *self._log_limits, str(launch.stop_grace_s)]
        arguments += [str(lease.seconds), str(lease.contact), lease.file]
        arguments += [sandbox.encode() if sandbox else "", network.path if network else ""]
        ports = [launch.port, *(app.port for app in launch.apps)] if network else []
        arguments += [",".join(str(port) for port in ports if port), *launch.argv]
        variables = {
            KERNEL_ID_VAR: launch.kernel_id,
            OWNER_VAR: self._directories.owner,
            PORT_VAR: str(launch.port),
        }
        execution.save_environment(folder, launch.env | variables)
        if launch.apps:
            variables[APPS_VAR] = encode_ports(launch.apps)

        env = launch.env | variables
        return start_shim(
            self._shim, arguments, env=env, variables=variables, log=folder / "shim.log"
        )

    def _stop(self, handle: Handle, grace_s: float) -> None:
        pid, start = self._directories.shim_of(handle)
        if not procfs.alive(pid, start):
            return

        temporary = (
            self._directories.path_of(handle) / f"grace.{os.getpid()}.{threading.get_ident()}"
        )
        try:
            temporary.write_text(str(grace_s))
            temporary.replace(temporary.with_name("grace"))
        except OSError as error:
            # The directory was deleted or its disk is full, so the shim uses the grace period from
            # its start.
            if not isinstance(error, FileNotFoundError):
                log.warning(
                    "a grace period was not written", kernel=kernel_id_of(handle), error=str(error)
                )

        procfs.send_signal(pid, signal.SIGTERM, lambda: procfs.alive(pid, start))

    def _destroy(self, handle: Handle) -> None:
        pid, start = self._directories.shim_of(handle)
        if procfs.alive(pid, start):
            # The supervisor is a subreaper and has the exact process tree, so let it kill the
            # processes.
            self._stop(handle, 0)
            procfs.await_exit(pid, start, _SHIM_EXIT_S)
            if procfs.alive(pid, start):
                procfs.send_signal(pid, signal.SIGKILL, lambda: procfs.alive(pid, start))
                procfs.await_exit(pid, start, _SHIM_EXIT_S)

        self._reap(pid)
        folder = self._directories.path_of(handle)
        if not (folder / "exit").exists():
            self._tree(handle).kill()

        execution.wait_until_none(folder / "execs")
        kernel_id = kernel_id_of(handle)
        self._isolation.release(folder)
        self._remove_folder(kernel_id)
        self._isolation.uids.release(kernel_id)


def _await_exit_of_child(pid: int) -> None:
    """Wait for the exit of a shim that exits right after its status line."""
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
