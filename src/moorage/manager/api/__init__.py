"""REST API: handlers and their route declarations, from which validation, access rights and the
OpenAPI description are derived."""

from moorage.manager.api.app import build_runner, serve_api, serve_locally
from moorage.manager.api.http.dependencies import ApiServices

__all__ = ["ApiServices", "build_runner", "serve_api", "serve_locally"]
