"""A node for tests of the agent's kernel tasks: a kernel manager over a fake runtime that can
fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moorage.agent.engines import NodeInfo
from moorage.agent.execution.kept_workspaces import Workspaces
from moorage.agent.kernel.checkpoint import CheckpointFiles
from moorage.agent.kernel.context import AgentContext
from moorage.agent.kernel.leases import KernelLeases
from moorage.agent.kernel.manager import KernelManager
from moorage.agent.runtimes import FakeRuntime, Handle, Launch, RuntimeObservation
from moorage.agent.runtimes.fake import FakeNode
from moorage.agent.state.logs import LogStore
from moorage.agent.state.ports import PortAllocator
from moorage.common.aio.clock import SystemClock
from moorage.common.link.messages import Observation, Orders
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import ObservedState as S
from moorage.common.model.status import SessionType

CLOCK = SystemClock()


class FailingRuntime(FakeRuntime):
    """Fails with an error that no caller expects. The methods in ``failing`` always fail, or fail
    this many times. ``after``: they fail only once they have taken effect."""

    def __init__(self, logs: LogStore, node: FakeNode, max_jobs: int | None = None) -> None:
        super().__init__(logs, node, max_jobs=max_jobs)
        self.failing: dict[str, int] = {}
        self.after = False
        self.silent: RuntimeObservation | None = None
        self.created: list[KernelId] = []

    def _fail(self, method: str, *, after: bool) -> None:
        if after is self.after and self.failing.get(method, 0) > 0:
            self.failing[method] -= 1
            raise RuntimeError(f"a bug in {method}")

    async def _run(self, method: str, work: Callable[[], Any]) -> Any:
        self._fail(method, after=False)
        result = await work()
        self._fail(method, after=True)
        return result

    async def create(self, launch: Launch) -> Handle:
        async def create() -> Handle:
            self.created.append(launch.kernel_id)
            return await super(FailingRuntime, self).create(launch)

        return await self._run("create", create)  # type: ignore[no-any-return]

    async def observe(self, handle: Handle) -> RuntimeObservation:
        if self.silent is not None:
            return self.silent
        return await self._run("observe", lambda: super(FailingRuntime, self).observe(handle))  # type: ignore[no-any-return]

    async def wait(self, handle: Handle, last_state: S) -> None:
        await self._run("wait", lambda: super(FailingRuntime, self).wait(handle, last_state))

    async def stop(self, handle: Handle, grace_s: float) -> None:
        await self._run("stop", lambda: super(FailingRuntime, self).stop(handle, grace_s))

    async def destroy(self, handle: Handle) -> None:
        await self._run("destroy", lambda: super(FailingRuntime, self).destroy(handle))

    async def log_tail(self, handle: Handle, max_bytes: int = 8192) -> str:
        return await self._run(
            "log_tail", lambda: super(FailingRuntime, self).log_tail(handle, max_bytes)
        )  # type: ignore[no-any-return]


ALWAYS = 1_000_000


class Node:
    """A kernel manager over a fake node, and the orders that it receives. ``before``: the agent
    whose kernels and state directory this one takes over. ``max_jobs``: set if its runtime is a
    site. ``windows``: the coalescing windows of the changes so far, in seconds."""

    def __init__(
        self, state: Path, before: Node | None = None, max_jobs: int | None = None
    ) -> None:
        logs = LogStore(state / "logs")
        self.node = before.node if before is not None else FakeNode()
        self.runtime = FailingRuntime(logs, self.node, max_jobs)
        self.windows: list[float] = []
        self._changed = asyncio.Event()
        self._generation = 0
        self.kernels = KernelManager(
            AgentContext(
                clock=CLOCK,
                checkpoint=CheckpointFiles(state),
                ports=PortAllocator("22000-22099", "127.0.0.1", clock=CLOCK),
                logs=logs,
                runtimes={"fake": self.runtime},
                node=NodeInfo(),
                host="127.0.0.1",
                process_dir=lambda kernel_id: state / kernel_id,
                workspaces=Workspaces(state),
                leases=KernelLeases(state, CLOCK),
            ),
            on_change=self._on_change,
        )

    def _on_change(self, within_s: float) -> None:
        self.windows.append(within_s)
        self._changed.set()

    def order(self, *specs: KernelSpec) -> None:
        self._generation += 1
        assert self.kernels.apply_orders(Orders(self._generation, specs))

    def find(self, spec: KernelSpec) -> Observation | None:
        """Returns None once the kernel is removed, although its end is reported once more."""
        if spec.kernel_id not in {*self.kernels.states(), *self.node.kernels}:
            return None
        return next((o for o in self.kernels.observations() if o.kernel_id == spec.kernel_id), None)

    async def until(self, spec: KernelSpec, *states: S | None) -> Observation | None:
        """The first observation in one of ``states``; None means that the kernel is removed."""
        async with asyncio.timeout(30):
            while ((found := self.find(spec)) and found.state) not in states:
                self._changed.clear()
                await self._changed.wait()
        return found


def kernel(**fields: Any) -> KernelSpec:
    given: dict[str, Any] = {
        "kernel_id": KernelId(CLOCK.new_id()),
        "session_id": SessionId(CLOCK.new_id()),
        "session_name": "some-session",
        "session_type": SessionType.INTERACTIVE,
        "runtime": "fake",
        "engine": "custom",
        "served_name": "m",
        "command": ("sleep", "600"),
        "secret": "s",
        "stop_grace_s": 0.1,
    }
    return KernelSpec(**given | fields)
