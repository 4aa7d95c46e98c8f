"""The REST API: one table of routes, from which the handlers, their validation and the description come."""

from fairlead.manager.api.app import build_runner
from fairlead.manager.api.deps import ApiDeps, ApiStore, LogSource

__all__ = ["ApiDeps", "ApiStore", "LogSource", "build_runner"]
