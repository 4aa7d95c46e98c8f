"""Hostile HTTP from clients: every case of the common table, on every plane."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from tests.conformance.planes.harness import KEY, PLANES, Served, serving_one
from tests.conformance.planes.replica import Replica, answer
from tests.hostile_http import CASES, Case, Patience, exchange

from moorage.proxy import Timeouts

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    request: pytest.FixtureRequest,
) -> AsyncIterator[dict[Patience, tuple[Served, Replica]]]:
    async with AsyncExitStack() as stack:
        found = {}
        for patience in Patience:
            timeouts = Timeouts(
                head_s=patience.request_s,
                body_s=patience.request_s,
                idle_s=patience.idle_s,
                linger_s=0.02,
            )
            serving = serving_one(PLANES[request.param], answer, timeouts=timeouts)
            found[patience] = await stack.enter_async_context(serving)

        yield found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_hostile_request(running: dict[Patience, tuple[Served, Replica]], case: Case) -> None:
    served, replica = running[case.patience]
    replica.requests.clear()
    outcome = await exchange(served.address, case, path="/v1/chat/completions", key=KEY)
    assert not outcome.problem(case)
    assert not replica.requests
    assert (await served.ask()).status == 200, "others are served"
