"""The operator documents cover every status, reason and check, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import pytest

from moorage.common.config.loader import SECRETS
from moorage.common.config.settings import Settings
from moorage.common.model.reasons import Reason
from moorage.common.model.status import AgentStatus, Status
from moorage.manager.store.platform.integrity import CHECKS

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "troubleshooting.md").read_text()
ALL_PAGES = [pytest.param(path.read_text(), id=path.stem) for path in sorted(DOCS.glob("*.md"))]
# Files such as `agent.json`, and tables of settings.
NO_SETTINGS = {"json", "py", "plugins", "sites"}


def rows(section: str) -> list[str]:
    """The codes in the first column of a section's tables."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    assert text, f"there is no section {section!r}"
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("section", "codes"),
    [
        ("Statuses", list(Status)),
        ("Reasons", [reason for reason in Reason if reason]),
        ("`moorage db check`", [check.name for check in CHECKS]),
    ],
)
def test_tables_are_complete(section: str, codes: Collection[str]) -> None:
    assert sorted(rows(section)) == sorted(codes)


def test_every_row_has_a_meaning_and_an_action() -> None:
    found = re.findall(r"^\| `[^`]+` \|.*$", PAGE, re.MULTILINE)
    assert len(found) > len(Status) + len(Reason)
    for line in found:
        assert all(cell.strip() for cell in line.strip("|").split("|")), line


def test_agent_statuses_are_documented() -> None:
    assert all(f"`{status}`" in PAGE for status in AgentStatus)


@pytest.mark.parametrize("text", ALL_PAGES)
def test_every_mentioned_setting_exists(text: str) -> None:
    sections = Settings.model_fields.keys()
    named = set(re.findall(rf"`(?:{'|'.join(sections)})\.(\w*[a-z0-9])(?![\w*])", text))
    known = {
        name for section in sections for name in type(getattr(Settings(), section)).model_fields
    }
    files_of_secrets = {f"{name.partition('.')[2]}_file" for name in SECRETS}
    assert named - NO_SETTINGS <= known | files_of_secrets
