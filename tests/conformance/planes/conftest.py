"""Fixtures of the data-plane conformance suite."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop
from tests.conformance.planes.harness import PLANES, MakePlane


@pytest.fixture(params=sorted(PLANES))
def plane(request: pytest.FixtureRequest) -> MakePlane:
    return PLANES[request.param]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop that the proxy runs on."""
    return {"uvloop": uvloop.new_event_loop}
