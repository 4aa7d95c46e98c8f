"""``tools/prose``: which texts it reads, which phrases it counts, and which sentences it draws."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PAGE = """# Title

A key goes on.
It was told anew.

    code that goes on

* Lost are the spans.
* Second item.

```sh
echo told
```

Last words.
"""


@pytest.fixture(scope="module")
def prose() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "tools" / "prose"))


def test_paragraphs_of_markdown_leave_out_code(prose: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE)
    found = [(text.line, text.words) for text in prose["paragraphs"]("docs", tmp_path / "page.md")]
    assert found == [
        (1, "Title"),
        (3, "A key goes on. It was told anew."),
        (8, "Lost are the spans."),
        (9, "Second item."),
        (15, "Last words."),
    ]


def test_docstrings_and_messages_are_told_apart(prose: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        '"""A module with a docstring."""\nraise E("the value is too large")  # a comment\n'
    )
    found = {
        text.place: text.words for text in prose["python_texts"]("src", tmp_path / "module.py")
    }
    assert found == {
        "src comments": "a comment",
        "src docstrings": "A module with a docstring.",
        "src messages": "the value is too large",
    }
    places = [text.place for text in prose["python_texts"]("tests", tmp_path / "module.py")]
    assert places == ["tests comments", "tests docstrings"]


@pytest.mark.parametrize(
    ("phrase", "text", "number"),
    [
        ("Of … (opens a docstring)", "Of its headings.", 1),
        ("Of … (opens a docstring)", "Names of headings.", 0),
        ("told", "It is told of this. It tells of that.", 2),
        ("goes on", "It goes on. It went on.", 2),
        ("One that …", "One that ends is gone. Each one that ends is gone.", 1),
        ("What … (as subject)", "What ends is gone. What ends?", 1),
        ("Lost are …", "Lost are the spans. The spans are lost.", 1),
    ],
)
def test_phrases(prose: dict[str, Any], phrase: str, text: str, number: int) -> None:
    assert len(prose["PHRASES"][phrase].findall(text)) == number


def test_the_same_seed_draws_the_same_sentences(prose: dict[str, Any]) -> None:
    texts = [
        prose["Text"]("docs", ROOT / "page.md", line, f"The sentence of line {line}. Too short.")
        for line in range(100)
    ]
    drawn = prose["draw"](texts, 5, 7)
    assert drawn == prose["draw"](texts, 5, 7)
    assert drawn != prose["draw"](texts, 5, 8)
    assert all(sentence.startswith("The sentence of line") for sentence in drawn)
