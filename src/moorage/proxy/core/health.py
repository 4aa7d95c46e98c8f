"""Health of the proxy, for load balancers and client libraries on the port of the API. Pure."""

from __future__ import annotations

import json

_VERSION = "/version"
HEALTH = ("/health", "/ping", _VERSION)
"""Paths that need no key."""


def health_json(path: str, version: str) -> bytes:
    """The answer of a proxy that serves. It says nothing about models and keys, because everybody
    may ask. ``version``: of the proxy."""
    return json.dumps({"version": version} if path == _VERSION else {"status": "ok"}).encode()
