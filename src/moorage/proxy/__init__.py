"""App proxy: one OpenAI-compatible address for all models, with routes from the manager."""

from __future__ import annotations

from moorage.proxy.proxy_id import proxy_id
from moorage.proxy.service import Proxy
from moorage.proxy.timeouts import Timeouts

__all__ = ["Proxy", "Timeouts", "proxy_id"]
