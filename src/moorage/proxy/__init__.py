"""The app proxy: one OpenAI-compatible address for all models, by routes that the manager feeds."""

from __future__ import annotations

from moorage.proxy.service import Proxy

__all__ = ["Proxy"]
