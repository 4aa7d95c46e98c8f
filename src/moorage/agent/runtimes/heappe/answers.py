"""The relay's own answers: refusals, errors, and connections that are cut off."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aiohttp import web


class SiteRefused(Exception):
    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(message)


def cut_off(request: web.BaseRequest) -> None:
    """Break the connection, so that the client does not mistake the received part for the whole
    answer."""
    if request.transport is not None:
        request.transport.abort()


def error_response(
    status: int, message: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    kind, code = (
        ("api_error", "engine_unreachable") if status >= 500 else ("invalid_request_error", None)
    )
    error = {"message": message, "type": kind, "param": None, "code": code}
    return web.Response(
        status=status,
        text=json.dumps({"error": error}),
        content_type="application/json",
        headers=headers or {},
    )
