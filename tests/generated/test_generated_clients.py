"""Clients generated from a manager's own document, type-checked, and used as programs would.

The commands are those of docs/sdk.md. Run by ``make test-generated``.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.documents import blocks
from tests.e2e.harness import Platform

pytestmark = [pytest.mark.generated, pytest.mark.timeout(180)]
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYTHON = ROOT / ".venv-generated" / "bin"
NODE = ROOT / ".venv-console" / "bin"
MODULES = ROOT / "console" / "node_modules"
OPTIONS = (
    *("--strict", "--noEmit", "--skipLibCheck", "--allowImportingTsExtensions"),
    *("--module", "nodenext", "--target", "es2023", "--lib", "es2023,dom"),
)


async def run(folder: Path, *command: str) -> str:
    """The output of a command that must succeed."""
    path = f"{PYTHON}:{NODE}:{folder}/node_modules/.bin:/usr/bin:/bin"
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=folder, env={"PATH": path, "HOME": str(folder)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def command_of_the_page(generator: str, url: str) -> str:
    """The line of docs/sdk.md that generates a client, for a manager at ``url``."""
    [line] = [
        line.strip()
        for block in blocks(ROOT / "docs/sdk.md")
        for line in block.text.splitlines()
        if generator in line and "install" not in line
    ]
    return line.replace("http://127.0.0.1:8700", url)


def check(answer: str, name: str) -> None:
    seen = json.loads(answer)
    assert seen.pop("stopped") in ("TERMINATING", "CANCELLED")  # whether it had started
    assert seen == {
        "places": ["node-1"],
        "priority": 10,
        "listed": [name],
        "missing": "not-found",
    }


async def test_python(one_node: Platform, tmp_path: Path) -> None:
    # The generator waits for five seconds. The first request for the document takes longer on a
    # busy machine, because the manager composes it then.
    async with ClientSession() as http, http.get(f"{one_node.url}/openapi.json") as answer:
        assert (await answer.json())["openapi"].startswith("3.1")
    said = await run(
        tmp_path, "sh", "-c", command_of_the_page("openapi-python-client", one_node.url)
    )
    # It has no type for a picture; every other operation must be there.
    assert said.count("WARNING") == 1, said
    assert "WARNING parsing GET /v1/pipelines/{ref}/graph.svg" in said, said

    shutil.copy(HERE / "program.py", tmp_path)
    silent = ("mypy", "--strict", "--follow-imports", "silent")
    await run(tmp_path, *silent, "program.py")
    await run(tmp_path, *silent, "-p", "moorage_api.models", "-p", "moorage_api.api")
    answer = await run(tmp_path, "python", "program.py", one_node.url, one_node.key)
    check(answer, "generated-python")


async def test_typescript(one_node: Platform, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(MODULES)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    await run(tmp_path, "sh", "-c", command_of_the_page("openapi-typescript", one_node.url))

    shutil.copy(HERE / "program.ts", tmp_path)
    await run(tmp_path, "tsc", *OPTIONS, "program.ts")
    answer = await run(tmp_path, "node", "program.ts", one_node.url, one_node.key)
    check(answer, "generated-typescript")
