"""Logs of the kernels of a cluster as one: whole lines, each behind the name of its kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moorage.cli.output import LogWriter, printable
from moorage.sdk import ApiError, Unreachable

if TYPE_CHECKING:
    from datetime import datetime

    from moorage.cli.context import Cli
    from moorage.common.views.resources import SessionView
    from moorage.sdk import Client


class PrefixedLines:
    """Puts ``prefix`` in front of each line. Pieces may end anywhere; the results are whole lines."""

    def __init__(self, prefix: str) -> None:
        self._prefix, self._rest = prefix.encode(), b""

    def feed(self, piece: bytes, *, final: bool = False) -> bytes:
        """The lines that are complete now. ``final``: there will be no more."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if final and self._rest:
            lines, self._rest = [*lines, self._rest], b""
        return b"".join(b"%s%s\n" % (self._prefix, line) for line in lines)


def kernels_of(view: SessionView, attempt: int) -> list[str]:
    """Names of the kernels of an attempt, the main one first."""
    found = [kernel for kernel in view.kernels if kernel.attempt == attempt]
    return [kernel.hostname for kernel in sorted(found, key=lambda one: (one.role != "main", one.index))]


async def copy_cluster_log(
    cli: Cli,
    client: Client,
    view: SessionView,
    sink: LogWriter,
    attempt: int,
    *,
    follow: bool,
    tail: int | None = None,
    timestamps: bool = False,
    since: datetime | None = None,
) -> bool:
    """Copy the logs of all kernels of an attempt to ``sink``, at once when they are followed. Returns whether
    anything was copied. The log of a kernel that cannot be read is left out with a note."""
    names = kernels_of(view, attempt)
    width = max(map(len, names), default=0)
    shown = False

    async def copy(name: str) -> None:
        nonlocal shown
        lines = PrefixedLines(f"{name:<{width}} | ")
        try:
            pieces = client.logs(
                view.id,
                tail=tail,
                follow=follow,
                attempt=attempt,
                kernel=name,
                timestamps=timestamps,
                since=since,
            )
            async for piece in pieces:
                if ready := lines.feed(piece):
                    sink.write(ready)
                    shown = True
        except (ApiError, Unreachable) as error:
            cli.note(f"moorage: the log of {name} was cut off ({printable(str(error), one_line=True)})")
        if rest := lines.feed(b"", final=True):
            sink.write(rest)
            shown = True

    if not follow:
        for name in names:
            await copy(name)
        return shown
    # Here and not above: the help of a command needs no tasks.
    from moorage.common.aio.tasks import cancel_and_wait, spawn

    tasks = [spawn(f"log.{name}", copy(name)) for name in names]
    try:
        for task in tasks:
            await task
    finally:
        await cancel_and_wait(*tasks)
    return shown
