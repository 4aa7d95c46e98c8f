"""User programs are typed: those in the documents and in ``examples/`` pass mypy without a pydantic
plug-in."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

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
