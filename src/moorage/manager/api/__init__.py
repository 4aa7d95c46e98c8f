"""The REST API: one table of routes, from which the handlers, their validation and the description come."""

from moorage.manager.api.app import build_runner
from moorage.manager.api.dependencies import ApiServices, ApiStore, LogSource

__all__ = ["ApiServices", "ApiStore", "LogSource", "build_runner"]
