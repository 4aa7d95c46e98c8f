"""Record keeper: one kernel's record and its copy in the checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from moorage.agent.kernel.checkpoint import CheckpointFiles, KernelRecord


class RecordKeeper:
    """The keeper of a record. ``record``: the kernel's record, which is the same as in the
    checkpoint unless a change is waiting to be saved. ``on_change`` is called for each new
    record."""

    def __init__(
        self,
        record: KernelRecord,
        checkpoint: CheckpointFiles,
        on_change: Callable[[], None],
        log: FilteringBoundLogger,
    ) -> None:
        self.record = record
        self._checkpoint = checkpoint
        self._on_change = on_change
        self._log = log
        self._waits_to_be_saved = False

    def put(self, record: KernelRecord, *, save_later: bool = False) -> None:
        """Replace the record. With ``save_later``, the next ``save_changes`` writes it. Otherwise,
        the caller does."""
        self.record = record
        self._waits_to_be_saved |= save_later
        self._on_change()

    async def save_changes(self) -> None:
        if self._waits_to_be_saved:
            await self.save()

    async def save(self) -> None:
        """Write the record to the checkpoint. A failure, such as a full disk, must not end the
        kernel. At worst, a restarted agent has an older record."""
        record = self.record
        self._waits_to_be_saved = False
        try:
            await asyncio.to_thread(self._checkpoint.write, record)
        except OSError as error:
            self._log.error("cannot write the kernel's checkpoint record", error=str(error))
