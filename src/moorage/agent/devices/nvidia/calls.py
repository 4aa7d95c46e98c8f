"""Calls to the NVIDIA driver on a separate thread, so that a call that never returns blocks nothing
else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class DriverHangs(Exception):
    """A call did not return in time. The message contains the time limit."""


class DriverCalls:
    """Sequential calls, each limited to ``limit_s`` seconds.

    After a call that takes longer, every call fails immediately until the late one has returned.
    The thread ends with the process.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._queue: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        # Call numbers: the newest call, the last one that returned, and the last one that was late.
        self._started = 0
        self._returned = 0
        self._late = 0

    def call(self, function: Callable[[], T]) -> T:
        """Return the result of ``function``, or raise its exception. Raises ``DriverHangs``."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nvidia-driver", daemon=True)
                self._thread.start()

        if self._returned < self._late:
            raise self._hangs()

        future: Future[T] = Future()
        self._queue.put((function, future))
        try:
            return future.result(self._limit_s)
        except FutureTimeout:
            future.cancel()
            self._late = self._started
            raise self._hangs() from None

    def _hangs(self) -> DriverHangs:
        return DriverHangs(f"the driver has not answered for {self._limit_s:g} s: see `dmesg`")

    def _run(self) -> None:
        while True:
            function, future = self._queue.get()
            if not future.set_running_or_notify_cancel():
                continue  # the caller has given up

            self._started += 1
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001  reraised in the caller's thread
                future.set_exception(error)
            finally:
                self._returned = self._started
