"""Hostile HTTP requests to the manager's API: every case of the table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from moorage.common.aio.clock import SystemClock
from moorage.common.http.server import ConnectionLimits
from tests.hostile_http import CASES, Case, Patience, exchange

from .served_api import ADMIN_KEY, Api, serving_api

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers(shared_database: str) -> AsyncIterator[dict[Patience, Api]]:
    async with AsyncExitStack() as stack:
        found = {}
        for patience in Patience:
            limits = ConnectionLimits(
                head_s=patience.request_s,
                body_s=patience.request_s,
                idle_s=patience.idle_s,
                linger_s=0.02,
            )
            served = serving_api(shared_database, SystemClock(), limits=limits)
            found[patience] = await stack.enter_async_context(served)

        yield found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_hostile_request(servers: dict[Patience, Api], case: Case) -> None:
    served = servers[case.patience]
    outcome = await exchange(("127.0.0.1", served.port), case, path="/v1/sessions", key=ADMIN_KEY)
    assert not outcome.problem(case)
    assert await served.count("sessions") == 0, "nothing was created"
    response, _ = await served.request("GET", "/v1/sessions")
    assert response.status == 200, "the API serves others"
