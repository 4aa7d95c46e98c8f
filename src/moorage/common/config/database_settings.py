"""Settings of the manager about its database beyond the URL."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel


class DatabaseSettings(BaseModel):
    database_synchronous_commit: Literal[
        "server", "on", "remote_apply", "remote_write", "local"
    ] = "server"
    """What an acknowledged write waits for: ``local``: the disk of the primary; ``remote_write``,
    ``on``, ``remote_apply``: also that a synchronous standby has it in memory, on disk, or visible.
    ``server``: as Postgres is set. Writes that are repeated anyway, such as heartbeats, never
    wait."""
    database_target_session_attrs: Literal["read-write", "primary"] = "read-write"
    """Which of several hosts in ``dsn`` is used: the one that accepts writes, or the ``primary``,
    which is then waited for while ``default_transaction_read_only`` is on."""
