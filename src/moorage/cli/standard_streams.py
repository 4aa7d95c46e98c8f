"""Standard output and error of the command line: what happens where they refuse to be written.

A full disk or a closed output ends a command with one line and exit code 1. Notes that cannot be
written are dropped. Characters that the locale lacks are replaced.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

from moorage.cli.output import is_unicode
from moorage.common.model.errors import MoorageError

STDOUT = 1
STDERR = 2


class OutputFailed(MoorageError):
    """Standard output cannot be written."""

    code = "output-failed"

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write the output: {error.strerror}")


class _Results(io.FileIO):
    """Standard output. The first failure raises ``OutputFailed``; the rest of the output is
    dropped, so that the interpreter's exit does not fail as well. A broken pipe keeps its
    exception, which ends a command before ``head`` in silence."""

    failed = False

    def write(self, data: Any) -> int:
        if self.failed:
            return memoryview(data).nbytes
        try:
            written: int | None = super().write(data)
        except OSError as error:
            self.failed = True
            if isinstance(error, BrokenPipeError):
                raise
            raise OutputFailed(error) from None

        if written is not None:
            return written
        # Another process on this terminal has set it to non-blocking.
        os.set_blocking(self.fileno(), True)
        return self.write(data)


class _Notes(io.FileIO):
    """Standard error. Nothing depends on what is written there."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def replace() -> None:
    """Replace ``sys.stdout`` and ``sys.stderr``, before anything is written to them."""
    _keep_numbers_taken()
    sys.stdout = _text(sys.stdout, _Results(STDOUT, "w", closefd=False))
    sys.stderr = _text(sys.stderr, _Notes(STDERR, "w", closefd=False))


def _keep_numbers_taken() -> None:
    """Open what is closed. The next file or connection would get its number, and with it what is
    written there. Whoever closes the output and asks for results gets an error, as from the
    programs of GNU."""
    for number in (0, STDOUT, STDERR):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if number == STDERR else os.O_RDONLY)


def _text(before: TextIO | None, raw: io.FileIO) -> TextIO:
    encoding = before.encoding if before is not None else "utf-8"
    errors = (before.errors if before is not None else None) or "strict"
    if errors == "strict" or not is_unicode(encoding):
        errors = "backslashreplace" if raw.fileno() == STDERR else "replace"

    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=encoding,
        errors=errors,
        line_buffering=raw.fileno() == STDERR or raw.isatty(),
        write_through=bool(getattr(before, "write_through", False)),
    )
