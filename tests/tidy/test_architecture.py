"""The architecture page names every package in the tree, and only existing paths."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "moorage"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()


def expanded(name: str) -> Iterator[str]:
    """The paths of a name with alternatives in braces: ``a/{b,c}`` is ``a/b`` and ``a/c``."""
    parts = [part.split(",") for part in re.split(r"[{}]", name)]
    return map("".join, product(*parts))


def named(heading: str, column: int) -> list[str]:
    """The code spans in one column of the table under ``heading``, expanded."""
    _, _, table = PAGE.partition(heading)
    rows = table.strip().partition("\n\n")[0].splitlines()[1:]
    spans = (span for row in rows for span in re.findall(r"`([^`]+)`", row.split(" | ")[column]))
    return [path for span in spans for path in expanded(span)]


def packages() -> set[str]:
    files = (file for file in SOURCE.rglob("*.py") if file.parent != SOURCE)
    return {str(file.parent.relative_to(SOURCE)) for file in files}


def test_the_page_names_every_package_and_no_other() -> None:
    found = named("| package in `src/moorage` | responsibility |", 0)
    missing = packages() - {*found}
    assert missing == set(), "name them in the table of packages in ARCHITECTURE.md"
    assert {*found} - packages() == set(), "they are gone: remove them from ARCHITECTURE.md"
    assert len(found) == len({*found}), "named twice"


def test_where_to_change_what_names_paths_that_exist() -> None:
    paths = [span for span in named("| you want to change | look at |", 1) if "/" in span]
    assert len(paths) > 40
    assert [
        path for path in paths if not (SOURCE / path).exists() and not (ROOT / path).exists()
    ] == []


def test_names_are_expanded() -> None:
    assert [*expanded("a/{b,c}")] == ["a/b", "a/c"]
    assert [*expanded("a")] == ["a"]
