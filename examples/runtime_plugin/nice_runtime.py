"""Runtime ``custom:nice``: processes on the node, with a low CPU priority."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, Field

from moorage.agent.runtimes import CreateFailed, Handle, Launch, ProcessRuntime
from moorage.agent.runtimes.base import Isolation
from moorage.agent.runtimes.plugins import AgentParts, RuntimePlugin
from moorage.agent.state.logs import LogStore
from moorage.common.model.ids import KernelId


class NiceSettings(BaseModel, extra="forbid"):
    """Section ``[agent.plugins.nice]`` of the agent's configuration."""

    level: int = Field(10, ge=1, le=19)


class NiceRuntime(ProcessRuntime):
    """Starts the same kernels as the process runtime, but through nice(1). It has a separate
    directory, so that neither runtime mistakes the other's kernels for its own."""

    name = "custom:nice"

    def __init__(self, state: Path, logs: LogStore, level: int) -> None:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        super().__init__(state, logs, log_max_bytes=10_000_000, log_keep_files=3)
        self._level = level

    async def probe(self) -> Isolation:
        await super().probe()
        return Isolation.of("the runtime custom:nice does not isolate kernels", "")

    async def create(self, launch: Launch) -> Handle:
        if launch.isolated:
            raise CreateFailed("the runtime custom:nice is for administrators only", clean=True)
        argv = ("nice", "-n", str(self._level), *launch.argv)
        return self._own(await super().create(replace(launch, argv=argv)))

    async def find(self) -> dict[KernelId, Handle]:
        return {
            kernel_id: self._own(handle) for kernel_id, handle in (await super().find()).items()
        }

    def _own(self, handle: Handle) -> Handle:
        return replace(handle, runtime=self.name)


def create(parts: AgentParts, settings: NiceSettings) -> NiceRuntime:
    return NiceRuntime(parts.state / "nice", parts.logs, settings.level)


plugin = RuntimePlugin(interface=1, create=create, settings=NiceSettings)
