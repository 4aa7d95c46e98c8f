"""Standard input and output as the local side of a copy, through temporary files.

An interrupted copy leaves nothing in the session and prints nothing.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moorage.common.model.errors import InvalidInput

STREAM = "-"


@contextmanager
def input_file() -> Iterator[Path]:
    """A file named ``stdin`` with all of standard input."""
    with tempfile.TemporaryDirectory(prefix="moorage-cp-") as folder:
        path = Path(folder) / "stdin"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield path


@contextmanager
def output_file(source: str) -> Iterator[Path]:
    """A path whose file is printed at the end. Raises ``InvalidInput`` if it is a directory."""
    with tempfile.TemporaryDirectory(prefix="moorage-cp-") as folder:
        path = Path(folder).resolve() / "stdout"
        yield path
        if not path.is_file():
            raise InvalidInput(
                f"{source} is not a file", next_step="copy a directory to a local path"
            )

        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)

        sys.stdout.buffer.flush()
