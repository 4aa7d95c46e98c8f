"""Data plane on aiohttp: deliberately simple, and used for apps by every proxy."""

from __future__ import annotations

from moorage.proxy.planes.simple.plane import SimplePlane

__all__ = ["SimplePlane"]
