"""A Postgres of our own, for those who bring none: found, started, watched and stopped by the manager."""

from moorage.manager.postgres.server import EmbeddedPostgres

__all__ = ["EmbeddedPostgres"]
