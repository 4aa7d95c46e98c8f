"""Output on a terminal: tables, facts, ages, and untrusted text without control characters."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TextIO

from moorage.common.model.durations import format_duration
from moorage.common.model.printable import CONTROL as CONTROL
from moorage.common.model.printable import printable as printable
from moorage.common.model.status import (
    BEFORE_RUNNING,
    AgentStatus,
    EndpointStatus,
    Outcome,
    Result,
    Status,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from moorage.common.views.endpoints import EndpointView, ReplicaView
    from moorage.common.views.progress import ProgressView
    from moorage.common.views.resources import KernelView, SessionView
    from moorage.common.views.steps import StepRef

# Minimum width of a table column in cells: ``RUNNING`` and a space.
_LEAST_WIDTH = 8
STYLES: Mapping[str, str] = {
    **dict.fromkeys((Status.RUNNING, EndpointStatus.READY, AgentStatus.ALIVE), "green"),
    **dict.fromkeys((Result.SUCCESS, Outcome.SUCCEEDED), "green"),
    **dict.fromkeys((Status.ERROR, EndpointStatus.DEGRADED, AgentStatus.LOST), "red"),
    **dict.fromkeys((Result.FAILED, Outcome.FAILED), "red"),
    **dict.fromkeys((*BEFORE_RUNNING, AgentStatus.SUSPECT), "yellow"),
    **dict.fromkeys((EndpointStatus.QUEUED, EndpointStatus.LOADING), "yellow"),
    **dict.fromkeys((Status.TERMINATED, Status.CANCELLED), "dim"),
    **dict.fromkeys((EndpointStatus.STOPPED, EndpointStatus.NOT_LOADED), "dim"),
    # Statuses without a colour: transient and neutral ones.
    **dict.fromkeys((Status.TERMINATING, EndpointStatus.BUSY, Result.UNDEFINED), ""),
}


def to_json(value: Any) -> str:
    """JSON for people and programs. A parser gets every character, but a terminal gets no control
    characters."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class PlainLog:
    """A filter that makes a program's output safe for a terminal. Colours are removed, other
    control characters are escaped, and carriage returns start a new line, because they would
    overwrite earlier text."""

    _COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
    _UNFINISHED = re.compile(r"(?:\x1b(?:\[[0-9;:]{0,64})?|\r)\Z")

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """Return the next piece to print. ``final``: no more input follows."""
        text = self._rest + self._decoder.decode(data, final)
        unfinished = None if final else self._UNFINISHED.search(text)
        end = unfinished.start() if unfinished else len(text)
        text, self._rest = text[:end], text[end:]
        return printable(self._COLOUR.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))


class LogWriter:
    """A writer that passes the pieces of a log to a stream, through ``PlainLog`` if the stream is a
    terminal and not ``raw``."""

    def __init__(self, stream: TextIO, *, raw: bool = False) -> None:
        self._stream = stream
        self._plain = PlainLog() if stream.isatty() and not raw else None

    def write(self, piece: bytes, *, final: bool = False) -> None:
        """``final``: no more pieces follow."""
        plain = self._plain
        self._stream.buffer.write(
            piece if plain is None else plain.feed(piece, final=final).encode()
        )
        self._stream.buffer.flush()


def format_age(now: datetime, then: datetime) -> str:
    return format_duration((now - then) / timedelta(seconds=1))


def print_table(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table. On a terminal, cells are cut to fit its width; other outputs get complete
    cells."""
    width = console.width if console.is_terminal else None
    console.print(make_table(columns, rows, width), crop=console.is_terminal)


def make_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], width: int | None = None
) -> Table:
    """Build a table. ``width``: the terminal's width, if the table must fit into it."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    cells = [[printable(cell, one_line=True) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    if width is not None:
        widths = fitted_widths(widths, width - 2 * (len(columns) - 1))

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column, column_width in zip(columns, widths, strict=True):
        table.add_column(column, no_wrap=True, width=column_width)
    for row in cells:
        table.add_row(*(Text(cell, STYLES.get(cell, "")) for cell in row))

    return table


def fitted_widths(widths: Sequence[int], available: int) -> list[int]:
    """Column widths whose sum is at most ``available``, if ``_LEAST_WIDTH`` per column permits it.

    The widest columns are cut first, to the same width, so that a long reason does not shorten a
    status.
    """
    if sum(widths) <= available:
        return list(widths)

    for most in range(min(available, max(widths)), _LEAST_WIDTH, -1):
        cut = [min(width, most) for width in widths]
        if sum(cut) <= available:
            return cut

    return [min(width, _LEAST_WIDTH) for width in widths]


def print_facts(console: Console, facts: Iterable[tuple[str, str]]) -> None:
    """Print one name and value per line; empty values are left out."""
    from rich.text import Text

    shown = [(name, value) for name, value in facts if value]
    width = max((14, *(len(name) + 2 for name, _ in shown)))
    for name, value in shown:
        style = STYLES.get(value.split(" ")[0], "")
        line = Text.assemble((f"{name:<{width}}", "bold"), (printable(value), style))
        console.print(line, soft_wrap=True)


def print_heading(console: Console, title: str) -> None:
    """Print an empty line and a bold title."""
    from rich.text import Text

    console.print()
    console.print(Text(printable(title, one_line=True), "bold"))


def labels_cell(labels: Mapping[str, str]) -> str:
    """User labels as one line."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def load_cells(view: EndpointView | ReplicaView) -> tuple[str, str, str]:
    """The running and waiting requests and the KV cache use of a replica or endpoint."""
    kv_cache = "" if view.kv_cache is None else f"{100 * view.kv_cache:.0f}%"
    return str(view.running), str(view.waiting), kv_cache


def progress_text(progress: ProgressView | None, *, short: bool = False) -> str:
    """Progress like ``40% 120/300 training``; ``short``: only its first part."""
    if progress is None:
        return ""

    of = "" if progress.of is None else f"/{progress.of}"
    parts = [
        "" if progress.fraction is None else f"{int(100 * progress.fraction)}%",
        "" if progress.step is None else f"{progress.step}{of}",
        progress.message[:20] if short else progress.message,
    ]
    found = [part for part in parts if part]
    return " ".join(found[:1] if short else found)


def step_label(place: StepRef | None) -> str:
    """A session's pipeline and step as one text, such as ``train/eval[3]``."""
    if place is None:
        return ""
    return f"{place.name}/{place.step}" + ("" if place.index is None else f"[{place.index}]")


def current_kernel(view: SessionView) -> KernelView | None:
    """The main kernel of the newest attempt."""
    mains = [kernel for kernel in view.kernels if kernel.role == "main"]
    return max(mains, key=lambda kernel: kernel.attempt, default=None)
