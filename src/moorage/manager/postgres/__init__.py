"""Embedded Postgres server, used when ``manager.dsn`` is not set.
docs/decisions/0002-embedded-postgres.md explains why Moorage runs the server itself."""

from moorage.manager.postgres.running import running_dsn
from moorage.manager.postgres.server import EmbeddedPostgres

__all__ = ["EmbeddedPostgres", "running_dsn"]
