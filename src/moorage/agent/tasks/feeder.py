"""Task feeder: takes tasks from the manager to the runners on this node, and brings back how they
ended.

The manager records which kernel has a task before the kernel gets it, and a runner's journal says
what it did. Both files outlive this process, so another one continues from them: an end that is
sent twice changes nothing, and a task that was given twice is written once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import structlog

from moorage.agent.devices.usage.sampler import RunningKernel
from moorage.agent.tasks import feeding, folder
from moorage.agent.tasks.journal import Journal, TaskEnd, TaskRef, lost
from moorage.agent.tasks.launch import task_folder, workers
from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.pb import agent_pb2
from moorage.common.model.cluster import MAIN
from moorage.common.model.ids import AgentId, KernelId
from moorage.common.model.kernel import KernelSpec

log = structlog.get_logger("moorage.agent.tasks")
# Seconds between two looks at the journals.
TICK_S = 0.25
# A kernel with nothing to send asks again after this many seconds: other kernels may have ended the
# list, or returned tasks.
IDLE_S = 2.0
_ENDS_AT_ONCE = 500
_RETRY_S = 1.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class TaskLink(Protocol):
    async def exchange(self, request: agent_pb2.TaskExchange) -> agent_pb2.TaskAnswer | None:
        """The manager's answer; None if there was none."""
        ...


@dataclass(frozen=True, slots=True)
class ListResult:
    """How the session's list stands. ``finished``: no task of it is left."""

    total: int
    succeeded: int
    failed: int
    lost: int
    finished: bool

    @property
    def success(self) -> bool:
        return self.finished and self.succeeded == self.total

    def __str__(self) -> str:
        if self.success:
            return f"all {self.total:,} tasks succeeded"
        parts = [f"{self.failed:,} of {self.total:,} tasks failed"] if self.failed else []
        if self.lost:
            of = "LOST" if parts else f"of {self.total:,} tasks are LOST"
            parts.append(f"{self.lost:,} {of}")
        if left := self.total - self.succeeded - self.failed - self.lost:
            parts.append(f"{left:,} of {self.total:,} tasks did not run")
        return ", ".join(parts)


class TaskService(Protocol):
    async def settle(self, spec: KernelSpec, folder: Path) -> ListResult | None:
        """Send how the tasks of a kernel ended that has ended. Waits for a manager. None if the
        kernel has no tasks."""
        ...


class NoTasks:
    """The service of agents that run no task lists."""

    async def settle(self, spec: KernelSpec, folder: Path) -> ListResult | None:
        return None


@dataclass(slots=True)
class _Feed:
    """One kernel's exchange. ``held``: the tasks that it was given and has not ended.
    ``got_fewer``: the last answer had fewer tasks than were wanted."""

    journal: Journal = field(default_factory=Journal)
    read_at: int = 0
    seq: int = 0
    held: set[TaskRef] = field(default_factory=set)
    is_known: bool = False  # what the queue holds has been read
    is_finished: bool = False
    got_fewer: bool = False
    ended_per_s: float = 0.0
    looked_at: float = 0.0
    asked_at: float = 0.0
    shown: tuple[int, int] = (0, 0)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class TaskFeeder:
    """The feeder. ``folder_of``: where a kernel's files are on this node."""

    def __init__(self, agent_id: AgentId, link: TaskLink, clock: Clock) -> None:
        self._agent_id = agent_id
        self._link = link
        self._clock = clock
        self._feeds: dict[KernelId, _Feed] = {}

    async def tick(
        self,
        running: Mapping[KernelId, RunningKernel],
        folder_of: Callable[[KernelSpec], Path | None],
    ) -> None:
        """Exchange the tasks of the running kernels."""
        tending = []
        for kernel in running.values():
            spec = kernel.spec
            parent = folder_of(spec) if spec is not None and spec.tasks is not None else None
            if spec is not None and parent is not None:
                work = self._tend(spec, parent / task_folder(spec.kernel_id))
                tending.append(spawn(f"tasks.{spec.kernel_id}", work))

        try:
            await asyncio.gather(*tending)
        finally:
            await cancel_and_wait(*tending)

        for kernel_id in self._feeds.keys() - running.keys():
            if not self._feeds[kernel_id].lock.locked():
                del self._feeds[kernel_id]

    async def settle(self, spec: KernelSpec, parent: Path) -> ListResult | None:
        path = parent / task_folder(spec.kernel_id)
        feed = self._feeds.setdefault(spec.kernel_id, _Feed())
        boot = await asyncio.to_thread(_BOOT_ID.read_text)
        async with feed.lock:
            while await self._read(feed, path):
                pass

            running = lost(feed.journal.started)
            complete = feed.journal.boot == boot.strip()
            while True:
                ends = [*feed.journal.ended.values(), *running]
                request = self._request(
                    spec,
                    feed,
                    ends[:_ENDS_AT_ONCE],
                    over=len(ends) <= _ENDS_AT_ONCE,
                    complete=complete,
                )
                answer = await self._link.exchange(request)
                if answer is None:
                    await asyncio.sleep(_RETRY_S)
                    continue

                if not answer.known:
                    return None
                for end in ends[:_ENDS_AT_ONCE]:
                    feed.journal.ended.pop((end.number, end.attempt), None)
                running = [end for end in running if end not in ends[:_ENDS_AT_ONCE]]
                if request.over:
                    return _result(answer)

    async def _tend(self, spec: KernelSpec, path: Path) -> None:
        feed = self._feeds.setdefault(spec.kernel_id, _Feed())
        if feed.lock.locked():
            return

        async with feed.lock:
            if not feed.is_known and not await self._begin(feed, path):
                return

            before = len(feed.held)
            await self._read(feed, path)
            now = self._clock.monotonic()
            self._measure(feed, before - len(feed.held), now)
            ends = list(feed.journal.ended.values())[:_ENDS_AT_ONCE]
            more = feeding.wanted(workers(spec), len(feed.held), feed.ended_per_s)
            request = self._request(spec, feed, ends, wanted=0 if feed.is_finished else more)
            waits = feed.got_fewer and now - feed.asked_at < IDLE_S
            if not ends and (waits or not request.wanted):
                return

            feed.asked_at = now
            answer = await self._link.exchange(request)
            if answer is None or not answer.known:
                return

            for end in ends:
                feed.journal.ended.pop((end.number, end.attempt), None)
            feed.got_fewer = len(answer.given) < request.wanted
            await self._deliver(spec, feed, path=path, answer=answer)

    async def _begin(self, feed: _Feed, path: Path) -> bool:
        """Continue from what an earlier run of the agent wrote. False until the runner is there."""
        if not await asyncio.to_thread(folder.exists, path):
            return False
        queue = await asyncio.to_thread(folder.queue_state, path)
        while await self._read(feed, path):
            pass
        feed.seq = queue.seq
        feed.is_finished = queue.finished
        feed.held = set(queue.refs - feed.journal.over())
        feed.is_known = True
        return True

    async def _read(self, feed: _Feed, path: Path) -> bool:
        data = await asyncio.to_thread(folder.read_from, path, "journal", feed.read_at)
        feed.read_at += len(data)
        feed.journal.read(data)
        feed.held.difference_update(feed.journal.ended)
        return bool(data)

    def _measure(self, feed: _Feed, ended: int, now: float) -> None:
        if feed.looked_at:
            passed = max(now - feed.looked_at, TICK_S)
            feed.ended_per_s += (ended / passed - feed.ended_per_s) / 2
        feed.looked_at = now

    def _request(
        self, spec: KernelSpec, feed: _Feed, ends: list[TaskEnd], **fields: Any
    ) -> agent_pb2.TaskExchange:
        return agent_pb2.TaskExchange(
            agent_id=self._agent_id,
            kernel_id=spec.kernel_id,
            received=feed.seq,
            **fields,
            ended=[
                agent_pb2.TaskEnd(
                    number=end.number,
                    attempt=end.attempt,
                    state=end.state,
                    exit_code=end.exit_code,
                    started_at=end.started_at,
                    seconds=end.seconds,
                    output=end.output,
                    detail=end.detail,
                )
                for end in ends
            ],
        )

    async def _deliver(
        self, spec: KernelSpec, feed: _Feed, *, path: Path, answer: agent_pb2.TaskAnswer
    ) -> None:
        """Write the answer to the runner's queue."""
        given = [task for task in answer.given if task.seq > feed.seq]
        values: list[Any] = [[task.seq, task.number, task.attempt, task.line] for task in given]
        result = _result(answer)
        done = answer.succeeded + answer.failed + answer.lost
        if feed.shown != (done, answer.total):
            values.insert(0, {"done": done, "of": answer.total})

        is_main = spec.cluster is None or spec.cluster.hostname == MAIN
        ends = answer.finished and is_main and not feed.is_finished
        if ends:
            values.append({"end": str(result), "success": result.success})
        if not values:
            return

        if not await asyncio.to_thread(folder.append, path, values):
            feed.is_known = False  # it is read again, and what is missing is given again
            log.warning("cannot give tasks to a kernel", kernel=spec.kernel_id, path=str(path))
            return

        feed.is_finished = feed.is_finished or ends
        feed.shown = done, answer.total
        feed.seq = max([feed.seq, *(task.seq for task in given)])
        feed.held.update((task.number, task.attempt) for task in given)


def _result(answer: agent_pb2.TaskAnswer) -> ListResult:
    return ListResult(
        answer.total, answer.succeeded, answer.failed, lost=answer.lost, finished=answer.finished
    )
