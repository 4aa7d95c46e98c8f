"""Keys, templates and queued sessions above the ceilings of resource groups, as the doctor finds
them."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.server.doctor.priorities import check_priorities

NONE: dict[str, Any] = {"kept_keys": [], "templates": [], "queued": []}
GROUPS = [
    {"group": "default", "ceilings": None},
    {"group": "open", "ceilings": {"member": 50, "project_admin": 60}},
    {"group": "newer", "ceilings": {"member": {"of": "a newer release"}}},
]


def key(
    priority: int, membership: str | None = "member", platform: str | None = None
) -> dict[str, Any]:
    role = "admin" if platform else "member"
    return {
        "name": "k",
        "priority": priority,
        "role": role,
        "membership": membership,
        "platform": platform,
    }


def queued(
    priority: int, group: str, membership: str | None = "member", platform: str | None = None
) -> Any:
    owner = {"user": "ann", "project": "vision", "membership": membership, "platform": platform}
    return owner | {"group": group, "priority": priority, "sessions": 3}


def template(priority: int, group: str, project: str = "vision") -> dict[str, Any]:
    return {"name": "t", "project": project, "group": group, "priority": priority}


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        ({}, ""),
        ({"kept_keys": [key(10)]}, ""),
        ({"kept_keys": [key(11)]}, "keys above the ceiling of their role: k (11)"),
        ({"kept_keys": [key(100, None)]}, ""),  # not valid
        ({"kept_keys": [key(100, None, "admin")]}, ""),
        ({"kept_keys": [key(11)] * 7}, "k (11), k (11), k (11), k (11), k (11) and 2 more"),
        ({"templates": [template(10, "default")]}, ""),
        ({"templates": [template(11, "default")]}, "t (11, project vision)"),
        ({"templates": [template(50, "open", "")]}, ""),
        ({"templates": [template(51, "open", "")]}, "t (51, for all)"),
        ({"queued": [queued(10, "default")]}, ""),
        ({"queued": [queued(11, "default")]}, "3 of ann of vision in default (11)"),
        ({"queued": [queued(50, "open")]}, ""),
        ({"queued": [queued(60, "open", "admin")]}, ""),
        ({"queued": [queued(61, "open", "admin")]}, "in open (61)"),
        ({"queued": [queued(100, "open", None, "admin")]}, ""),
        ({"queued": [queued(11, "default", None)]}, "in default (11)"),  # whose owner has left
        ({"queued": [queued(11, "newer")]}, "in newer (11)"),
    ],
)
def test_what_is_above_the_ceiling(facts: dict[str, Any], found: str) -> None:
    [result] = check_priorities(NONE | {"ceilings": GROUPS} | facts)
    assert result.status == ("warn" if found else "ok")
    assert found in result.detail
    assert bool(result.next_step) is bool(found)
