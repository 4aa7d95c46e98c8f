"""Teardown of one kernel: finds and destroys what remains of it, and retries until the runtime answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from moorage.agent.kernel.context import AgentContext
from moorage.agent.runtimes import Handle, Runtime, RuntimeFailed
from moorage.agent.state.checkpoint import KernelRecord
from moorage.common.model.ids import KernelId

_RETRY_S = 1.0


async def remove(context: AgentContext, record: KernelRecord, log: FilteringBoundLogger) -> None:
    """Remove everything of an ended kernel except its log, the checkpoint record last. Release its ports."""
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
    """Destroy a kernel without a handle. No start is recorded, but a crash may have lost the record."""
    handle = await find(runtime, kernel_id, log, on_no_answer)
    if handle is not None:
        await destroy(runtime, handle, log)


async def find(
    runtime: Runtime,
    kernel_id: KernelId,
    log: FilteringBoundLogger,
    on_no_answer: Callable[[], None] = lambda: None,
) -> Handle | None:
    """The kernel's handle, or None if the runtime has no such kernel. ``on_no_answer`` is called for each
    failed attempt: until the runtime answers, the kernel may exist, and keeps its devices."""
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
