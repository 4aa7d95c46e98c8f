"""Programs of users are typed: the page on the Python client passes mypy without a plug-in of
pydantic."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "sdk.md"
# Beside that of `make check`, whose options are others.
CACHE = ROOT / ".mypy_cache" / "client"
WRONG = """
client.create_session("a name")
"""


def check(folder: Path, program: str) -> str:
    (folder / "program.py").write_text(program)
    (folder / "mypy.ini").write_text("[mypy]\nstrict = True\n")
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(CACHE), "program.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_the_page_on_the_python_client_is_typed(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    body = textwrap.indent("\n".join(blocks), "    ")
    program = f"async def main() -> None:\n{body}\n\n"
    program += "from moorage.sdk import SyncClient\n\n\ndef wrong(client: SyncClient) -> None:\n"
    found = check(tmp_path, program + textwrap.indent(WRONG, "    "))
    assert re.findall(r"error: (.*)", found) == [
        'Argument 1 has incompatible type "str"; expected "SessionSpec"  [arg-type]'
    ], found
