"""Merged logs of the kernels of a cluster: whole lines, each prefixed with its kernel's name."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from moorage.cli.output import LogWriter, printable
from moorage.sdk import ApiError, Unreachable
from moorage.sdk.log_positions import SeenLog

if TYPE_CHECKING:
    from moorage.cli.context import Cli
    from moorage.common.views.resources import SessionView
    from moorage.sdk import Client


class PrefixedLines:
    """A log's lines, each with a ``prefix``. Input may be split anywhere; output consists of whole
    lines."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()
        self._rest = b""

    def feed(self, piece: bytes, *, final: bool = False) -> bytes:
        """Return the lines that are now complete. ``final``: no more input follows."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if final and self._rest:
            lines = [*lines, self._rest]
            self._rest = b""
        return b"".join(b"%s%s\n" % (self._prefix, line) for line in lines)


def kernels_of(view: SessionView, attempt: int) -> list[str]:
    """Names of the kernels of an attempt, the main kernel first."""
    found = [kernel for kernel in view.kernels if kernel.attempt == attempt]
    return [
        kernel.hostname
        for kernel in sorted(found, key=lambda kernel: (kernel.role != "main", kernel.index))
    ]


class ClusterLog:
    """Copies the logs of all kernels of an attempt to ``sink``; with ``follow``, all at once.

    ``options``: additional arguments for ``Client.logs``. ``shown``: some output was copied.
    ``is_cut_off``: a log could not be read to its end; another ``copy`` continues there.
    """

    def __init__(
        self,
        cli: Cli,
        client: Client,
        view: SessionView,
        sink: LogWriter,
        *,
        attempt: int,
        follow: bool,
        **options: Any,
    ) -> None:
        self._cli = cli
        self._client = client
        self._session = view.id
        self._sink = sink
        self._follow = follow
        self._options = options | {"attempt": attempt, "follow": follow}
        names = kernels_of(view, attempt)
        width = max(map(len, names), default=0)
        complete = options.get("tail") is None
        self._left = {
            name: (SeenLog(complete=complete), PrefixedLines(f"{name:<{width}} | "))
            for name in names
        }
        self.shown = False

    @property
    def is_cut_off(self) -> bool:
        return bool(self._left)

    async def copy(self) -> None:
        """Copy all logs. A log that cannot be read is left out with a note."""
        if not self._follow:
            for name in [*self._left]:
                await self._copy(name)
            return

        # Imported here because showing a command's help does not need it.
        from moorage.common.aio.tasks import cancel_and_wait, spawn

        tasks = [spawn(f"log.{name}", self._copy(name)) for name in self._left]
        try:
            for task in tasks:
                await task
        finally:
            await cancel_and_wait(*tasks)

    async def _copy(self, name: str) -> None:
        seen, lines = self._left[name]
        try:
            pieces = self._client.sessions.logs(
                self._session,
                kernel=name,
                seen=seen,
                on_loss=partial(note_loss, self._cli, name),
                **self._options,
            )
            async for piece in pieces:
                self._write(lines.feed(piece))

            del self._left[name]
        except (ApiError, Unreachable) as error:
            self._cli.note(
                f"moorage: the log of {name} was cut off ({printable(str(error), one_line=True)})"
            )

        self._write(lines.feed(b"", final=True))

    def _write(self, ready: bytes) -> None:
        if ready:
            self._sink.write(ready)
            self.shown = True


def note_loss(cli: Cli, name: str) -> None:
    cli.note(
        f"moorage: output of {name} may be missing here: its node rotated the log before it was "
        "read"
    )
