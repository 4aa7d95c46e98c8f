"""Mutations of kernel leases. The simulation must detect each with the named violation.

Each check starts shortly before a seed that finds it, and looks only at seeds whose nodes hold
leases.
"""

from __future__ import annotations

import pytest

from moorage.manager.lifecycle.kernel_leases import LeasedKernel

from .database import Postgres
from .test_simulation import first_failure

LEASES = 5


async def test_ending_leases_early_is_detected(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: leases are considered over as soon as the agent is silent."""
    monkeypatch.setattr(LeasedKernel, "ends_within_s", property(lambda kernel: kernel.stop_grace_s))
    found = await first_failure(postgres, start=38, step=LEASES)
    assert "is stored as GONE" in found.splitlines()[-2], found
