"""The wheel contains the built web console, and a manager from it serves it without a checkout."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.parse import urljoin

import aiohttp
import pytest

from tests.wheel import build

from .harness import Platform

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = "moorage/manager/console/bundle/"


@pytest.mark.timeout(180)
async def test_the_wheel_serves_the_console(home: Path, tmp_path: Path) -> None:
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(await asyncio.to_thread(build, tmp_path)) as wheel:
        packed = {name.removeprefix(BUNDLE) for name in wheel.namelist() if name.startswith(BUNDLE)}
        wheel.extractall(unpacked)

    bundle = ROOT / "src" / BUNDLE
    assert packed == {str(file.relative_to(bundle)) for file in bundle.rglob("*") if file.is_file()}
    assert {"index.html", "start.js", "icon.svg", "licenses.md"} <= packed
    platform = Platform(home)
    platform.env["PYTHONPATH"] = str(unpacked)
    where = [sys.executable, "-c", "import moorage; print(moorage.__file__)"]
    found = subprocess.run(
        where, cwd=home, env=platform.env, capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith(str(unpacked)), "the manager would run from the checkout"
    platform.start("manager")

    try:
        await platform.wait_until_ready()
        async with aiohttp.ClientSession(platform.url) as http:
            async with http.get("/console/") as answer:
                page = await answer.text()
                assert (answer.status, answer.content_type) == (200, "text/html")

            references = re.findall(r'(?:src|href)="([^"]+)"', page)
            files = [urljoin("/console/", reference) for reference in references]
            assert any(name.endswith(".js") for name in files)
            for name in files:
                async with http.get(name) as answer:
                    assert answer.status == 200, name
                    assert (
                        await answer.read()
                        == (unpacked / BUNDLE / name[len("/console/") :]).read_bytes()
                    )
    finally:
        platform.close()
