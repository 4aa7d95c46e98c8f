"""Differences that count between a client's results directly and through a plane."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.clients.places import DIRECT
from tests.clients.results import Results

pytestmark = pytest.mark.clients
REFUSED = {"error": "NotFoundError", "status": 404, "as asked": False, "text": "no such model"}


@pytest.mark.parametrize(
    ("through", "differs"),
    [
        (REFUSED, False),
        (REFUSED | {"text": "in the proxy's words"}, False),
        (REFUSED | {"status": 400}, True),
        (REFUSED | {"as asked": True}, True),
        ("pong", True),
        (None, True),
    ],
)
def test_difference(through: Any, differs: bool) -> None:
    outcomes = {DIRECT: REFUSED, "asyncio": through}
    lines = (
        json.dumps({"client": "openai 3", "check": "chat", "place": place, "outcome": outcome})
        for place, outcome in outcomes.items()
    )
    results = Results()
    assert bool(results.add("\n".join(lines))) is differs
    assert results.rows() == [
        "| Client | Checks | asyncio |",
        "|---|---|---|",
        f"| openai 3 | 1 | {'differs: chat' if differs else 'as directly'} |",
    ]
