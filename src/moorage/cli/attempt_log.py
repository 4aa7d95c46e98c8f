"""The log of an attempt that ``moorage run`` waits for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from moorage.cli.cluster_logs import ClusterLog, note_loss
from moorage.cli.output import LogWriter, printable
from moorage.common.model.status import LIVE
from moorage.sdk import ApiError, Unreachable
from moorage.sdk.log_positions import SeenLog

if TYPE_CHECKING:
    from moorage.cli.context import Cli
    from moorage.common.views.resources import SessionView
    from moorage.sdk import Client


class AttemptLog:
    """The log of one attempt, copied to ``sink``. ``shown``: some output was copied. If an outage
    interrupts ``copy``, ``finish`` reads the rest."""

    def __init__(
        self, cli: Cli, client: Client, view: SessionView, sink: LogWriter, *, attempt: int
    ) -> None:
        self._cli = cli
        self._client = client
        self._view = view
        self._sink = sink
        self._attempt = attempt
        self._cluster = (
            ClusterLog(cli, client, view=view, sink=sink, attempt=attempt, follow=True)
            if view.spec.size > 1
            else None
        )
        self._seen = SeenLog(complete=True)
        self._cut_off = ""

    @property
    def shown(self) -> bool:
        return not self._seen.is_empty if self._cluster is None else self._cluster.shown

    async def copy(self) -> None:
        """Copy until the attempt ends."""
        if self._cluster is not None:
            await self._cluster.copy()
            return
        await self._copy()
        is_live = self._view.status in LIVE and self._attempt == self._view.attempt
        if self._cut_off and (self.shown or is_live):
            self._cli.note(f"moorage: the log was cut off ({self._cut_off}); waiting for the end")

    async def finish(self) -> None:
        """Copy the rest of a log that was cut off. Call this once the attempt has ended."""
        if self._cluster is not None:
            if self._cluster.is_cut_off:
                await self._cluster.copy()
        elif self._cut_off:
            await self._copy()
            if self._cut_off and self.shown:
                self._cli.note(f"moorage: the end of the log was not read ({self._cut_off})")

    async def _copy(self) -> None:
        self._cut_off = ""
        try:
            pieces = self._client.sessions.logs(
                self._view.id,
                follow=True,
                attempt=self._attempt,
                seen=self._seen,
                on_loss=partial(note_loss, self._cli, self._view.name),
            )
            async for piece in pieces:
                self._sink.write(piece)

            self._sink.write(b"", final=True)
        except (ApiError, Unreachable) as error:
            self._cut_off = printable(str(error), one_line=True)
