"""Step outputs: kept when a kernel has succeeded, fetched before a kernel starts, and removed when
no longer needed.

The manager relays an output from the agent that has it. An agent keeps asking until it learns that
the output does not exist, because the other agent or the manager may be about to return. Fetched
outputs are kept for other kernels on this node, so a kernel that is ordered again continues where
it was.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Protocol

import structlog

from moorage.agent.outputs.store import NodeOutputs, OutputDamaged
from moorage.agent.runtimes.batch.copying import CopyIn, CopyOut
from moorage.common.link.messages import LogPiece, LogRequest
from moorage.common.model.errors import NotFound
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelInput, KernelSpec

log = structlog.get_logger("moorage.agent.outputs")
_RETRY_S = 2.0
_DAMAGED_TRIES = 3
OpenLog = Callable[[LogRequest], AsyncGenerator[bytes | LogPiece, None]]


class OutputRequests(Protocol):
    """``agent.link.OutputLink``."""

    def fetch(
        self, kernel_id: KernelId, session_id: SessionId, output: str
    ) -> AsyncGenerator[bytes, None]: ...

    async def needed(self, sessions: Sequence[SessionId]) -> frozenset[SessionId] | None: ...


class Outputs(Protocol):
    """The interface that kernels use."""

    def path(self, input_: KernelInput) -> Path: ...

    async def keep(self, spec: KernelSpec, work: Path) -> None:
        """See ``OutputService``. Raises ``MoorageError`` and ``OSError``."""
        ...

    async def fetch(self, spec: KernelSpec, on_progress: Callable[[str], None]) -> None:
        """See ``OutputService``. Raises ``MoorageError`` and ``OSError``."""
        ...


class NoOutputs:
    """``Outputs`` for an agent whose kernels have none."""

    def path(self, input_: KernelInput) -> Path:
        raise NotFound(f"output {input_.output!r} is not on this node")

    async def keep(self, spec: KernelSpec, work: Path) -> None: ...

    async def fetch(self, spec: KernelSpec, on_progress: Callable[[str], None]) -> None: ...


class OutputService:
    """An agent's outputs. ``in_use`` returns the sessions that have a kernel here."""

    def __init__(
        self, store: NodeOutputs, link: OutputRequests, in_use: Callable[[], Collection[SessionId]]
    ) -> None:
        self._store = store
        self._link = link
        self._in_use = in_use
        self._fetching: defaultdict[tuple[SessionId, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._taken: dict[
            KernelId, frozenset[SessionId]
        ] = {}  # in use by kernels that are about to start

    def path(self, input_: KernelInput) -> Path:
        return self._store.files(input_.session_id, input_.output)

    async def keep(self, spec: KernelSpec, work: Path) -> None:
        await asyncio.to_thread(self._store.keep, spec.session_id, work, spec.outputs)

    async def fetch(self, spec: KernelSpec, on_progress: Callable[[str], None]) -> None:
        self._taken[spec.kernel_id] = frozenset(input_.session_id for input_ in spec.inputs)
        try:
            for number, input_ in enumerate(spec.inputs, 1):
                async with self._fetching[input_.session_id, input_.output]:
                    if not await asyncio.to_thread(
                        self._store.has, input_.session_id, input_.output
                    ):
                        on_progress(f"fetching input {number} of {len(spec.inputs)}, {input_.path}")
                        await self._fetch(spec.kernel_id, input_, on_progress)
        finally:
            del self._taken[spec.kernel_id]

    async def _fetch(
        self, kernel_id: KernelId, input_: KernelInput, on_progress: Callable[[str], None]
    ) -> None:
        damaged = 0
        while True:
            try:
                return await self._try(kernel_id, input_)
            except OutputDamaged as error:
                damaged += 1
                if damaged == _DAMAGED_TRIES:
                    raise

                problem = error.message
            except ConnectionError as error:
                problem = str(error)

            log.warning("cannot fetch an input yet, trying again", kernel=kernel_id, why=problem)
            on_progress(f"fetching input {input_.path}: {problem}")
            await asyncio.sleep(_RETRY_S)

    async def _try(self, kernel_id: KernelId, input_: KernelInput) -> None:
        copy = CopyIn(
            lambda file, whole: self._store.receive(input_.session_id, input_.output, file, whole)
        )
        try:
            async with aclosing(
                self._link.fetch(kernel_id, input_.session_id, input_.output)
            ) as pieces:
                async for piece in pieces:
                    await copy.write(piece)

            await copy.end_input()
            await copy.read()
        finally:
            copy.disconnect()

    def opener(self, open_log: OpenLog) -> OpenLog:
        """A function that opens logs with ``open_log``, and also opens these outputs."""

        def opened(request: LogRequest) -> AsyncGenerator[bytes | LogPiece, None]:
            return self._read(request) if request.output else open_log(request)

        return opened

    async def _read(self, request: LogRequest) -> AsyncGenerator[bytes, None]:
        copy = CopyOut(
            lambda sink: self._store.send(SessionId(request.session_id), request.output, sink)
        )
        try:
            while (piece := await copy.read()) is not None:
                yield piece[1]
        finally:
            copy.disconnect()

    async def remove_unneeded(self) -> None:
        """Remove the outputs that, according to a manager, no step needs any more. If there is no
        answer, all are kept."""
        kept = await asyncio.to_thread(self._store.sessions)
        for idle in [key for key, lock in self._fetching.items() if not lock.locked()]:
            del self._fetching[idle]

        if not kept or (needed := await self._link.needed(kept)) is None:
            return

        stay = needed.union(self._in_use(), *self._taken.values())
        for session_id in kept:
            if session_id not in stay:
                try:
                    await asyncio.to_thread(self._store.remove, session_id)
                except OSError as error:
                    log.warning("cannot remove an output", session=session_id, error=str(error))
