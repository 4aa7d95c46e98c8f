"""The documentation site as MkDocs builds it, read in Chromium. Run by ``make test-site``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.browser.prepare import missing

from .questions import QUESTIONS

pytestmark = pytest.mark.site
ROOT = Path(__file__).resolve().parents[2]
MKDOCS = ROOT / ".venv-site/bin/mkdocs"
BROWSER = Path(os.environ.get("MOORAGE_BROWSER_VENV", ROOT / ".venv-browser")) / "bin/python"
BUILD_S = 60.0  # it takes a tenth of that
# What a browser loads without being asked; links that a reader follows may lead anywhere.
_LOADED = re.compile(
    r"<(?:script|img|iframe|source|video)\b[^>]*?\ssrc=\"?(https?:)?//[^>]*>"
    r"|<link\b(?![^>]*rel=\"?(?:canonical|prev|next))[^>]*href=\"?(https?:)?//[^>]*>"
)


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the built site."""
    build = tmp_path_factory.mktemp("documents") / "site"
    subprocess.run(
        [sys.executable, str(ROOT / "docs/site_pages.py"), str(build)], check=True, timeout=120
    )
    command = [str(MKDOCS), "build", "--strict", "-f", str(build / "mkdocs.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
    assert done.returncode == 0, done.stderr
    return build / "html"


@cache
def read(html: Path) -> dict[str, Any]:
    """What Chromium saw of the site."""
    script = Path(__file__).with_name("drive_site.py")
    done = subprocess.run(
        [str(BROWSER), str(script), str(html)],
        input=json.dumps([*QUESTIONS]), capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


needs_browser = pytest.mark.skipif(bool(missing()), reason=missing())


def test_the_site_builds_without_a_warning_and_its_index_has_words(html: Path) -> None:
    index = json.loads((html / "search/search_index.json").read_text())
    found = {
        entry["location"].partition("#")[0]
        for entry in index["docs"]
        if "uncordon" in entry["text"]
    }
    assert found >= {"docs/nodes.html", "reference/commands.html"}
    assert all((html / page).is_file() for page in found)


def test_nothing_of_the_site_is_on_another_host(html: Path) -> None:
    pages = [*html.rglob("*.html")]
    loaded = {
        f"{page.relative_to(html)}: {match[0]}"
        for page in pages
        for match in _LOADED.finditer(page.read_text())
    }
    styles = {
        str(sheet.relative_to(html))
        for sheet in html.rglob("*.css")
        if re.search(r"(@import|url\()\s*[\"']?(https?:)?//", sheet.read_text())
    }
    # The theme would load the program that draws these from a public host.
    drawn = {str(page.relative_to(html)) for page in pages if 'class="mermaid"' in page.read_text()}
    assert (loaded, styles, drawn) == (set(), set(), set())
    assert len(pages) > 100


@needs_browser
@pytest.mark.timeout(300)
def test_the_search_finds_the_page_that_answers(html: Path) -> None:
    """At most one question may have its answer below the third page."""
    found = read(html)["found"]
    missed = {
        question: found[question][:5]
        for question, pages in QUESTIONS.items()
        if not {*pages} & {*found[question][:3]}
    }
    assert len(missed) <= 1, missed


@needs_browser
@pytest.mark.timeout(300)
def test_pages_fit_wide_and_narrow_screens(html: Path) -> None:
    assert read(html)["cut"] == []


@needs_browser
@pytest.mark.timeout(300)
def test_pages_have_a_dark_theme_colours_in_code_and_buttons_to_copy_it(html: Path) -> None:
    seen = read(html)
    assert seen["away"] == []
    assert seen["light"] == "rgb(255, 255, 255)"
    assert seen["dark"] not in (seen["light"], "rgba(0, 0, 0, 0)")
    assert seen["chosen"] == seen["dark"], "the button shows what the system's setting shows"
    assert seen["copy"] > 5
    assert seen["colours"] > 2
