"""Address of an embedded Postgres that another process runs."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def running_dsn(data_dir: Path) -> str | None:
    """The DSN of the server that a manager runs in ``data_dir``; None if no process uses the directory.

    A manager that is just starting has not opened the port yet, which connecting reports.
    """
    try:
        lock = os.open(data_dir / "lock", os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        password, port = ((data_dir / name).read_text().strip() for name in ("password", "port"))
        return embedded_dsn(password, int(port))
    finally:
        os.close(lock)


def embedded_dsn(password: str, port: int) -> str:
    return f"postgresql://moorage:{password}@127.0.0.1:{port}/postgres"
