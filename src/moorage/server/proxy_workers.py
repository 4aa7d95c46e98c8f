"""Proxy workers: processes that share one port, and their parent, which replaces them.

The parent opens a listening socket for each worker (SO_REUSEPORT: the system spreads connections
over them), and keeps it open when the worker ends, so that the next worker takes over the same
socket and no connection is lost. The parent serves no requests, and workers can continue without
it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog
from aiohttp import web

from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.config.settings import ProxySettings
from moorage.common.model.addresses import split_address
from moorage.common.model.errors import StartupError
from moorage.proxy.control.gathered_health import GatheredHealth
from moorage.proxy.control.shared_limits import SharedMemory, create
from moorage.proxy.control.worker_slot import WorkerSlot
from moorage.proxy.core.limits.ledger import WORKERS
from moorage.server.process import shutdown_event

log = structlog.get_logger("moorage.proxy")

# How long a worker may take to start, and how long it may take to end after its requests' time
# limit.
_START_S = 60.0
_END_S = 10.0
# Pauses before a worker that ended unexpectedly is restarted.
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
# The longest line that a worker writes: its metrics.
_LINE = 64 * 1024 * 1024


@dataclass(eq=False)
class _Worker:
    """A worker process. ``place``: the index of its listening socket. ``internal``: the address of
    its own health endpoint."""

    number: int
    place: int
    process: asyncio.subprocess.Process
    lines: asyncio.StreamReader
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    internal: tuple[str, int] | None = None


class ProxyWorkers:
    """The parent of a proxy's workers. ``run`` returns the proxy's exit code. SIGHUP replaces all
    workers one after another; SIGTERM stops them. Both let running requests finish, for
    ``proxy.drain_timeout_s``."""

    def __init__(self, settings: ProxySettings) -> None:
        self._settings = settings
        self._sockets: list[socket.socket] = []
        self._limits_fd = create()

        # The parent grants nothing.
        self._ledger = SharedMemory(self._limits_fd, WORKERS - 1).ledger
        self._workers: dict[int, _Worker] = {}
        self._numbers = set(range(WORKERS - 1))  # those that no worker uses
        self._current: list[_Worker | None] = [None] * settings.workers
        self._health = GatheredHealth(self._internal, settings.workers)
        self._is_stopping = False
        self._watches: set[asyncio.Task[None]] = set()

    async def run(self, on_ready: Callable[[tuple[str, int], tuple[str, int]], None]) -> int:
        """Run the workers. ``on_ready`` receives the addresses of the API and of health and
        metrics."""
        shutdown = shutdown_event()
        loop = asyncio.get_running_loop()
        address = self._listen()
        runner = web.AppRunner(self._health.app(), access_log=None, shutdown_timeout=0.5)
        reload = asyncio.Event()
        loop.add_signal_handler(signal.SIGHUP, reload.set)

        try:
            internal = await self._listen_health(runner)
            first = [await self._start(place) for place in range(len(self._sockets))]
            for place, worker in enumerate(first):
                if not await self._is_up(worker):
                    raise StartupError(
                        "a worker of the proxy did not start",
                        next_step=(
                            "see its output above; proxy.workers = 0 serves without workers"
                        ),
                    )

                self._current[place] = worker

            on_ready(address, internal)
            reloading = spawn("proxy.reload", self._reload_when(reload))
            await shutdown.wait()
            await cancel_and_wait(reloading)
        finally:
            await self._stop()
            await runner.cleanup()

        return 0

    def _listen(self) -> tuple[str, int]:
        host, port = split_address(self._settings.listen)
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            # With SO_REUSEPORT, a second proxy would silently receive half of the connections.
            with socket.socket(family, kind, protocol) as alone:
                alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                alone.bind(address)
                bound = alone.getsockname()

            for _ in range(self._settings.workers):
                listening = socket.socket(family, kind, protocol)
                self._sockets.append(listening)
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                listening.bind(bound)
                listening.listen(1024)
        except OSError as error:
            raise StartupError(
                f"the proxy cannot listen on {host}:{port} (proxy.listen): "
                f"{error.strerror or error}",
                next_step="stop the program that uses it, or set proxy.listen to another address",
            ) from error

        return str(bound[0]), int(bound[1])

    async def _listen_health(self, runner: web.AppRunner) -> tuple[str, int]:
        host, port = split_address(self._settings.internal_listen)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise StartupError(
                f"the proxy cannot listen on {host}:{port} (proxy.internal_listen): "
                f"{error.strerror}",
                next_step=(
                    "stop the program that uses it, or set proxy.internal_listen to another address"
                ),
            ) from error

        bound = runner.addresses[0]
        return str(bound[0]), int(bound[1])

    def _internal(self) -> dict[int, tuple[str, int]]:
        return {w.number: w.internal for w in self._workers.values() if w.internal is not None}

    async def _start(self, place: int) -> _Worker:
        """Start a new process with the same command, which reads its settings again."""
        number = min(self._numbers)
        self._numbers.remove(number)
        ours, theirs = socket.socketpair()
        slot = WorkerSlot(number, self._sockets[place].fileno(), self._limits_fd, theirs.fileno())
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *sys.orig_argv[1:],
                env=os.environ | slot.environment(),
                pass_fds=slot.inherited,
            )

        lines, writer = await asyncio.open_connection(sock=ours, limit=_LINE)
        worker = self._workers[number] = _Worker(number, place, process, lines)
        watch = spawn(f"proxy.worker.{number}", self._watch(worker, writer))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

        return worker

    async def _is_up(self, worker: _Worker) -> bool:
        """Wait until the worker serves. Returns whether it does."""
        waits = [spawn("proxy.worker.wait", event.wait()) for event in (worker.ready, worker.ended)]
        await asyncio.wait(waits, timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
        await cancel_and_wait(*waits)
        return worker.ready.is_set() and not worker.ended.is_set()

    async def _watch(self, worker: _Worker, writer: asyncio.StreamWriter) -> None:
        """Wait for a worker to end, and replace it unless it was asked to end."""
        while line := await worker.lines.readline():
            message = json.loads(line)
            if (internal := message.get("internal")) is not None:
                worker.internal = str(internal[0]), int(internal[1])
                worker.ready.set()
            if (metrics := message.get("metrics")) is not None:
                worker.internal = None
                self._health.add_departed(metrics)

        code = await worker.process.wait()
        writer.close()
        del self._workers[worker.number]
        self._ledger.forget_worker(worker.number)
        self._numbers.add(worker.number)
        worker.ended.set()
        pause_s = _FIRST_PAUSE_S
        while not self._is_stopping and self._current[worker.place] is worker:
            log.error(
                "a worker has ended and is replaced",
                worker=worker.number,
                code=code,
                pause_s=pause_s,
            )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            following = await self._start(worker.place)
            if await self._is_up(following):
                self._current[worker.place] = following
            else:
                self._leave(following)

    async def _reload_when(self, requested: asyncio.Event) -> None:
        while True:
            await requested.wait()
            requested.clear()
            for place, before in enumerate(self._current):
                following = await self._start(place)
                if not await self._is_up(following):
                    log.error(
                        "a new worker did not start; the old ones keep running",
                        next_step="see its output above; SIGHUP tries again",
                    )
                    self._leave(following)
                    break

                self._current[place] = following
                if before is not None:
                    self._leave(before)
            else:
                log.info("workers were replaced", count=len(self._current))

    def _leave(self, worker: _Worker) -> None:
        """Let a worker finish its requests and end."""
        with suppress(ProcessLookupError):
            worker.process.send_signal(signal.SIGTERM)

    async def _stop(self) -> None:
        self._is_stopping = True
        for listening in self._sockets:
            listening.close()
        for worker in list(self._workers.values()):
            self._leave(worker)

        watches = list(self._watches)
        if watches:
            _, late = await asyncio.wait(watches, timeout=self._settings.drain_timeout_s + _END_S)
            for worker in list(self._workers.values()) if late else ():
                with suppress(ProcessLookupError):
                    worker.process.kill()

            await asyncio.gather(*watches, return_exceptions=True)

        os.close(self._limits_fd)
