"""What is kept of process kernels on the node: their folders, and the marks in what runs.

STATE/kernels/<kernel id>/ holds ``work`` (HOME and working directory), ``pids``, ``exit``, ``grace``,
``lock``, and for commands that are run inside ``environ`` and the lock ``execs``.
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
    """``state``: the agent's state directory, which names its kernels among all processes of the node."""

    def __init__(self, state: Path) -> None:
        self.owner = str(state.resolve())
        self._kernels = state / "kernels"
        self.boot_id = procfs.boot_id()

    def of(self, kernel_id: KernelId) -> Path:
        return self._kernels / kernel_id

    def folder_of(self, handle: Handle) -> Path:
        return self.of(kernel_id_of(handle))

    def shim_of(self, handle: Handle) -> tuple[int, int]:
        """Number and start time of the supervisor; (0, 0) when it cannot live any more."""
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
        """``shim`` and ``engine``: number and start time. ``boot_id``: of another life of the node."""
        state: dict[str, str | int] = {"kernel_id": kernel_id, "boot_id": boot_id or self.boot_id}
        state |= {
            "shim_pid": shim[0],
            "shim_start": shim[1],
            "engine_pid": engine[0],
            "engine_start": engine[1],
        }
        return Handle(NAME, state)

    def remembered(self, kernel_id: KernelId) -> Handle | None:
        """From the folder: None if it was never started, as far as the folder knows."""
        try:
            words = (self.of(kernel_id) / "pids").read_text().split()
            shim_pid, shim_start, engine_pid, engine_start = map(int, words[:4])
            return self.handle(kernel_id, (shim_pid, shim_start), (engine_pid, engine_start), words[4])
        except FileNotFoundError:
            if (self.of(kernel_id) / "exit").exists():
                return self.handle(kernel_id)
            return None
        except (ValueError, IndexError):
            log.warning("unreadable pids file", kernel=kernel_id)
            return None

    def ending(self, handle: Handle) -> RuntimeObservation | None:
        """What its supervisor wrote of its end; None: nothing yet."""
        try:
            text = (self.folder_of(handle) / "exit").read_text()
        except FileNotFoundError:
            return None
        said = json.loads(text)
        if said["exec"]:
            return RuntimeObservation(
                ObservedState.EXITED, 127, refused=True, detail=f"cannot run it: {os.strerror(said['exec'])}"
            )
        return RuntimeObservation(ObservedState.EXITED, said["code"], oom=bool(said["oom"]))

    def find(self) -> dict[KernelId, Handle]:
        """All kernels of which there is a folder or a process."""
        found: dict[KernelId, Handle] = {}
        for kernel_id in map(KernelId, os.listdir(self._kernels) if self._kernels.is_dir() else ()):
            remembered = self.remembered(kernel_id)
            found[kernel_id] = remembered or self.handle(kernel_id)
        for pid in procfs.pids():
            env = procfs.environ(pid)
            if not env or env.get(OWNER_VAR) != self.owner or KERNEL_ID_VAR not in env:
                continue
            kernel_id, now = KernelId(env[KERNEL_ID_VAR]), procfs.stat(pid)
            if now is None or not now.alive:
                continue
            handle = found.get(kernel_id) or self.handle(kernel_id)
            if SHIM_VAR in env and not handle.state["shim_pid"]:
                handle = self.handle(kernel_id, (pid, now.start))
            port, apps = int(env.get(PORT_VAR) or 0), decode_untrusted_ports(env.get(APPS_VAR, ""))
            found[kernel_id] = replace(handle, port=port, apps=apps)
        return found
