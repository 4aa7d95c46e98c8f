"""Hostile HTTP from clients: every case of the common table, at every plane."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from tests.conformance.planes.harness import KEY, PLANES, Served, serving_one
from tests.conformance.planes.replica import Replica, answer
from tests.hostile_http import BODY_S, CASES, HEAD_S, IDLE_S, Case, exchange

from moorage.proxy import Timeouts

SHORT = Timeouts(head_s=HEAD_S, body_s=BODY_S, linger_s=0.02)
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(request: pytest.FixtureRequest) -> AsyncIterator[dict[bool, tuple[Served, Replica]]]:
    """By ``Case.idle``."""
    plane, impatient = PLANES[request.param], replace(SHORT, idle_s=IDLE_S)
    async with (
        serving_one(plane, answer, timeouts=SHORT) as patient,
        serving_one(plane, answer, timeouts=impatient) as hasty,
    ):
        yield {False: patient, True: hasty}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_hostile_request(running: dict[bool, tuple[Served, Replica]], case: Case) -> None:
    served, replica = running[case.idle]
    replica.requests.clear()
    outcome = await exchange(served.address, case, path="/v1/chat/completions", key=KEY)
    assert not outcome.problem(case)
    assert not replica.requests
    assert (await served.ask()).status == 200, "others are served"
