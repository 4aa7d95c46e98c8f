"""Service ports of sessions through the proxy: by path, by host name, and as TCP tunnels."""

from __future__ import annotations

from moorage.proxy.apps.handler import AppHandler

__all__ = ["AppHandler"]
