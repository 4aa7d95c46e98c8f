"""The documentation site: every page is in its navigation, and every link has a target.

``tests/site`` builds it with MkDocs, which checks the same, in a separate environment.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
NAMES = (
    *("commands", "rest", "python-client", "settings", "metrics", "problems"),
    *("session-types", "session-states"),
)
GENERATED = {f"reference/{name}.md" for name in NAMES}
_NAMED = re.compile(r"\b(docs/[\w/-]+\.md)(?:#([\w-]+))?")
# Pages shown to users, or read beside the documents.
_TEXT = {".env", ".md", ".py", ".service", ".sh", ".toml", ".ts", ".tsx", ".yaml"}
_NAMING = ("src/moorage", "deploy", "tools", "console/src")


def navigation(configuration: Path) -> set[str]:
    """The pages in the navigation."""

    def pages(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        elif entry:
            for inner in entry if isinstance(entry, list) else entry.values():
                yield from pages(inner)

    _, _, nav = configuration.read_text().partition("\nnav:\n")
    return set(pages(yaml.safe_load(nav)))


@cache
def anchors(page: Path) -> set[str]:
    """Anchors of its headings, as GitHub and the site make them."""
    headings = re.findall(r"^#{1,6} (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


def documents() -> list[Path]:
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "examples/README.md"]


def test_the_navigation_names_pages_that_exist() -> None:
    shown = navigation(ROOT / "docs" / "mkdocs.yml")
    assert [page for page in shown - GENERATED if not (ROOT / page).is_file()] == []
    assert shown > GENERATED


@pytest.mark.parametrize("page", documents(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target, anchor in _LINK.findall(_FENCE.sub("", page.read_text())):
        if "://" in target or target.startswith("mailto:"):
            continue

        found = (page.parent / target).resolve() if target else page
        if not found.exists() or (
            anchor and found.suffix == ".md" and anchor not in anchors(found)
        ):
            broken.append(f"{target}#{anchor}")

    assert broken == []


def test_documents_that_programs_name_exist() -> None:
    """The next steps of errors and checks name a page, and one of its headings as the anchor."""
    named = {
        (str(path.relative_to(ROOT)), page, anchor)
        for folder in _NAMING
        for path in (ROOT / folder).rglob("*")
        if path.suffix in _TEXT
        for page, anchor in _NAMED.findall(path.read_text())
    }
    broken = [
        (where, page, anchor)
        for where, page, anchor in sorted(named)
        if not (ROOT / page).is_file() or (anchor and anchor not in anchors(ROOT / page))
    ]
    assert broken == []
    assert any(anchor for _, _, anchor in named)


def test_the_readme_links_every_page() -> None:
    linked = {target for target, _ in _LINK.findall((ROOT / "README.md").read_text())}
    pages = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    pages |= {page.name for page in ROOT.glob("*.md")} - {"README.md"}
    assert sorted(pages - linked) == []


def test_every_page_is_in_the_navigation_and_the_reference_in_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    runpy.run_path(str(ROOT / "docs" / "site_pages.py"))["main"](tmp_path / "site")
    pages = tmp_path / "site" / "pages"
    assert {page for page in GENERATED if (pages / page).stat().st_size < 2000} == set()
    overview = (pages / "docs/reference.md").read_text()
    assert {*re.findall(r"^## \[.+\]\(\.\./(.+)\)$", overview, re.MULTILINE)} == GENERATED
    assert "## moorage run" in (pages / "reference/commands.md").read_text()
    assert "### POST /v1/sessions\n" in (pages / "reference/rest.md").read_text()
    assert (
        "| `manager.listen` | `'127.0.0.1:8700'` |" in (pages / "reference/settings.md").read_text()
    )
    assert "1. Both links carry full state" in (tmp_path / "site" / "mkdocs.yml").read_text()
    pages_of_ours = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    pages_of_ours |= {page.name for page in ROOT.glob("*.md")}
    assert pages_of_ours <= navigation(tmp_path / "site" / "mkdocs.yml")
