"""Files shared by the daemons of a host: each daemon may write at any time, and readers always see
a complete file."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def replace_shared(path: Path, text: str) -> None:
    """Replace the file atomically; the last of several writers wins. Raises ``OSError``."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    temporary.write_text(text)
    temporary.replace(path)
