"""Supervised tasks: they are restarted after every failure, are shown while they fail, and never
end silently."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.interruption import at, interrupt

from moorage.common.aio import supervisor
from moorage.common.aio.supervisor import FAILING_AFTER, SupervisedTask
from moorage.common.aio.tasks import FAILURES, spawn
from moorage.common.model.errors import StoreUnavailable


class Broken(BaseException):
    """Not an ``Exception``, like the panics of some extension modules."""


ERRORS = [
    ValueError,
    RuntimeError,
    OSError,
    MemoryError,
    StoreUnavailable,
    asyncio.CancelledError,
    Broken,
]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.001)


class Work:
    """Work with several awaits, one of them in another coroutine. ``rounds`` grows with each
    pass."""

    def __init__(self) -> None:
        self.rounds = 0
        self.runs = 0
        self.advanced = asyncio.Event()

    async def run(self) -> None:
        self.runs += 1
        while True:
            await asyncio.sleep(0)
            await self._inner()
            self.rounds += 1
            self.advanced.set()

    async def _inner(self) -> None:
        try:
            async with asyncio.timeout(60):
                await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)

    async def until(self, rounds: int) -> None:
        async with asyncio.timeout(20):
            while self.rounds < rounds:
                self.advanced.clear()
                await self.advanced.wait()


@given(numbers=st.lists(st.integers(0, 12), min_size=1, max_size=6), error=st.sampled_from(ERRORS))
@examples(40)
def test_failure_at_any_await_restarts_the_task(
    numbers: list[int], error: type[BaseException]
) -> None:
    async def scenario() -> None:
        work = Work()
        faults = list(numbers)

        async def faulty() -> None:
            await (
                interrupt(work.run(), at(faults.pop(0), error("injected")))
                if faults
                else work.run()
            )

        task = SupervisedTask("test", faulty)
        # A pass has three awaits, so all failures occur within the first 6 * 12 / 3 passes.
        await work.until(25)
        assert (work.runs, faults) == (len(numbers) + 1, [])
        assert task.failures == (0 if error is StoreUnavailable else len(numbers))
        await task.close()
        assert task.done

    with pytest.MonkeyPatch.context() as patch, structlog.testing.capture_logs() as logs:
        patch.setattr(supervisor, "FIRST_PAUSE_S", 0.001)
        asyncio.run(scenario())

    assert logs, "a failure is never silent"


async def test_return_of_endless_work_is_a_failure() -> None:
    runs = asyncio.Queue[int]()

    async def returns() -> None:
        runs.put_nowait(1)

    task = SupervisedTask("test", returns)
    async with asyncio.timeout(10):
        for _ in range(3):
            await runs.get()

    assert "has returned" in task.last_error
    await task.close()


async def test_finite_work_is_restarted_until_it_returns() -> None:
    errors = [ValueError("first"), asyncio.CancelledError()]

    async def work() -> None:
        if errors:
            raise errors.pop(0)

    task = SupervisedTask("test", work, finite=True)
    async with asyncio.timeout(10):
        await task.wait()

    assert (task.failures, errors) == (2, [])


async def test_problem_is_shown_until_the_task_recovers() -> None:
    failing = True
    counted = FAILURES["loop"]

    async def work() -> None:
        while True:
            if failing:
                raise ValueError("bad weather")
            task.end_step()
            await asyncio.sleep(0.001)

    task = SupervisedTask("loop", work)
    async with asyncio.timeout(10):
        while task.failures < FAILING_AFTER:
            assert supervisor.problems() == {}
            await asyncio.sleep(0)

        assert "bad weather" in supervisor.problems()["loop"]
        failing = False
        while supervisor.problems():
            await asyncio.sleep(0.001)

    assert FAILURES["loop"] - counted == task.failures
    await task.close()


async def test_outage_is_no_problem_of_the_task() -> None:
    attempts = asyncio.Queue[int]()

    async def work() -> None:
        attempts.put_nowait(1)
        raise StoreUnavailable

    with structlog.testing.capture_logs() as logs:
        task = SupervisedTask("loop", work)
        async with asyncio.timeout(10):
            for _ in range(5):
                await attempts.get()

    assert supervisor.problems() == {}
    assert [line["event"] for line in logs] == ["task waits for what it needs"], "once per outage"
    await task.close()


async def test_step_that_does_not_end_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "HANGING_S", 0.01)

    async def work() -> None:
        task.begin_step()
        await asyncio.Event().wait()

    task = SupervisedTask("loop", work)
    async with asyncio.timeout(10):
        while not supervisor.problems():
            await asyncio.sleep(0.005)

    assert "has not ended" in supervisor.problems()["loop"]
    await task.close()
    assert supervisor.problems() == {}


async def test_repeated_failures_do_not_fill_the_log() -> None:
    async def work() -> None:
        raise ValueError("bad weather")

    with structlog.testing.capture_logs() as logs:
        task = SupervisedTask("test", work, longest_pause_s=0.001)
        async with asyncio.timeout(10):
            while task.failures < 20:
                await asyncio.sleep(0.001)

        await task.close()

    assert len(logs) == FAILING_AFTER
    assert all(line["exc_info"] for line in logs)


async def test_close_ends_a_task_whose_cleanup_fails() -> None:
    started = asyncio.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("cleanup failed")

    task = SupervisedTask("test", work)
    await started.wait()
    async with asyncio.timeout(10):
        await task.close()

    assert task.done


async def test_cancelled_supervisor_is_not_restarted() -> None:
    """At the end of the event loop, everything is cancelled without ``close``."""
    started = asyncio.Event()

    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    async def owner() -> None:
        task = SupervisedTask("test", work)
        await task.wait()

    owning = spawn("owner", owner())
    await started.wait()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()

    async with asyncio.timeout(10):
        await asyncio.gather(*others, return_exceptions=True)

    assert owning.cancelled()


PROGRAM = """
import asyncio, structlog
from moorage.common.aio.supervisor import SupervisedTask

def broken(logger, name, event):
    raise OSError("no space left for the log")

async def main():
    structlog.configure(processors=[broken])
    async def work():
        raise ValueError("bad weather")
    task = SupervisedTask("agent.link", work)
    await asyncio.sleep(30)

asyncio.run(main())
"""


def test_process_exits_with_an_error_when_the_supervisor_fails() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=20
    )
    assert ended.returncode == supervisor.EXIT_CODE
    assert "the supervisor of task agent.link failed: OSError" in ended.stderr
