"""Proxy worker: a complete proxy on one of its parent's listening sockets."""

from __future__ import annotations

import asyncio

from moorage.common.aio import gc
from moorage.common.config.settings import ProxySettings
from moorage.proxy import Proxy
from moorage.proxy.control.worker_slot import WorkerSlot
from moorage.server.process import shutdown_event

# How long a new worker waits for its first route table before it serves without a table.
_TABLE_S = 10.0
_LOOK_S = 0.02


def worker_settings(settings: ProxySettings) -> ProxySettings:
    """The settings of a worker. Its health and metrics are only for its parent; to the manager, all
    workers are one proxy."""
    own = {"internal_listen": "127.0.0.1:0", "allowed_hosts": settings.allowed_hosts}
    return settings.model_copy(update=own)


async def serve_worker(proxy: Proxy, slot: WorkerSlot) -> int:
    """Serve until SIGTERM arrives or the parent has ended; then finish the running requests."""
    shutdown = shutdown_event()
    loop = asyncio.get_running_loop()
    async with proxy:
        gc.freeze_startup_objects()

        def parent_is_gone() -> None:
            loop.remove_reader(slot.parent_fd)
            shutdown.set()

        loop.add_reader(slot.parent_fd, parent_is_gone)  # the parent never sends anything
        for _ in range(round(_TABLE_S / _LOOK_S)):
            if proxy.ready or shutdown.is_set():
                break
            await asyncio.sleep(_LOOK_S)

        slot.tell(internal=proxy.internal_address)
        await shutdown.wait()
        loop.remove_reader(slot.parent_fd)

    slot.tell(metrics=proxy.metrics_text())
    return 0
