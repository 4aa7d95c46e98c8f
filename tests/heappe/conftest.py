"""Fixtures for the tests of the HEAppE test server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from moorage.common.aio.clock import ManualClock
from tests.heappe import HeappeServer
from tests.heappe.client import Caller
from tests.heappe.wire import PROFILES


@pytest.fixture(params=PROFILES)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[HeappeServer]:
    async with HeappeServer(request.param, clock=ManualClock()) as server:
        yield server


@pytest.fixture
async def caller(server: HeappeServer) -> AsyncIterator[Caller]:
    async with Caller(server) as caller:
        yield caller
