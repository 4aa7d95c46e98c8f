"""Progress on stderr: one line per stage; on a terminal also a moving line for the current one."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status as Spinner
from rich.text import Text

from moorage.cli.render import printable
from moorage.cli.story import Stage


class Progress:
    """``show`` may be called with the same story again and again: each stage is printed once."""

    def __init__(self, err: Console, name: str) -> None:
        self._err, self._name = err, printable(name, one_line=True)
        self._printed, self._note, self._doing = 0, "", ""
        self._spinner = Spinner(Text(self._name), console=err) if err.is_terminal else None

    def __enter__(self) -> Self:
        if self._spinner:
            self._spinner.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._spinner:
            self._spinner.stop()

    def restart(self) -> None:
        """What follows is the story of another session."""
        self._printed = 0

    def show(self, told: Sequence[Stage], note: str = "", doing: str = "") -> None:
        """``doing``: what is done within the newest stage, like ``pulling IMAGE: 412 of 980 MB``. On a
        terminal it moves; elsewhere what comes before its figures is a line, once."""
        for stage in told[self._printed :]:
            line = Text(f"{stage.after_s:8.2f} s  {self._name}: {stage.name}")
            if stage.note:
                line.append(f" ({printable(stage.note, one_line=True)})")
            self._err.print(line, soft_wrap=True)
        self._printed = max(self._printed, len(told))
        note = printable(note, one_line=True)
        if note and note != self._note:
            self._err.print(Text(f"            {self._name} waits: {note}"), soft_wrap=True)
        self._note = note
        doing = printable(doing, one_line=True)
        if self._spinner and told:
            self._spinner.update(Text(f"{self._name}: {told[-1].name} … {doing}".rstrip()))
        elif (what := doing.partition(": ")[0]) != self._doing:
            if what:
                self._err.print(Text(f"            {self._name}: {what}"), soft_wrap=True)
            self._doing = what
