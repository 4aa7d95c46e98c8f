"""The short form of ``python -m tests.faults.run``: real processes, real faults, no violation."""

from __future__ import annotations

from pathlib import Path

import pytest

from .run import run


@pytest.mark.timeout(420)
async def test_faults_lose_duplicate_and_leak_nothing(home: Path) -> None:
    invariants = await run(home, seed=45, seconds=45, sessions_per_s=2.0, site=False)
    assert all(each.checked for each in invariants), (
        "an invariant that checks nothing proves nothing"
    )
    assert {each.name: each.violations for each in invariants if each.violations} == {}
