"""Interruption of coroutines: exceptions thrown into them at chosen awaits, as if those had
failed."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any

import pytest

from moorage.common.aio.supervisor import SupervisedTask
from moorage.common.aio.tasks import spawn

# Called before each await: the exception to throw into it, or None.
Fault = Callable[[], BaseException | None]


@types.coroutine
def interrupt(work: Coroutine[Any, Any, Any], fault: Fault) -> Generator[Any, Any, Any]:
    """Run ``work``, and at each of its awaits, however deep, throw the exception that ``fault``
    returns into it."""
    step: Callable[[], Any] = partial(work.send, None)
    while True:
        try:
            awaited = step()
        except StopIteration as result:
            return result.value

        if (error := fault()) is not None:
            step = partial(work.throw, error)
            continue

        try:
            sent = yield awaited
        except BaseException as thrown:  # noqa: BLE001  passed on
            step = partial(work.throw, thrown)
        else:
            step = partial(work.send, sent)


def at(number: int, error: BaseException) -> Fault:
    """Throw ``error`` once, at await ``number``, counted from 0."""
    remaining = number

    def fault() -> BaseException | None:
        nonlocal remaining
        remaining -= 1
        return error if remaining == -1 else None

    return fault


class TaskFaults:
    """Faults of supervised tasks. ``install`` replaces ``SupervisedTask`` in a module that starts
    some."""

    def __init__(self) -> None:
        self._armed: dict[str, list[Fault]] = {}
        self.thrown = 0

    def install(self, patch: pytest.MonkeyPatch, module: types.ModuleType) -> None:
        patch.setattr(module, "SupervisedTask", self._start)

    def install_spawn(self, patch: pytest.MonkeyPatch, module: types.ModuleType) -> None:
        """Also interrupt the tasks that the tasks of ``module`` spawn: ``NAME.x`` gets the faults
        of ``NAME``."""

        def start(name: str, work: Coroutine[Any, Any, Any]) -> Any:
            async def faulty() -> Any:
                return await interrupt(work, lambda: self._fault(name.rpartition(".")[0]))

            task = spawn(name, faulty())
            # a task that never ran has not started its work
            task.add_done_callback(lambda _: work.close())
            return task

        patch.setattr(module, "spawn", start)

    def arm(self, name: str, number: int, error: BaseException) -> None:
        """From now on, throw ``error`` into the tasks called ``name`` at their await ``number``."""
        self._armed.setdefault(name, []).append(at(number, error))

    def disarm(self) -> None:
        self._armed.clear()

    def _start(self, name: str, run: Callable[[], Any], **options: Any) -> SupervisedTask:
        async def faulty() -> None:
            await interrupt(run(), lambda: self._fault(name))

        return SupervisedTask(name, faulty, **options)

    def _fault(self, name: str) -> BaseException | None:
        for armed in self._armed.get(name, ()):
            if (error := armed()) is not None:
                self.thrown += 1
                return error
        return None
