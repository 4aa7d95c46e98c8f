"""Kernels as plain processes, each under its own supervisor (``shim.py``) that outlives the agent."""

from __future__ import annotations

import asyncio
import os
import py_compile
import select
import shutil
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Mapping
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
    File,
    Handle,
    Launch,
    OnProgress,
    RuntimeFailed,
    RuntimeObservation,
    ignore_progress,
)
from moorage.agent.runtimes.execution import Command, ExecFailed, Execution
from moorage.agent.runtimes.process import execution
from moorage.agent.runtimes.process.directories import NAME, KernelDirectories, kernel_id_of
from moorage.agent.runtimes.process.prestarted_shim import SAY_TIMEOUT_MS, PrestartedShims
from moorage.agent.runtimes.process.process_tree import Tree
from moorage.agent.runtimes.process.shim import SHIM_VAR
from moorage.agent.runtimes.process.usage import Meter
from moorage.agent.state.logs import LogStore
from moorage.common.model.ids import KernelId
from moorage.common.model.service_ports import ServicePort, encode_ports
from moorage.common.model.status import ObservedState

log = structlog.get_logger("moorage.agent.process")
_HURRY_S = 3.0
# Not at once: its start would take the processor from the kernel that has just begun.
_RESTOCK_S = 0.2


class ProcessRuntime:
    """``state`` is the agent's state directory: it names this agent's processes among all of the node."""

    name = NAME

    def __init__(self, state: Path, logs: LogStore, *, log_max_bytes: int, log_keep_files: int) -> None:
        self._kept = KernelDirectories(state)
        self._logs = logs
        self._log_limits = (str(log_max_bytes), str(log_keep_files))
        self._shim = state / "process_shim.pyc"
        self._command_shim = state / "command_shim.pyc"
        self._compile = threading.Lock()
        self._meter = Meter()
        marks = {KERNEL_ID_VAR: "", OWNER_VAR: self._kept.owner, PORT_VAR: "65535"}
        self._spares = PrestartedShims(self._shim, marks)

    def close(self) -> None:
        """Ends what was started ahead; kernels go on."""
        self._spares.close()

    async def probe(self) -> Capabilities:
        if not hasattr(os, "pidfd_open") or procfs.stat(os.getpid()) is None:
            raise RuntimeFailed(
                "the process runtime needs Linux 5.3 or later with /proc",
                next_step="mount /proc, or use another runtime",
            )
        await asyncio.to_thread(self._compile_shim)
        self._restock()
        return Capabilities(runs_engines=True)

    def work_dir(self, kernel_id: KernelId) -> Path:
        """HOME and working directory of a kernel."""
        return self._kept.of(kernel_id) / "work"

    async def prepare(self, launch: Launch, tell: OnProgress = ignore_progress) -> tuple[ServicePort, ...]:
        return ()

    async def create(self, launch: Launch) -> Handle:
        handle = await asyncio.to_thread(self._create, launch)
        asyncio.get_running_loop().call_later(_RESTOCK_S, self._restock)
        return handle

    async def observe(self, handle: Handle) -> RuntimeObservation:
        try:
            return self._observe(handle)
        except (OSError, ValueError) as error:
            return RuntimeObservation(ObservedState.UNKNOWN, detail=f"the node did not answer: {error}")

    async def wait(self, handle: Handle, seen: ObservedState) -> None:
        pid, start = self._kept.shim_of(handle)
        try:
            pin = os.pidfd_open(pid) if pid > 0 else -1
        except ProcessLookupError:
            pin = -1
        if pin < 0:
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        try:
            if not procfs.alive(pid, start):
                return
            loop.add_reader(pin, ended.set)
            try:
                # A supervisor that we adopted before it had started its engine tells nobody when it does.
                async with asyncio.timeout(0.02 if seen is ObservedState.CREATING else None):
                    await ended.wait()
            except TimeoutError:
                pass
            finally:
                loop.remove_reader(pin)
        finally:
            os.close(pin)

    async def stop(self, handle: Handle, grace_s: float) -> None:
        await asyncio.to_thread(self._stop, handle, grace_s)

    async def destroy(self, handle: Handle) -> None:
        await asyncio.to_thread(self._destroy, handle)

    async def find(self) -> dict[KernelId, Handle]:
        return await asyncio.to_thread(self._kept.find)

    async def usage(self, handles: Mapping[KernelId, Handle]) -> dict[KernelId, Counters]:
        roots = {kernel_id: self._kept.shim_of(handle) for kernel_id, handle in handles.items()}
        return await asyncio.to_thread(self._meter.measure, roots)

    def logs(self, handle: Handle, tail_lines: int = 0, follow: bool = False) -> AsyncGenerator[bytes, None]:
        shim = self._kept.shim_of(handle)
        return self._logs.read(kernel_id_of(handle), tail_lines, follow, lambda: procfs.alive(*shim))

    async def log_tail(self, handle: Handle, max_bytes: int = 8192) -> str:
        return self._logs.tail(kernel_id_of(handle), max_bytes)

    async def exec(self, handle: Handle, command: Command) -> Execution:
        if (seen := await self.observe(handle)).state is not ObservedState.RUNNING:
            raise ExecFailed(f"no command can be run in it: it is {seen.state}")
        shim = self._kept.shim_of(handle)
        return execution.start(self._command_shim, self._kept.folder_of(handle), shim, command)

    # Looking.

    def _observe(self, handle: Handle) -> RuntimeObservation:
        # The exit file comes before the supervisor's end, so: file, supervisor, and the file once more.
        if seen := self._kept.ending(handle):
            return seen
        pid, start = self._kept.shim_of(handle)
        folder = self._kept.folder_of(handle)
        if procfs.alive(pid, start):
            started = handle.state["engine_pid"] or (folder / "pids").exists()
            return RuntimeObservation(ObservedState.RUNNING if started else ObservedState.CREATING)
        self._reap(pid)
        if seen := self._kept.ending(handle):
            return seen
        if handle.state["boot_id"] != self._kept.boot_id:
            return RuntimeObservation(ObservedState.GONE, detail="the node was restarted")
        if not (folder / "pids").exists() and not self._tree(handle).members():
            return RuntimeObservation(
                ObservedState.GONE, detail="" if folder.exists() else "its files are gone too"
            )
        return RuntimeObservation(
            ObservedState.EXITED, whole=False, detail="its supervisor was killed, so it was ended too"
        )

    @staticmethod
    def _reap(pid: int) -> None:
        # Only an agent that started it is its parent; an adopted one is reaped by init.
        if pid > 0:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _tree(self, handle: Handle) -> Tree:
        engine = (handle.state["engine_pid"], handle.state["engine_start"])
        if not engine[0] and (remembered := self._kept.remembered(kernel_id_of(handle))):
            engine = (remembered.state["engine_pid"], remembered.state["engine_start"])
        if handle.state["boot_id"] != self._kept.boot_id:
            engine = (0, 0)
        return Tree(kernel_id_of(handle), self._kept.owner, engine)

    # Acting, in a thread.

    def _compile_shim(self) -> None:
        # Compiled once per start of the agent: a script that is run is compiled anew each time (4 ms).
        with self._compile:
            self._shim.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            for compiled, name in ((self._shim, "shim.py"), (self._command_shim, "command_shim.py")):
                source = Path(__file__).with_name(name)
                py_compile.compile(str(source), cfile=str(compiled), doraise=True)

    def _restock(self) -> None:
        try:
            self._spares.restock()
        except OSError as error:
            log.warning("no supervisor can be started ahead: kernels start slower", error=str(error))

    def _create(self, launch: Launch) -> Handle:
        if there := self._kept.remembered(launch.kernel_id):
            return there
        folder = self._kept.of(launch.kernel_id)
        try:
            self.work_dir(launch.kernel_id).mkdir(parents=True, exist_ok=True, mode=0o700)
            _write(launch.files)
            if not self._shim.exists():
                self._compile_shim()
            pid, said = self._spawn(launch, folder)
        except (OSError, ValueError, py_compile.PyCompileError) as error:
            raise CreateFailed(f"cannot start {launch.argv[0]!r}: {error}") from None
        word, *rest = said.split() or [""]
        if word == "started":
            now = procfs.stat(pid)
            start = now.start if now else 0
            handle = self._kept.handle(launch.kernel_id, (pid, start), (int(rest[0]), int(rest[1])))
            return replace(handle, started=True)
        if word == "exec":
            self._reap_soon(pid)
            raise CreateFailed(
                f"cannot run {launch.argv[0]!r}: {os.strerror(int(rest[0]))}",
                next_step="give the path of a program that is on the agent's node",
            )
        if word == "busy" and (there := self._kept.remembered(launch.kernel_id)):
            self._reap_soon(pid)
            return there
        detail = (folder / "shim.log").read_text(errors="replace")[-500:].strip()
        raise CreateFailed(f"the supervisor did not start its program. {detail}".strip())

    def _spawn(self, launch: Launch, folder: Path) -> tuple[int, str]:
        """Number of the supervisor, and what it said. posix_spawn shares our memory, so it takes well under 1
        ms however large the agent is."""
        say_r, say_w = os.pipe2(os.O_CLOEXEC)
        try:
            logs = self._logs.folder(launch.kernel_id)
            arguments = [str(folder), str(logs), *self._log_limits, str(launch.stop_grace_s), *launch.argv]
            marks = {
                KERNEL_ID_VAR: launch.kernel_id,
                OWNER_VAR: self._kept.owner,
                PORT_VAR: str(launch.port),
            }
            env = launch.env | marks
            execution.keep_environment(folder, env)
            if launch.apps:  # a spare has no room for them
                env[APPS_VAR] = encode_ports(launch.apps)
            elif done := self._spares.order(arguments, env, marks):
                return done
            env[SHIM_VAR] = "1"
            shim_log = (str(folder / "shim.log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", str(self._shim), *arguments],
                env,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, *shim_log),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                    (os.POSIX_SPAWN_DUP2, say_w, 3),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD],
            )
            os.close(say_w)
            say_w = -1
            poll = select.poll()
            poll.register(say_r, select.POLLIN)
            return pid, os.read(say_r, 100).decode() if poll.poll(SAY_TIMEOUT_MS) else ""
        finally:
            os.close(say_r)
            if say_w >= 0:
                os.close(say_w)

    def _reap_soon(self, pid: int) -> None:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)  # it has said its last word

    def _stop(self, handle: Handle, grace_s: float) -> None:
        pid, start = self._kept.shim_of(handle)
        if not procfs.alive(pid, start):
            return
        temporary = self._kept.folder_of(handle) / f"grace.{os.getpid()}.{threading.get_ident()}"
        try:
            temporary.write_text(str(grace_s))
            temporary.replace(temporary.with_name("grace"))
        except FileNotFoundError:
            pass  # its folder was deleted: it uses the grace that it was started with
        procfs.send_signal(pid, signal.SIGTERM, lambda: procfs.alive(pid, start))

    def _destroy(self, handle: Handle) -> None:
        pid, start = self._kept.shim_of(handle)
        if procfs.alive(pid, start):
            # The supervisor knows its tree exactly, whatever it did to hide: let it end it.
            self._stop(handle, 0)
            self._await_end(pid, start)
            if procfs.alive(pid, start):
                procfs.send_signal(pid, signal.SIGKILL, lambda: procfs.alive(pid, start))
                self._await_end(pid, start)
        self._reap(pid)
        folder = self._kept.folder_of(handle)
        if not (folder / "exit").exists():
            self._tree(handle).kill()
        execution.wait_until_none(folder / "execs")
        shutil.rmtree(folder, ignore_errors=True)

    def _await_end(self, pid: int, start: int) -> None:
        try:
            pin = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            if procfs.alive(pid, start):
                poll = select.poll()
                poll.register(pin, select.POLLIN)
                poll.poll(int(_HURRY_S * 1000))
        finally:
            os.close(pin)


def _write(files: tuple[File, ...]) -> None:
    for file in files:
        path = Path(file.path)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, file.mode), "w") as opened:
            opened.write(file.text)
