"""The short form of ``make test-faults``: real processes, real faults, no violation."""

from __future__ import annotations

from pathlib import Path

import pytest

from .run import play


@pytest.mark.timeout(420)
async def test_nothing_is_lost_doubled_or_leaked(home: Path) -> None:
    found = await play(home, seed=45, seconds=45, per_s=2.0)
    assert all(one.looked_at for one in found), "an invariant that looked at nothing shows nothing"
    assert {one.name: one.violations for one in found if one.violations} == {}
