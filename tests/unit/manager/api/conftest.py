"""API fixture: the real aiohttp server on loopback, over the in-memory store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from served_api import Api, serving_api

from moorage.common.aio.clock import ManualClock


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving_api(ManualClock()) as served:
        yield served
