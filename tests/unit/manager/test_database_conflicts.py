"""Databases that two managers must not use at the same time."""

from __future__ import annotations

import pytest

from moorage.manager.rpc.manager_link import find_conflict
from moorage.manager.store.platform.managers import DatabaseIdentity

OWN = DatabaseIdentity("lab", "first", "7001", 2)


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (OWN, ""),
        (DatabaseIdentity("another", "first", "7001", 9), ""),
        (DatabaseIdentity("lab", "first", "7001", 1), ""),  # its own will be refused
        (DatabaseIdentity("lab", "second", "7001", 2), "restored from a backup"),
        (DatabaseIdentity("lab", "second", "7002", 1), "restored from a backup"),
        (DatabaseIdentity("lab", "first", "7001", 3), "former primary on timeline 2"),
    ],
)
def test_conflicts(other: DatabaseIdentity, problem: str) -> None:
    found = find_conflict(OWN, other, "one:8701")
    assert problem in found
    assert bool(found) == bool(problem)
    assert not found or "one:8701" in found
