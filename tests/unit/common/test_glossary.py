"""docs/glossary.md: every status, result, event, reason, setting, metric and command, each exactly once."""

from __future__ import annotations

import re
import runpy
from collections.abc import Collection
from pathlib import Path

import pytest

from moorage.common.model.reasons import Reason
from moorage.common.model.status import AgentStatus, EndpointStatus, ObservedState, Result, Status
from moorage.manager.lifecycle.transitions import Event

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "glossary.md").read_text()


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
        ("Reasons", [reason for reason in Reason if reason]),
    ],
)
def test_sections_are_complete(section: str, codes: Collection[str]) -> None:
    assert sorted(entries(section)) == sorted(str(code) for code in codes)


@pytest.mark.parametrize("section", ["Terms", "Statuses", "Results", "Events", "Reasons", "Settings"])
def test_entries_are_defined_once(section: str) -> None:
    found = entries(section)
    assert sorted(found) == sorted(set(found))


def test_terms_are_sorted() -> None:
    assert entries("Terms") == sorted(entries("Terms"))


def test_generated_sections_are_current() -> None:
    """Settings, metrics and commands follow from the code: ``make docs``."""
    assert runpy.run_path(str(DOCS / "generate.py"))["glossary"]() == PAGE
