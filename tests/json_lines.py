"""Log lines of this process in tests, as JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import Any

import structlog

from moorage.common.config import logging as setup


class Lines:
    def __init__(self, file: io.StringIO) -> None:
        self._file = file

    def of(self, logger: str) -> list[dict[str, Any]]:
        """This logger's lines, in order."""
        lines = map(json.loads, self._file.getvalue().splitlines())
        return [line for line in lines if line["logger"] == logger]


@contextmanager
def json_lines(component: setup.Component) -> Iterator[Lines]:
    """Everything that this process logs inside the block, including the libraries' lines."""
    root = logging.getLogger()
    file = io.StringIO()
    before = root.handlers[:], root.level
    with redirect_stderr(file):
        setup.setup("json", "info", component)

    root.handlers.remove(root.handlers[-1]) if len(root.handlers) > 1 else None
    try:
        with redirect_stderr(file):
            yield Lines(file)
    finally:
        root.handlers[:], root.level = before
        structlog.reset_defaults()
        logging.captureWarnings(False)
