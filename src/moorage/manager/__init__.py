"""Manager: stores sessions in Postgres, schedules them, and sends orders to agents and routes to
proxies."""

from moorage.manager.service import Manager

__all__ = ["Manager"]
