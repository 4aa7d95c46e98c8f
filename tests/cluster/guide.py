"""Pages that a test follows word for word: their indented blocks, each with the machines that it
runs on."""

from __future__ import annotations

import re
from collections.abc import Iterator


def steps(page: str) -> Iterator[tuple[list[str], str]]:
    """Each indented block after ``On one, two and three:``, with the machines that it runs on."""
    machines: list[str] = []
    block: list[str] = []
    for line in [*page.splitlines(), ""]:
        if line.startswith("    "):
            block.append(line[4:])
            continue
        if block:
            yield machines, "\n".join(block)
            block = []
        if match := re.fullmatch(r"On (.*):", line):
            machines = re.split(r", | and ", match[1])


def addresses(page: str) -> dict[str, str]:
    """The machines in the page's table, with their addresses."""
    return dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", page, re.MULTILINE))
