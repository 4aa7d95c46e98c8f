"""Progress on stderr, only on a terminal: one line per stage, and a spinner for the current one."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from moorage.cli.output import printable

if TYPE_CHECKING:
    from rich.text import Text

    from moorage.cli.context import Cli
    from moorage.cli.summary import Stage


class StageProgress:
    """Progress through stages. ``show`` prints each stage once, however often it is called. The
    context can be entered again and then continues from there. Without a terminal, only the reason
    why something waits is printed."""

    def __init__(self, cli: Cli, name: str) -> None:
        self._cli = cli
        self._name = printable(name, one_line=True)
        self._printed = 0
        self._note = ""
        self._subject = ""
        self._told: set[tuple[str, str]] = set()
        self._spinner = cli.err.status(_text(self._name)) if cli.err_is_terminal else None

    def __enter__(self) -> Self:
        if self._spinner:
            self._spinner.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._spinner:
            self._spinner.stop()

    def about(self, subject: str) -> None:
        """Set the session of the following stages. When the session changes, only its new stages
        are printed."""
        if subject != self._subject:
            self._subject = subject
            self._printed = 0

    def show(self, stages: Sequence[Stage], note: str = "", activity: str = "") -> None:
        """Show stages. ``note``: why the session waits. ``activity``: work within the newest stage,
        like ``pulling IMAGE: 412 of 980 MB``."""
        first_of_another = bool(self._told) and self._printed == 0
        for stage in stages[self._printed :] if self._spinner else ():
            if first_of_another and (stage.name, stage.note) in self._told:
                continue

            line = _text(f"{stage.after_s:8.2f} s  {self._name}: {stage.name}")
            if stage.note:
                line.append(f" ({printable(stage.note, one_line=True)})")

            self._cli.err.print(line, soft_wrap=True)
            self._told.add((stage.name, stage.note))

        self._printed = max(self._printed, len(stages))
        note = printable(note, one_line=True)
        if note and note != self._note:
            self._cli.err.print(f"            {self._name} waits: {note}", soft_wrap=True)

        self._note = note
        if self._spinner and stages:
            activity = printable(activity, one_line=True)
            self._spinner.update(_text(f"{self._name}: {stages[-1].name} … {activity}".rstrip()))


def _text(plain: str) -> Text:
    """Text for the spinner, which would interpret a plain string as markup. Imported here because
    showing a command's help does not need it."""
    from rich.text import Text

    return Text(plain)
