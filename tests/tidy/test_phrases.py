"""Prose in the sources: phrases that ``tools/prose`` counts do not return to places from which they
were removed."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROSE = runpy.run_path(str(ROOT / "tools" / "prose"))
PACKAGES = (
    "agent",
    "cli",
    "common",
    "demo",
    "manager",
    "proxy",
    "sdk",
    "server",
    "simulator",
    "testing",
)
# The word "told" is left to a reader, because it is also a field name.
PHRASES = (
    "Of … (opens a docstring)",
    "anew",
    "for so long",
    "for ever",
    "goes on",
    "meanwhile",
    "Lost are …",
)
# Generated files, and migrations, which stay as they were applied.
LEFT_OUT = {"migrations", "pb"}


def _found(file: Path) -> list[str]:
    """Texts of the file that contain one of the phrases."""
    return [
        f"{file.relative_to(ROOT)}:{text.line}: {name}: {text.words[:100]}"
        for text in PROSE["python_texts"]("src", file)
        for name in PHRASES
        if PROSE["PHRASES"][name].search(text.words)
        and (text.place.endswith("docstrings") or not name.endswith("docstring)"))
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_phrases_stay_away(package: str) -> None:
    files = sorted((ROOT / "src/moorage" / package).rglob("*.py"))
    found = [line for file in files if not LEFT_OUT & set(file.parts) for line in _found(file)]
    assert found == [], "reword them; `tools/prose --where PHRASE` lists the texts with a phrase"
