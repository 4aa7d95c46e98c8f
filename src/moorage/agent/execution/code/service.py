"""Code execution on an agent: answers the manager's requests about runs, completions and code
kernels.

A request is sent as a command (decision 12), and its answer is that command's output, as JSON. A
run is not tied to a call: it continues when its caller or the manager is gone, and is found by its
id.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from moorage.agent.execution.code import kernelspecs
from moorage.agent.execution.code.batch import Batch
from moorage.agent.execution.code.kernel import CodeKernel, CodePlace, run_to_end
from moorage.agent.execution.code.kernelspecs import Kernelspec
from moorage.agent.execution.code.lane import Lane
from moorage.agent.execution.code.records import Run, RunRecords
from moorage.agent.runtimes.execution import STDOUT, Command
from moorage.common.aio.clock import Clock
from moorage.common.model.code_runs import MAX_WAIT_S, STAGES, RunPage
from moorage.common.model.errors import Conflict, InvalidInput, NotFound
from moorage.common.model.ids import KernelId

log = structlog.get_logger("moorage.agent.code")
_BATCH = "batch"
_CHUNK = 32 * 1024
Request = dict[str, Any]


class CodeAnswer:
    """An answer, which is read like a command's output."""

    def __init__(self, pieces: AsyncGenerator[bytes, None]) -> None:
        self._pieces = pieces
        self._rest = b""

    async def read(self) -> tuple[int, bytes] | None:
        if not self._rest:
            try:
                self._rest = await anext(self._pieces)
            except StopAsyncIteration:
                return None
        data = self._rest[:_CHUNK]
        self._rest = self._rest[_CHUNK:]
        return STDOUT, data

    async def write(self, data: bytes) -> None:
        pass

    async def end_input(self) -> None:
        pass

    async def resize(self, rows: int, cols: int) -> None:
        pass

    async def wait(self) -> int:
        return 0

    def disconnect(self) -> None:
        """Do nothing, because a run continues without a reader."""


@dataclass(slots=True)
class _Session:
    """The lanes of one kernel of a session: code kernels by the name of their kernelspec, and batch
    runs."""

    place: CodePlace
    lanes: dict[str, Lane]
    specs: list[Kernelspec]


class CodeService:
    """Runs code for an agent's kernels. ``find``: returns where a running kernel's code runs;
    raises ``NotFound``, ``Conflict`` and ``ExecFailed``. ``alive``: this agent's kernels.
    ``folder``: the folder for the records."""

    def __init__(
        self,
        find: Callable[[KernelId], CodePlace],
        alive: Callable[[], list[KernelId]],
        folder: Path,
        clock: Clock,
    ) -> None:
        self._find = find
        self._alive = alive
        self._clock = clock
        self._records = RunRecords(folder)
        self._sessions: dict[KernelId, _Session] = {}

    async def answer(self, kernel_id: KernelId, text: str) -> CodeAnswer:
        """Answer a request. Raises ``MoorageError`` if it is refused."""
        try:
            request = json.loads(text)
            operation = self._operations()[request["op"]]
        except (ValueError, KeyError, TypeError):
            raise InvalidInput(
                "this agent does not know the request", next_step="upgrade the agent"
            ) from None

        session = self._session(kernel_id)
        return CodeAnswer(await operation(kernel_id, session, request))

    def _operations(self) -> dict[str, Any]:
        return {
            "execute": self._execute,
            "read": self._read,
            "follow": self._follow,
            "input": self._input,
            "interrupt": self._interrupt,
            "complete": self._complete,
            "kernels": self._kernels,
            "restart": self._restart,
        }

    async def collect(self) -> None:
        """End the code kernels and remove the records of kernels that no longer exist."""
        alive = self._alive()
        for kernel_id in [k for k in self._sessions if k not in alive]:
            await self._end(self._sessions.pop(kernel_id))
        await self._records.keep_only(self._alive())

    async def close(self) -> None:
        """End all code kernels, which end with their agent."""
        sessions = self._sessions
        self._sessions = {}
        await asyncio.gather(*(self._end(session) for session in sessions.values()))

    @staticmethod
    async def _end(session: _Session) -> None:
        await asyncio.gather(*(lane.restart() for lane in session.lanes.values()))

    def _session(self, kernel_id: KernelId) -> _Session:
        place = self._find(kernel_id)
        if (known := self._sessions.get(kernel_id)) is None:
            known = self._sessions[kernel_id] = _Session(place, {}, [])
        return known

    async def _execute(
        self, kernel_id: KernelId, session: _Session, request: Request
    ) -> AsyncGenerator[bytes, None]:
        run_id = str(request.get("run_id") or self._clock.new_id())
        mode = request.get("mode", "query")
        asked: Request = {"mode": mode, "timeout_s": request.get("timeout_s")}
        if mode == "batch":
            lane = self._lane(session, _BATCH, lambda: Batch(session.place.run))
            asked |= {"lane": _BATCH} | {stage: request.get(stage) or "" for stage in STAGES}
        else:
            spec = await self._spec(session, str(request["language"]))
            lane = self._kernel_lane(session, spec)
            asked |= {
                "lane": spec.name,
                "code": request["code"],
                "stdin": bool(request.get("stdin", True)),
            }

        run, is_new = await self._records.start(kernel_id, run_id, asked)
        if is_new:
            lane.submit(run)

        return self._page(session, run, request)

    async def _read(
        self, kernel_id: KernelId, session: _Session, request: Request
    ) -> AsyncGenerator[bytes, None]:
        return self._page(session, await self._run(kernel_id, request), request)

    async def _follow(
        self, kernel_id: KernelId, session: _Session, request: Request
    ) -> AsyncGenerator[bytes, None]:
        return _items(await self._run(kernel_id, request), int(request.get("after", 0)))

    async def _input(
        self, kernel_id: KernelId, session: _Session, request: Request
    ) -> AsyncGenerator[bytes, None]:
        run = await self._run(kernel_id, request)
        lane = session.lanes.get(run.lane)
        if (
            lane is None
            or lane.current is not run
            or not lane.performer.give_input(run, request["text"])
        ):
            raise Conflict(
                f"run {run.run_id!r} is not asking for input",
                next_step="its status is waiting-input when it asks",
            )

        return self._page(session, run, request)

    async def _interrupt(
        self, kernel_id: KernelId, session: _Session, request: Request
    ) -> AsyncGenerator[bytes, None]:
        run = await self._run(kernel_id, request)
        if (lane := session.lanes.get(run.lane)) is not None:
            lane.interrupt(run)
        return self._page(session, run, request)

    async def _complete(
        self, kernel_id: KernelId, session: _Session, request: Request
    ) -> AsyncGenerator[bytes, None]:
        spec = await self._spec(session, str(request["language"]))
        lane = self._kernel_lane(session, spec)
        if lane.busy:
            raise Conflict(
                f"code kernel {spec.name!r} is busy",
                next_step="wait until its run ends, or interrupt it",
            )

        assert isinstance(lane.performer, CodeKernel)
        return _one(await lane.performer.complete(str(request["code"]), int(request["cursor"])))

    async def _kernels(
        self, kernel_id: KernelId, session: _Session, request: Request
    ) -> AsyncGenerator[bytes, None]:
        session.specs = await self._list(session.place)
        return _one(
            {"items": [_describe(spec, session.lanes.get(spec.name)) for spec in session.specs]}
        )

    async def _restart(
        self, kernel_id: KernelId, session: _Session, request: Request
    ) -> AsyncGenerator[bytes, None]:
        spec = await self._spec(session, str(request["language"]))
        if (lane := session.lanes.get(spec.name)) is not None:
            await lane.restart()
        return _one(_describe(spec, lane))

    async def _run(self, kernel_id: KernelId, request: Request) -> Run:
        return await self._records.get(kernel_id, str(request["run_id"]))

    def _kernel_lane(self, session: _Session, spec: Kernelspec) -> Lane:
        return self._lane(session, spec.name, lambda: CodeKernel(spec, session.place, self._clock))

    @staticmethod
    def _lane(session: _Session, name: str, performer: Callable[[], CodeKernel | Batch]) -> Lane:
        if name not in session.lanes:
            session.lanes[name] = Lane(name, performer())
        return session.lanes[name]

    async def _spec(self, session: _Session, language: str) -> Kernelspec:
        """A kernelspec. The kernelspecs are listed again only if the name is not known yet."""
        try:
            return kernelspecs.choose(session.specs, language)
        except NotFound:
            session.specs = await self._list(session.place)
            return kernelspecs.choose(session.specs, language)

    @staticmethod
    async def _list(place: CodePlace) -> list[Kernelspec]:
        _, output = await run_to_end(place.run, Command(("sh", "-c", kernelspecs.FIND)))
        return kernelspecs.parse(output)

    async def _page(
        self, session: _Session, run: Run, request: Request
    ) -> AsyncGenerator[bytes, None]:
        wait_s = min(float(request.get("wait_s") or 0.0), MAX_WAIT_S)
        found = await run.page(int(request.get("after") or 0), wait_s)
        lane = session.lanes.get(run.lane)
        async for piece in _one(_view(run, found, lane.position(run) if lane else 0)):
            yield piece


def _view(run: Run, found: RunPage, position: int) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "kernel": run.lane,
        "status": found.status,
        "console": list(found.items),
        "next": found.next,
        "exit_code": found.exit_code,
        "reason": found.reason,
        "waiting_for": position,
    }


def _describe(spec: Kernelspec, lane: Lane | None) -> dict[str, Any]:
    state = "none"
    if lane is not None and isinstance(lane.performer, CodeKernel):
        state = "busy" if lane.busy else "idle" if lane.performer.alive else "none"
    return {
        "name": spec.name,
        "language": spec.language,
        "display_name": spec.display_name,
        "state": state,
    }


async def _one(answer: dict[str, Any]) -> AsyncGenerator[bytes, None]:
    yield json.dumps(answer).encode()


async def _items(run: Run, after: int) -> AsyncGenerator[bytes, None]:
    """Yield a line for each item until the run ends."""
    at = after
    while True:
        while at < len(run.items):
            item = run.items[at]
            at = at + 1
            yield json.dumps({"seq": at, "item": item}).encode() + b"\n"
            if item["type"] == "end":
                return

        if at > len(run.items) or run.ended:
            return

        await run.changed()
