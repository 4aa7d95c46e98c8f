"""Hostile HTTP at the manager's API: every case of the table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from memory_store import ADMIN_KEY
from served_api import Api, serving_api
from tests.hostile_http import BODY_S, CASES, HEAD_S, IDLE_S, Case, exchange

from moorage.common.aio.clock import SystemClock
from moorage.common.http.server import Limits

SHORT = Limits(head_s=HEAD_S, body_s=BODY_S, linger_s=0.02)
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers() -> AsyncIterator[dict[bool, Api]]:
    """By ``Case.idle``."""
    async with (
        serving_api(SystemClock(), SHORT) as api,
        serving_api(SystemClock(), replace(SHORT, idle_s=IDLE_S)) as impatient,
    ):
        yield {False: api, True: impatient}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_hostile_request(servers: dict[bool, Api], case: Case) -> None:
    served = servers[case.idle]
    outcome = await exchange(("127.0.0.1", served.port), case, path="/v1/sessions", key=ADMIN_KEY)
    assert not outcome.problem(case)
    assert not served.store.sessions.views, "nothing was created"
    response, _ = await served.request("GET", "/v1/sessions")
    assert response.status == 200, "the API serves others"
