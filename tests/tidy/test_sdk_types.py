"""User programs are typed: those in the documents and in ``examples/`` pass mypy without a pydantic
plug-in. The page on the Python client names every call."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from moorage.sdk import Client

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "sdk.md"
# In addition to that of `make check`, which has different options.
CACHE = ROOT / ".mypy_cache" / "client"
# Names that other blocks take from the surrounding text.
PREAMBLE = """
from moorage.sdk import Client, Resources, SessionSpec, SyncClient
"""
WRONG = """

def wrong(client: SyncClient) -> None:
    client.sessions.create("a name")
    for session in client.sessions.list().page():
        session[0]
"""


def python_blocks(page: Path) -> list[str]:
    """Blocks that use the client."""
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [block for block in blocks if page == PAGE or re.search(r"\b[Cc]lient[.(]", block)]


def errors_of(folder: Path, programs: dict[str, str]) -> list[str]:
    """mypy's messages about the programs, by name."""
    for name, program in programs.items():
        (folder / f"{name}.py").write_text(program)
    (folder / "mypy.ini").write_text("[mypy]\nstrict = True\n")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--cache-dir",
        str(CACHE),
        *(f"{n}.py" for n in programs),
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert "errors prevented" not in done.stdout, done.stdout
    return re.findall(r"^.*error: .*$", done.stdout, re.MULTILINE)


def test_documented_programs_are_typed(tmp_path: Path) -> None:
    programs = {"wrong": PREAMBLE + WRONG}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        if blocks := python_blocks(page):
            body = textwrap.indent("\n".join(blocks), "    ")
            start = f"{PREAMBLE}\n\nasync def main() -> None:\n    client = Client()\n"
            if page == PAGE:
                start = "async def main() -> None:\n"
            programs[f"page_{page.stem}"] = start + body

    assert {"page_sdk", "page_code", "page_runtimes"} <= {*programs}
    for example in sorted((ROOT / "examples").glob("*.py")):
        if "moorage.sdk" in example.read_text():
            programs[f"example_{example.stem}"] = example.read_text()

    assert [re.sub(r"^wrong.py:\d+: ", "", error) for error in errors_of(tmp_path, programs)] == [
        'error: Argument 1 has incompatible type "str"; expected "SessionSpec"  [arg-type]',
        'error: Value of type "SessionView" is not indexable  [index]',
    ]


def table() -> Iterator[str]:
    """Each resource with its meaning and its methods."""
    for name, kind in sorted(Client.__annotations__.items()):
        resource = getattr(import_module(f"moorage.sdk.resources.{name}"), kind)
        methods = [n for n, _ in inspect.getmembers(resource, callable) if not n.startswith("_")]
        in_order = sorted(
            methods, key=lambda n: inspect.unwrap(resource.__dict__[n]).__code__.co_firstlineno
        )
        verbs = ", ".join(f"`{method}`" for method in in_order)
        meaning = inspect.cleandoc(resource.__doc__).split(". ")[0].removesuffix(".")
        yield f"| `{name}` | {meaning} | {verbs} |"


def test_the_page_names_every_call() -> None:
    rows = re.findall(
        r"^\| `\w+` \| .*`.* \|$", PAGE.read_text().partition("## Resources")[2], re.MULTILINE
    )
    assert rows == [*table()], "write this table:\n" + "\n".join(table())
