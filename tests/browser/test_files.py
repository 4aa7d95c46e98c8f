"""The files of a session in the web console, in a real Chromium."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import SessionType, Status
from tests.e2e.harness import Platform, until

from .prepare import missing

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(os.environ.get("MOORAGE_BROWSER_VENV", ROOT / ".venv-browser")) / "bin"
HOSTILE = "<img src=x onerror=alert(1)>.txt"
pytestmark = [pytest.mark.browser, pytest.mark.skipif(bool(missing()), reason=missing())]


@pytest.fixture
def platform(home: Path) -> Iterator[Platform]:
    started = Platform(home)
    started.start("up")
    yield started
    started.close()


async def furnish(platform: Platform) -> Path:
    """Start the session, and create its files. Returns its directory."""
    async with platform.client() as client:
        spec = SessionSpec(
            name="dev", type=SessionType.INTERACTIVE, resources={"cpu": 0.1, "mem": "64MiB"}
        )
        await client.sessions.create(spec)

        async def runs() -> bool:
            return (await client.sessions.get("dev")).status is Status.RUNNING

        await until("the session runs", runs)

    found = await asyncio.to_thread(platform.run, "exec", "dev", "--", "pwd")
    directory = Path(found.stdout.strip())
    (directory / "sub").mkdir()
    (directory / "sub" / "inner.txt").write_text("inner")
    (directory / HOSTILE).write_text("hello")
    (directory / "\u202etxt.exe").write_text("reversed")
    (directory / ("x" * 200)).write_text("long")
    os.mkfifo(directory / "closed")
    return directory


@pytest.mark.timeout(600)
async def test_files_of_a_session(platform: Platform, tmp_path: Path) -> None:
    await platform.wait_until_ready()
    directory = await furnish(platform)
    (tmp_path / "first.bin").write_bytes(os.urandom(3_000_000))
    (tmp_path / ("x" * 199 + "y")).write_bytes(b"")
    (tmp_path / "large.bin").write_bytes(os.urandom(20_000_000))
    script = Path(__file__).with_name("drive_files.py")
    command = [str(TOOLS / "python"), str(script), platform.url, platform.key, str(tmp_path)]
    ran = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False, timeout=550
    )
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert seen["axe"] == [], "\n".join(seen["axe"])
    assert seen["complaints"] == []
    assert "first.bin" in seen["names"]
    assert not [name for name in seen["names"] if name.startswith(".moorage-cp-")]
    assert "the session has ended" in seen["ended"], "the page says why nothing was stored"
    assert not [*directory.glob(".moorage-cp-*"), *directory.glob("large.bin")]
    assert "Traceback" not in platform.output("up")
