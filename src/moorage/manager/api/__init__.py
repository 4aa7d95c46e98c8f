"""REST API: a route table from which handlers, validation and the OpenAPI description are
generated."""

from moorage.manager.api.app import build_runner, serve_api, serve_locally
from moorage.manager.api.dependencies import ApiServices, ApiStore, LogSource

__all__ = ["ApiServices", "ApiStore", "LogSource", "build_runner", "serve_api", "serve_locally"]
