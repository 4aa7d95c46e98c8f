"""Output on a terminal: tables, facts, ages, and untrusted text without control characters."""

from __future__ import annotations

import codecs
import json
import re
import sys
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
    from rich.text import Text

    from moorage.common.views.endpoints import EndpointView, ReplicaView
    from moorage.common.views.progress import ProgressView
    from moorage.common.views.resources import KernelView, SessionView
    from moorage.common.views.steps import StepRef

_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
# Minimum width to which a table column is cut, in cells: the longest status, ``TERMINATING``.
_LEAST_WIDTH = 11
# Spaces between two columns.
_GAP = 2
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


def takes_unicode() -> bool:
    """Whether standard output can show every character. JSON and YAML escape the others, because
    programs read them."""
    return is_unicode(getattr(sys.stdout, "encoding", None) or "utf-8")


def is_unicode(encoding: str) -> bool:
    return encoding.lower().replace("-", "").replace("_", "").startswith("utf")


def to_json(value: Any) -> str:
    """JSON for people and programs. A parser gets every character, but a terminal gets no control
    characters."""
    text = json.dumps(value, indent=2, ensure_ascii=not takes_unicode())
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def has_colours(console: Console) -> bool:
    """Whether the console's stream shows colours, and the user wants them."""
    return console.color_system is not None and not console.no_color


def uncoloured(text: str) -> str:
    """``text`` without the sequences that set colours."""
    return _COLOUR.sub("", text)


class PlainLog:
    """A filter that makes a program's output safe for a terminal. Colours are removed, other
    control characters are escaped, and carriage returns start a new line, because they would
    overwrite earlier text."""

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
        return printable(uncoloured(text).replace("\r\n", "\n").replace("\r", "\n"))


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


def print_table(
    console: Console,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    dropped_first: Sequence[str] = (),
) -> None:
    """Print a table. On a terminal, it is fitted to the width; other outputs get it complete."""
    width = console.width if console.is_terminal else None
    console.print(make_table(columns, rows, width, dropped_first), soft_wrap=True)


def make_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    width: int | None = None,
    dropped_first: Sequence[str] = (),
) -> Text:
    """Build a table. ``width``: the terminal's width, if the table must fit into it.

    To fit, it loses its empty columns, then cells are cut, then columns are dropped: first those in
    ``dropped_first``, then from the right. The first column and NAME are never cut or dropped,
    because people copy names.
    """
    from rich.cells import cell_len
    from rich.text import Text

    cells = [[printable(cell, one_line=True) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    kept, dropped = list(range(len(columns))), list[int]()
    if width is not None:
        filled = [i for i in kept if i == 0 or any(row[i] for row in cells)]
        early = [columns.index(title) for title in dropped_first if title in columns]
        order = [*early, *reversed(kept)]
        names = [i for i in filled if i == 0 or columns[i] == "NAME"]
        kept = fitting_columns({i: widths[i] for i in filled}, width, names, order)
        dropped = [i for i in filled if i not in kept]
        cut = [i for i in kept if i not in names]
        taken = sum(widths[i] + _GAP for i in names)
        available = width - taken - _GAP * (len(cut) - 1)
        for i, fitted in zip(cut, fitted_widths([widths[i] for i in cut], available), strict=True):
            widths[i] = fitted

    lines = [_line([(columns[i], widths[i], "bold") for i in kept])]
    for row in cells:
        lines.append(_line([(row[i], widths[i], STYLES.get(row[i], "")) for i in kept]))
    if dropped:
        names_of = ", ".join(columns[i] for i in dropped)
        lines.append(Text(f"not shown: {names_of} (a wider terminal shows more)", "dim"))

    return Text("\n").join(lines)


def _line(cells: Sequence[tuple[str, int, str]]) -> Text:
    """A line of a table from texts with their widths and styles."""
    from rich.text import Text

    line = Text()
    for text, width, style in cells:
        cell = Text(text, style)
        cell.truncate(width, overflow="ellipsis", pad=True)
        line.append_text(cell).append(" " * _GAP)
    line.rstrip()

    return line


def fitting_columns(
    widths: Mapping[int, int], available: int, never_dropped: Sequence[int], order: Sequence[int]
) -> list[int]:
    """The columns that fit into ``available`` cells once they are cut. ``widths``: by column.
    ``order``: the columns in the order in which they are dropped."""
    kept = list(widths)
    for column in order:
        needed = sum(
            widths[i] if i in never_dropped else min(widths[i], _LEAST_WIDTH) for i in kept
        )
        if needed + _GAP * (len(kept) - 1) <= available:
            break
        if column in kept and column not in never_dropped:
            kept.remove(column)

    return kept


def fitted_widths(widths: Sequence[int], available: int) -> list[int]:
    """Column widths whose sum is at most ``available``, if ``_LEAST_WIDTH`` per column permits it.

    The widest columns are cut first, to the same width, so that a long reason does not shorten a
    status.
    """
    if not widths or sum(widths) <= available:
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
