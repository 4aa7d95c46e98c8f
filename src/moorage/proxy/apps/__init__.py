"""Service ports of sessions through the proxy: by path, by host name, and as a tunnel."""

from __future__ import annotations

from moorage.proxy.apps.handler import Apps

__all__ = ["Apps"]
