"""Directories of process kernels, and discovery of kernels from directories and running processes.

STATE/kernels/<kernel id>/ holds ``work`` (HOME and working directory), ``pids``, ``exit``,
``grace`` and ``lock``. For commands run inside the kernel, it also holds ``environ`` and the lock
``execs``.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import structlog

from moorage.agent.runtimes import procfs
from moorage.agent.runtimes.base import (
    APPS_VAR,
    KERNEL_ID_VAR,
    OWNER_VAR,
    PORT_VAR,
    Handle,
    RuntimeObservation,
)
from moorage.agent.runtimes.process.shim import SHIM_VAR
from moorage.common.model.ids import KernelId
from moorage.common.model.service_ports import decode_untrusted_ports
from moorage.common.model.status import ObservedState

log = structlog.get_logger("moorage.agent.process")
NAME = "process"


def kernel_id_of(handle: Handle) -> KernelId:
    return KernelId(handle.state["kernel_id"])


class KernelDirectories:
    """The directories. ``state``: the agent's state directory, which identifies the agent's kernels
    among all processes. ``uids``: the uids of isolated kernels."""

    def __init__(self, state: Path, uids: range = range(0)) -> None:
        self._uids = uids
        self.owner = str(state.resolve())
        self._kernels = state / "kernels"
        self.boot_id = procfs.boot_id()

    def path(self, kernel_id: KernelId) -> Path:
        return self._kernels / kernel_id

    def path_of(self, handle: Handle) -> Path:
        return self.path(kernel_id_of(handle))

    def shim_of(self, handle: Handle) -> tuple[int, int]:
        """The supervisor's pid and start time; (0, 0) if it was started before the last boot."""
        if handle.state["boot_id"] != self.boot_id:
            return 0, 0
        return handle.state["shim_pid"], handle.state["shim_start"]

    def handle(
        self,
        kernel_id: KernelId,
        shim: tuple[int, int] = (0, 0),
        engine: tuple[int, int] = (0, 0),
        boot_id: str | None = None,
    ) -> Handle:
        """A handle. ``shim`` and ``engine``: their pids and start times. ``boot_id``: the current
        boot by default."""
        state: dict[str, str | int] = {"kernel_id": kernel_id, "boot_id": boot_id or self.boot_id}
        state |= {
            "shim_pid": shim[0],
            "shim_start": shim[1],
            "engine_pid": engine[0],
            "engine_start": engine[1],
        }
        return Handle(NAME, state)

    def load(self, kernel_id: KernelId) -> Handle | None:
        """A kernel's handle from its directory; None if there is no record of a start."""
        try:
            fields = (self.path(kernel_id) / "pids").read_text().split()
            shim_pid, shim_start, engine_pid, engine_start = map(int, fields[:4])
            return self.handle(
                kernel_id, (shim_pid, shim_start), (engine_pid, engine_start), fields[4]
            )
        except FileNotFoundError:
            if (self.path(kernel_id) / "exit").exists():
                return self.handle(kernel_id)
            return None
        except (ValueError, IndexError):
            log.warning("cannot parse the pids file of a kernel", kernel=kernel_id)
            return None

    def exit_status(self, handle: Handle) -> RuntimeObservation | None:
        """The exit recorded by the supervisor; None if there is none yet."""
        return self.exit_of(self.path_of(handle))

    @staticmethod
    def exit_of(folder: Path) -> RuntimeObservation | None:
        try:
            text = (folder / "exit").read_text()
        except FileNotFoundError:
            return None

        status = json.loads(text)
        if status["exec"]:
            return RuntimeObservation(
                ObservedState.EXITED,
                127,
                never_started=True,
                detail=f"cannot run the program: {os.strerror(status['exec'])}",
            )

        # A shim from an earlier release does not know about leases.
        expired = bool(status.get("lease"))
        oom = bool(status["oom"])
        return RuntimeObservation(
            ObservedState.EXITED, status["code"], oom=oom, lease_expired=expired
        )

    def find(self) -> dict[KernelId, Handle]:
        """All kernels that have a directory or a process."""
        found: dict[KernelId, Handle] = {}
        for kernel_id in map(KernelId, os.listdir(self._kernels) if self._kernels.is_dir() else ()):
            found[kernel_id] = self.load(kernel_id) or self.handle(kernel_id)

        for pid in procfs.pids():
            env = procfs.environ(pid)
            if not env or env.get(OWNER_VAR) != self.owner or KERNEL_ID_VAR not in env:
                continue
            if procfs.uid(pid) in self._uids:
                continue  # its environment may be forged, but not its supervisor's

            kernel_id = KernelId(env[KERNEL_ID_VAR])
            stat = procfs.stat(pid)
            if stat is None or not stat.alive:
                continue

            handle = found.get(kernel_id) or self.handle(kernel_id)
            if SHIM_VAR in env:
                if not handle.state["shim_pid"]:
                    handle = self.handle(kernel_id, (pid, stat.start))

                port = int(env.get(PORT_VAR) or 0)
                apps = decode_untrusted_ports(env.get(APPS_VAR, ""))
                handle = replace(handle, port=port, apps=apps)

            found[kernel_id] = handle

        return found
