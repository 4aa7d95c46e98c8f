"""docs/glossary.md: every term, and every status, result and event, each exactly once."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import pytest

from moorage.common.model.status import AgentStatus, EndpointStatus, ObservedState, Result, Status
from moorage.manager.lifecycle.transitions import Event

PAGE = (Path(__file__).parents[3] / "docs" / "glossary.md").read_text()


def entries(section: str) -> list[str]:
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    assert text, f"there is no section {section!r}"
    return re.findall(r"^\| `?([^`|]+?)`? \|", text, re.MULTILINE)[1:]


@pytest.mark.parametrize(
    ("section", "codes"),
    [
        ("Statuses", {*Status, *AgentStatus, *ObservedState, *EndpointStatus}),
        ("Results", list(Result)),
        ("Events", list(Event)),
    ],
)
def test_sections_are_complete(section: str, codes: Collection[str]) -> None:
    assert sorted(entries(section)) == sorted(str(code) for code in codes)


@pytest.mark.parametrize("section", ["Terms", "Statuses", "Results", "Events"])
def test_entries_are_defined_once(section: str) -> None:
    found = entries(section)
    assert sorted(found) == sorted(set(found))


def test_terms_are_sorted() -> None:
    assert entries("Terms") == sorted(entries("Terms"))
