"""The manager: keeps sessions in Postgres as a state machine, schedules them, tells agents and proxies."""

from moorage.manager.service import Manager

__all__ = ["Manager"]
