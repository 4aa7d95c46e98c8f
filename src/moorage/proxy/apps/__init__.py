"""Service ports of sessions through the proxy: by path, by host name, and as TCP tunnels."""

from __future__ import annotations

from moorage.proxy.apps.address import is_for_apps
from moorage.proxy.apps.handler import AppHandler
from moorage.proxy.apps.request_context import RequestContext, abort_connection
from moorage.proxy.apps.upgrade_relay import relay_upgrade

__all__ = ["AppHandler", "RequestContext", "abort_connection", "is_for_apps", "relay_upgrade"]
