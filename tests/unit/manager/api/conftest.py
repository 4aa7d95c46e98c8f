"""API fixture: the real aiohttp server on loopback, over the in-memory store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from served_api import Api, serving_api

from moorage.common.aio.clock import ManualClock
from moorage.manager.api import app


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    monkeypatch.setattr(app, "SHUTDOWN_S", 0.2)  # some cases leave a request open
    async with serving_api(ManualClock()) as served:
        yield served
