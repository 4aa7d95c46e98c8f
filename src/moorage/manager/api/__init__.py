"""REST API: handlers, and the routes above them from which validation, rights and the OpenAPI
description follow."""

from moorage.manager.api.app import build_runner, serve_api, serve_locally
from moorage.manager.api.http.dependencies import ApiServices

__all__ = ["ApiServices", "build_runner", "serve_api", "serve_locally"]
