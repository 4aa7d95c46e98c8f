"""The manager's database settings other than the URL."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel


class DatabaseSettings(BaseModel):
    database_synchronous_commit: Literal[
        "server", "on", "remote_apply", "remote_write", "local"
    ] = "server"
    """When a write is acknowledged. ``local``: after the primary has it on disk. ``remote_write``,
    ``on``, ``remote_apply``: after a synchronous standby also has it in memory, on disk, or
    visible. ``server``: as configured in Postgres. Writes that are repeated anyway, such as
    heartbeats, never wait."""
    database_target_session_attrs: Literal["read-write", "primary"] = "read-write"
    """Which of several hosts in ``dsn`` is used: the one that accepts writes, or the ``primary``.
    With ``primary``, the manager waits while ``default_transaction_read_only`` is on."""
