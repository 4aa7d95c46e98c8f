"""The address of an embedded Postgres that another process runs."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from moorage.manager.postgres.roles import MANAGER, SUPERUSER


def running_dsn(data_dir: Path) -> str | None:
    """The DSN of the server that a manager runs in ``data_dir``, or None if no process uses the
    directory.

    A manager that is just starting has not yet opened the port, so connecting fails.
    """
    try:
        lock = os.open(data_dir / "lock", os.O_RDWR)
    except FileNotFoundError:
        return None

    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        port = int((data_dir / "port").read_text())
        try:
            return embedded_dsn(MANAGER, (data_dir / "manager-password").read_text(), port)
        except FileNotFoundError:  # a manager of an earlier release
            return embedded_dsn(SUPERUSER, (data_dir / "password").read_text(), port)
    finally:
        os.close(lock)


def embedded_dsn(role: str, password: str, port: int) -> str:
    return f"postgresql://{role}:{password}@127.0.0.1:{port}/postgres"
