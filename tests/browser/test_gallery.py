"""Every page of the web console has no fault that a program can see; drafts and the reader's
locale."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.harness import Platform

from . import gallery, installations
from .prepare import missing

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
# `python -m tests.browser.gallery` looks at all themes and widths, on three installations.
WIDTHS = (360, 1280)


@pytest.fixture
def platform(home: Path) -> Iterator[Platform]:
    started = Platform(home)
    started.env["MOORAGE_MANAGER__OPENAI_URL"] = started.openai_url
    started.start("manager")
    yield started
    started.close()


async def test_pages_have_no_visible_fault(platform: Platform, tmp_path: Path) -> None:
    await platform.wait_until_ready()
    await installations.furnish(platform, hours=1)
    await installations.possess(platform)
    everything = gallery.everything(furnished=True)
    some = replace(
        everything, schemes=("light",), widths=WIDTHS, tabs=False, axe=False, pictures=False
    )
    screens = await asyncio.to_thread(gallery.look, platform, tmp_path, some)
    assert len(screens) == len(gallery.routes()) * len(WIDTHS)
    assert not gallery.faults_of(screens), "\n".join(gallery.faults_of(screens))


async def test_drafts_and_locale(platform: Platform, tmp_path: Path) -> None:
    """The script asserts what a draft keeps, and returns how numbers and dates are written."""
    await platform.wait_until_ready()
    await installations.connect(platform, 1)
    script = Path(__file__).with_name("drive_drafts.py")
    command = [str(gallery.TOOLS / "python"), str(script), platform.url, platform.key]
    done = await asyncio.to_thread(
        subprocess.run, [*command, str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["complaints"] == []
    assert seen["axe"] == []
    assert seen["requested"] == "1,5 CPU, 1 GiB memory"
    assert seen["created"].count(".") == 2, "a date in German"
