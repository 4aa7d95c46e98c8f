"""Data plane on aiohttp: deliberately simple, and the one that serves apps."""

from __future__ import annotations

from moorage.proxy.planes.simple.plane import SimplePlane

__all__ = ["SimplePlane"]
