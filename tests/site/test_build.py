"""The documentation site as MkDocs builds it, with its search. Run by ``make test-site``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.site
ROOT = Path(__file__).resolve().parents[2]
MKDOCS = ROOT / ".venv-site/bin/mkdocs"


def test_the_site_builds_without_a_warning_and_its_search_finds_words(tmp_path: Path) -> None:
    build = tmp_path / "site"
    subprocess.run(
        [sys.executable, str(ROOT / "docs/site_pages.py"), str(build)], check=True, timeout=120
    )
    command = [str(MKDOCS), "build", "--strict", "-f", str(build / "mkdocs.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    index = json.loads((build / "html/search/search_index.json").read_text())
    found = {
        entry["location"].partition("#")[0]
        for entry in index["docs"]
        if "uncordon" in entry["text"]
    }
    assert found >= {"docs/nodes.html", "reference/commands.html"}
    assert all((build / "html" / page).is_file() for page in found)
