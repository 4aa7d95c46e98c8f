"""Code blocks and code spans of the documents, and the command lines in them.

Indented blocks, and fenced ones with ``sh`` or ``bash``, are typed into a shell. Other fences name
their content (``toml``, ``yaml``, ``python``, ``console``, ``text``).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHELLS = ("", "sh", "bash")
_FENCE = re.compile(r" *(```|~~~) *(\w*) *")
_COMMENT = re.compile(r"(^|\s)#( .*|)$")
_SEPARATORS = {";", "|", "||", "&", "&&", "\n", "(", ")", ";;"}


@dataclass(frozen=True)
class Block:
    """``line``: the number of its first line of code. ``language``: "" for an indented block."""

    page: str
    line: int
    language: str
    text: str

    @property
    def first(self) -> str:
        """The block's name in a test's table: its first line without the comment."""
        return _COMMENT.sub("", self.text.splitlines()[0]).strip()


def pages() -> list[Path]:
    """All documents in the repository except the changelog and the decisions, which describe what
    was true at the time."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/skill/*/*.md")]
    found += [*ROOT.glob("examples/*.md"), *ROOT.glob("deploy/**/*.md")]
    return sorted(page for page in found if page.name != "CHANGELOG.md")


def blocks(page: Path) -> list[Block]:
    return [block for block in _parts(page) if isinstance(block, Block)]


def spans(page: Path) -> list[tuple[int, str]]:
    """Code spans of the prose, with their line numbers."""
    return [(line, span) for line, text in prose(page) for span in re.findall(r"`([^`]+)`", text)]


def prose(page: Path) -> list[tuple[int, str]]:
    """Lines outside code blocks, with their numbers."""
    return [part for part in _parts(page) if isinstance(part, tuple)]


def _parts(page: Path) -> Iterator[Block | tuple[int, str]]:
    """Blocks, and lines of prose with their numbers."""
    name = str(page.relative_to(ROOT) if page.is_relative_to(ROOT) else page.name)
    held: list[str] = []
    start = 0
    language = ""
    fence = ""
    after_blank = True
    for number, line in enumerate([*page.read_text().splitlines(), "."], 1):
        match = _FENCE.fullmatch(line)
        if fence:
            if match and match[1] == fence:
                yield Block(name, start, language, "\n".join(held))
                held = []
                fence = ""
            else:
                held.append(line)

            continue

        # Inside a list, text with less indentation than a block is prose.
        is_code = line.startswith("    ") and (after_blank or held)
        if held and not is_code and line.strip():
            yield Block(name, start, "", "\n".join(held).rstrip())
            held = []

        if is_code or (held and not line.strip()):
            start = start if held else number
            held.append(line[4:])
        elif match:
            start = number + 1
            language = match[2]
            fence = match[1]
        else:
            yield number, line

        after_blank = not line.strip()


def commands(text: str) -> Iterator[list[str]]:
    """The simple commands in a shell text, without comments, variables and redirections."""
    lines = (_COMMENT.sub("", line) for line in text.replace("\\\n", " ").splitlines())
    lexer = shlex.shlex("\n".join(lines), posix=True, punctuation_chars=";|&<>()\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    tokens = iter(lexer)
    for token in tokens:
        if set(token) & set("<>") and set(token) <= set("<>&"):
            next(tokens, "")
        elif token in _SEPARATORS or set(token) <= set("\n;|&()"):
            yield from [words] if words else []
            words = []
        elif words or not re.match(r"\w+=", token):
            words.append(token)

    yield from [words] if words else []


def moorage_commands(text: str) -> Iterator[list[str]]:
    """The arguments of each ``moorage`` call, including those after ``--`` and through pipx."""
    for words in commands(text):
        for index, word in enumerate(words):
            starts = index == 0 or words[index - 1] in ("--", "$") or words[0] == "pipx"
            if starts and Path(word).name == "moorage":
                yield words[index + 1 :]
