"""Waits for a change in one kernel: the runtime reports one, a request arrives, or a timeout
passes."""

from __future__ import annotations

import asyncio

from structlog.typing import FilteringBoundLogger

from moorage.agent.runtimes import Handle, Runtime, RuntimeFailed
from moorage.common.aio.tasks import cancel_and_wait, raise_failure, spawn
from moorage.common.model.status import ObservedState

_RETRY_S = 1.0


async def wait_for_change(
    runtime: Runtime,
    handle: Handle,
    last_state: ObservedState,
    timeout_s: float | None,
    *,
    wakeup: asyncio.Event,
    log: FilteringBoundLogger,
) -> None:
    """Return when the kernel may have left ``last_state``, when ``wakeup`` is set, or after
    ``timeout_s``."""
    waiting = spawn("kernel.wait", _wait_on_runtime(runtime, handle, last_state, log))
    waiting.add_done_callback(lambda _: wakeup.set())

    try:
        async with asyncio.timeout(timeout_s):
            await wakeup.wait()
    except TimeoutError:
        pass
    finally:
        await cancel_and_wait(waiting)

    # Otherwise, a runtime whose ``wait`` fails immediately would be observed without a pause.
    raise_failure(waiting)


async def _wait_on_runtime(
    runtime: Runtime, handle: Handle, last_state: ObservedState, log: FilteringBoundLogger
) -> None:
    try:
        await runtime.wait(handle, last_state)
    except (OSError, RuntimeFailed) as error:
        log.warning("cannot watch the kernel, retrying", error=str(error))
        await asyncio.sleep(_RETRY_S)
