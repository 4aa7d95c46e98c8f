"""Data plane on asyncio protocols: the fast one, and the default."""

from __future__ import annotations

from moorage.proxy.planes.asyncio.plane import AsyncioPlane

__all__ = ["AsyncioPlane"]
