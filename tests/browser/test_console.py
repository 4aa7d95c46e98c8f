"""The web console in a real browser: an administrator's day, every page in both themes and widths,
axe."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Platform

from .installations import furnish
from .prepare import missing

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(os.environ.get("MOORAGE_BROWSER_VENV", ROOT / ".venv-browser")) / "bin"
PUBLISHED = ("overview", "group", "sessions", "agent")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(missing()), reason=missing())]


@pytest.fixture
def platform(home: Path) -> Iterator[Platform]:
    started = Platform(home)
    started.env["MOORAGE_MANAGER__OPENAI_URL"] = started.openai_url
    started.start("manager")
    yield started
    started.close()


@pytest.mark.timeout(1000)
async def test_day_of_an_administrator(platform: Platform, tmp_path: Path) -> None:
    await platform.wait_until_ready()
    # Pictures for the documents show a whole day; two hours test the same.
    await furnish(platform, 24 if os.environ.get("MOORAGE_KEEP_PICTURES") else 2)
    script = Path(__file__).with_name("drive_console.py")
    command = [str(TOOLS / "python"), str(script), platform.url, platform.key, str(tmp_path)]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=900
    )

    if os.environ.get("MOORAGE_KEEP_PICTURES"):
        for file in tmp_path.glob("*.png"):
            if file.name.partition("-")[0] in PUBLISHED or file.name == "failed.png":
                shutil.copy(file, ROOT / "docs" / "console" / file.name)

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["axe"] == []
    assert seen["complaints"] == []
    assert "TLS" in seen["joining"], "a refusal shows its reason and the next step"
    assert seen["reason"], "a session that waits says why"
    assert seen["answer"], "the model answers in the console"
    assert "Traceback" not in platform.output("manager")
