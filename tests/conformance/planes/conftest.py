"""Fixtures of the data-plane conformance suite."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop
from tests.conformance.planes.harness import PLANES, MakePlane
from tests.conformance.planes.variants import parameters

# Fixtures that take the name of a variant, with their scopes.
PARAMETRIZED = {"plane": "function", "running": "module"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module = metafunc.module.__name__.rpartition(".")[2]
    for fixture, scope in PARAMETRIZED.items():
        if fixture in metafunc.fixturenames:
            variants = parameters(module, metafunc.function.__name__)
            metafunc.parametrize(fixture, variants, indirect=True, scope=scope)


@pytest.fixture
def plane(request: pytest.FixtureRequest) -> MakePlane:
    return PLANES[request.param]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop that the proxy runs on."""
    return {"uvloop": uvloop.new_event_loop}
