"""The short form of ``python -m tests.cluster.run``: one fault of each kind on a whole
installation, and no violation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.previous_release import unpack_previous_release

from .run import run

SHARED = (
    "what shares a run ran nothing itself, and ended as it"  # there may be few or none by chance
)
pytestmark = [pytest.mark.cluster]


@pytest.mark.timeout(420)
async def test_faults_of_every_kind_lose_nothing(home: Path) -> None:
    previous = unpack_previous_release(home / "previous-release")
    try:
        invariants = await run(home, seed=19, seconds=0, previous=previous)
    except OSError as error:
        pytest.skip(f"SKIPPED: no network namespaces on this machine: {error}")
    unchecked = {each.name for each in invariants if not each.checked}
    assert unchecked <= {SHARED}, "an invariant that checks nothing proves nothing"
    assert {each.name: each.violations for each in invariants if each.violations} == {}
