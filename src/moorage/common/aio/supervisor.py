"""Supervisor for the tasks that a process depends on: a task that fails is restarted with backoff.

No supervised task ends with only a log line. It has failed whenever its work ends unrequested: with
an exception, with a return from work that should never end, or with a ``CancelledError`` that came
out of an awaited future or call rather than from a cancellation of the task. If the supervisor
itself fails, the process exits with ``EXIT_CODE``, so that the service manager restarts it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import structlog

from moorage.common.aio.tasks import FAILURES, cancel_and_wait, cancel_requested, spawn
from moorage.common.model.errors import MoorageError

log = structlog.get_logger("moorage.supervisor")

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
# Longest pause while another service, such as Postgres, is unavailable. This is not a failure of
# the task.
OUTAGE_PAUSE_S = 2.0
# Failures in a row after which a task counts as failing repeatedly.
FAILING_AFTER = 3
# A task that has run for this long without a failure has recovered.
STEADY_S = 60.0
# A step that has not ended after this time counts as hanging.
HANGING_S = 300.0
# After the first failures in a row, at most one failure per this interval is logged.
LOG_EVERY_S = 60.0
EXIT_CODE = 70  # EX_SOFTWARE of sysexits.h

_tasks: set[SupervisedTask] = set()


class EndedUnexpectedly(Exception):
    """Work that should never end has returned."""


class SupervisedTask:
    """Runs ``run`` as a task that is restarted when it fails, until ``close``.

    ``name`` is a metric label, so it must have few values; ``key`` distinguishes tasks of the same
    name in the log. ``run`` must be able to continue after a failure at any point. It never returns
    unless the task is ``finite``; then a return ends the task. ``longest_pause_s`` bounds the
    backoff.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[], Awaitable[None]],
        *,
        key: str = "",
        finite: bool = False,
        longest_pause_s: float = LONGEST_PAUSE_S,
    ) -> None:
        self.name = name
        self.key = key
        self.failures = 0
        self.last_error = ""
        self._run = run
        self._finite = finite
        self._longest_pause_s = longest_pause_s
        self._loop = asyncio.get_running_loop()

        # Consecutive failed attempts: the total, and those not explained by an outage.
        self._attempts = 0
        self._failures_in_a_row = 0
        self._started_at: float | None = None
        self._step_began_at: float | None = None
        self._logged_at = 0.0
        self._task = spawn(f"{name}.{key}" if key else name, self._supervise())
        self._task.add_done_callback(self._on_end)
        _tasks.add(self)

    @property
    def done(self) -> bool:
        return self._task.done()

    async def wait(self) -> None:
        """Wait until a finite task has ended."""
        await asyncio.wait([self._task])

    async def close(self) -> None:
        """Cancel the task, and wait until it has ended."""
        await cancel_and_wait(self._task)

    def begin_step(self) -> None:
        """Start a step of the work. ``end_step`` must follow within ``HANGING_S``."""
        self._step_began_at = self._loop.time()

    def end_step(self) -> None:
        """End a step that succeeded: the task has recovered from earlier failures."""
        self._step_began_at = None
        self._recover()

    @property
    def problem(self) -> str:
        """Why the task does not work at present; empty while it works or has failed only once or
        twice."""
        now = self._loop.time()
        if self._step_began_at is not None and (hanging_s := now - self._step_began_at) > HANGING_S:
            return f"one step has taken {hanging_s:.0f} s and has not ended"
        if self._failures_in_a_row < FAILING_AFTER or self._is_steady(now):
            return ""
        return f"failed {self._failures_in_a_row} times in a row: {self.last_error}"

    async def _supervise(self) -> None:
        while True:
            self._started_at = self._loop.time()
            try:
                await self._run()
                if self._finite or cancel_requested():
                    return

                raise EndedUnexpectedly("the task has returned")
            except BaseException as error:
                # An exception during a requested cancellation is a failure of the cleanup. The task
                # must end all the same.
                if cancel_requested() or isinstance(
                    error, KeyboardInterrupt | SystemExit | GeneratorExit
                ):
                    raise

                pause_s = self._fail(error)

            await asyncio.sleep(pause_s)

    def _fail(self, error: BaseException) -> float:
        """Count and log a failure. Returns the pause before the restart."""
        now = self._loop.time()
        if self._is_steady(now):
            self._recover()

        self._started_at = None
        self._step_began_at = None
        self._attempts += 1
        outage = isinstance(error, MoorageError) and error.retry_after_s is not None
        if not outage:
            self.failures += 1
            self._failures_in_a_row += 1
            self.last_error = repr(error)
            FAILURES[self.name] += 1

        longest_s = min(self._longest_pause_s, OUTAGE_PAUSE_S) if outage else self._longest_pause_s
        pause_s = min(FIRST_PAUSE_S * 2.0 ** min(self._attempts - 1, 20), longest_s)
        loud = self._attempts == 1 or (not outage and self._failures_in_a_row <= FAILING_AFTER)
        if loud or now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            self._log_failure(error, outage, pause_s)

        return pause_s

    def _log_failure(self, error: BaseException, outage: bool, pause_s: float) -> None:
        bound = log.bind(task=self.name, key=self.key or None, error=repr(error))
        if outage:
            bound.warning("task waits for what it needs")
            return
        in_a_row = self._failures_in_a_row
        trace = error if in_a_row <= FAILING_AFTER else None
        bound.error(
            "task failed and is restarted", failures=in_a_row, pause_s=pause_s, exc_info=trace
        )

    def _is_steady(self, now: float) -> bool:
        return self._started_at is not None and now - self._started_at >= STEADY_S

    def _recover(self) -> None:
        if self._failures_in_a_row >= FAILING_AFTER:
            log.info("task works again", task=self.name, key=self.key or None)
        self._attempts = 0
        self._failures_in_a_row = 0

    def _on_end(self, task: asyncio.Task[None]) -> None:
        _tasks.discard(self)
        if task.cancelled() or task.cancelling() or (error := task.exception()) is None:
            return
        if not isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
            _exit_process(self.name, error)


def problems() -> dict[str, str]:
    """This process's supervised tasks that do not work at present: the reason for each, by name."""
    found = {task.name: problem for task in _tasks if (problem := task.problem)}
    return dict(sorted(found.items()))


def _exit_process(name: str, error: BaseException) -> None:
    """Exit as in a crash, without cleanup. The next start recovers everything that is still
    running."""
    # This does not go through the log, which may itself have failed.
    os.write(
        2, f"moorage: the supervisor of task {name} failed: {error!r}; the process exits\n".encode()
    )
    os._exit(EXIT_CODE)
