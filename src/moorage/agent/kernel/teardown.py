"""Teardown of one kernel: terminates it, finds and destroys its remains, and retries until the
runtime answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from moorage.agent.kernel.checkpoint import KernelRecord
from moorage.agent.kernel.context import AgentContext
from moorage.agent.kernel.reload import ReloadFailed, send_signal
from moorage.agent.runtimes import Handle, Runtime, RuntimeFailed
from moorage.agent.runtimes.signals import SignalRefused
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import KernelSpec

_RETRY_S = 1.0
# Time limit for sending a signal. The runtime may wait until the signal handler ends.
_SIGNAL_S = 2.0
# The runtime kills a kernel at the end of its grace period. If it does not, the agent does so after
# this margin.
STOP_MARGIN_S = 3.0


class Termination:
    """Termination of a kernel: gracefully first, by force once its grace period has passed. A
    program with a checkpoint signal gets that signal first, with extra time to save its state and
    exit.

    The deadline is set at the first attempt, whatever its result: a kernel that cannot be stopped
    gracefully is destroyed anyway. A restarted agent starts over.
    """

    def __init__(self, context: AgentContext, spec: KernelSpec) -> None:
        self._context = context
        self._spec = spec
        self._clock = context.clock
        self._deadline: float | None = None
        self._checkpoint_sent = not spec.checkpoint_signal
        self._stops_at: float | None = None  # when the program's time to save its state ends
        self._stop_sent = False

    def begin(self) -> None:
        if self._deadline is None:
            self._deadline = self._clock.monotonic() + self._spec.stop_s + STOP_MARGIN_S

    @property
    def is_overdue(self) -> bool:
        return self._deadline is not None and self._clock.monotonic() >= self._deadline

    async def advance(
        self, runtime: Runtime, handle: Handle, log: FilteringBoundLogger, *, running: bool
    ) -> float:
        """Take the next step. ``running``: whether the program has started. Returns the seconds
        until the step after it."""
        self.begin()
        assert self._deadline is not None

        try:
            if self.is_overdue:
                await runtime.destroy(handle)
                return 0
            if not self._checkpoint_sent:
                self._checkpoint_sent = True
                await self._ask_for_checkpoint(handle, log, running=running)

            if (
                self._stops_at is not None
                and (left := self._stops_at - self._clock.monotonic()) > 0
            ):
                return left

            if not self._stop_sent:
                await runtime.stop(handle, self._spec.stop_grace_s)
                self._stop_sent = True
                self._deadline = self._clock.monotonic() + self._spec.stop_grace_s + STOP_MARGIN_S
        except (OSError, RuntimeFailed) as error:
            log.warning("cannot stop the kernel, retrying", error=str(error))
            return _RETRY_S

        return max(0.0, self._deadline - self._clock.monotonic())

    async def _ask_for_checkpoint(
        self, handle: Handle, log: FilteringBoundLogger, *, running: bool
    ) -> None:
        """Send the checkpoint signal. A program that cannot be asked is stopped immediately, but a
        kernel in a cluster waits, because others may still need it."""
        spec = self._spec
        asked = False
        if running:
            try:
                async with asyncio.timeout(_SIGNAL_S):
                    await send_signal(self._context, spec, handle, spec.checkpoint_signal)
                asked = True
            except TimeoutError:  # the handler is saving the state and has not returned
                asked = True
            except (OSError, RuntimeFailed, ReloadFailed, SignalRefused) as error:
                log.warning("the program got no checkpoint signal", error=str(error))

        if asked or (running and spec.cluster is not None):
            self._stops_at = self._clock.monotonic() + spec.checkpoint_grace_s
            log.info(
                "asked to save its state", signal=spec.checkpoint_signal, s=spec.checkpoint_grace_s
            )


async def remove(context: AgentContext, record: KernelRecord, log: FilteringBoundLogger) -> None:
    """Remove everything that belongs to an ended kernel except its log. The checkpoint record is
    removed last. Release its ports."""
    runtime = context.runtimes.get(record.spec.runtime)
    if record.handle is not None and runtime is not None:
        await destroy(runtime, record.handle, log)
    elif runtime is not None:
        await find_and_destroy(runtime, record.kernel_id, log)

    if record.spec.workspace == "drop":
        await asyncio.to_thread(context.workspaces.remove_temporary, record.spec)

    try:
        await asyncio.to_thread(context.checkpoint.remove, record.kernel_id)
    except OSError as error:
        log.error("cannot remove the kernel's checkpoint record", error=str(error))

    for port in record.node_ports:
        context.ports.release(port)


async def find_and_destroy(
    runtime: Runtime,
    kernel_id: KernelId,
    log: FilteringBoundLogger,
    on_no_answer: Callable[[], None] = lambda: None,
) -> None:
    """Destroy a kernel without a handle: no start is recorded, but a crash may have lost the
    record."""
    handle = await find(runtime, kernel_id, log, on_no_answer)
    if handle is not None:
        await destroy(runtime, handle, log)


async def find(
    runtime: Runtime,
    kernel_id: KernelId,
    log: FilteringBoundLogger,
    on_no_answer: Callable[[], None] = lambda: None,
) -> Handle | None:
    """The kernel's handle, or None if the runtime has no such kernel. ``on_no_answer`` is called
    for each failed attempt. Until the runtime answers, the kernel may exist and keeps its
    devices."""
    while True:
        try:
            return (await runtime.find()).get(kernel_id)
        except (OSError, RuntimeFailed) as error:
            log.warning("cannot determine whether the kernel exists, retrying", error=str(error))
            on_no_answer()
            await asyncio.sleep(_RETRY_S)


async def destroy(runtime: Runtime, handle: Handle, log: FilteringBoundLogger) -> None:
    while True:
        try:
            return await runtime.destroy(handle)
        except (OSError, RuntimeFailed) as error:
            log.warning("cannot destroy the kernel completely, retrying", error=str(error))
            await asyncio.sleep(_RETRY_S)
