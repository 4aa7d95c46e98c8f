"""An installed platform is upgraded under running sessions, and uninstalled."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from moorage.common.model.status import EndpointStatus, Status
from moorage.demo.model import write_tiny_gguf
from tests.e2e.harness import kernels_below, processes, until
from tests.wheel import build

from .environments import Environment, find_python
from .platform import InstalledPlatform

ROOT = Path(__file__).resolve().parents[2]
# Upgrade in each of the two ways to run Moorage.
DAEMONS = {"previous-release": ("manager", "agent", "proxy"), "previous-commit": ("up",)}


def commit_of(release: str) -> str:
    if release == "previous-release":
        return (ROOT / "tests/PREVIOUS_RELEASE").read_text().split()[0]
    return "HEAD~1"


def wheel_of(commit: str, folder: Path) -> Path:
    """The wheel of a commit from this repository's history."""
    archived = subprocess.run(
        ["git", "archive", commit], cwd=ROOT, capture_output=True, check=False
    )
    if archived.returncode:
        pytest.skip(
            f"NOT TESTED: an upgrade from {commit}, which is not in this clone: git fetch --unshallow"
        )

    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as files:
        files.extractall(folder / "source", filter="data")

    return build(folder / "dist", folder / "source")


@pytest.fixture
def installation(reachable_dir: Path, home: Path) -> Environment:
    return Environment.make(reachable_dir / f"env-{home.name}", sys.executable)


@pytest.fixture
def platform(home: Path, installation: Environment) -> Iterator[InstalledPlatform]:
    running = InstalledPlatform(home, installation)
    yield running
    running.close()


async def start(platform: InstalledPlatform, daemons: Sequence[str]) -> None:
    platform.start(daemons[0])
    await platform.wait_until_ready()
    for name in daemons[1:]:
        platform.start(name)


def stop(platform: InstalledPlatform, daemons: Sequence[str]) -> None:
    for name in reversed(daemons):
        assert platform.stop(name) == 0, platform.output(name)


@pytest.mark.install
@pytest.mark.timeout(600)
@pytest.mark.parametrize("release", DAEMONS)
async def test_sessions_live_through_an_upgrade(
    platform: InstalledPlatform, installation: Environment, wheel: Path, client_only: Environment,
    tmp_path: Path, release: str,
) -> None:  # fmt: skip
    installation.install(f"{wheel_of(commit_of(release), tmp_path)}[all]")
    model = platform.home / "tiny.gguf"
    write_tiny_gguf(model)
    await start(platform, DAEMONS[release])
    platform.must("serve", str(model), "--name", "tiny")
    platform.must("start", "--name", "dev", "--resources", "cpu=0.1", "--resources", "mem=64MiB")
    platform.must("exec", "dev", "--", "sh", "-c", "echo kept > note")
    before = kernels_below(platform.home)
    assert len(before) == 2, before

    stop(platform, DAEMONS[release])
    assert kernels_below(platform.home) == before, "kernels outlive their daemons"
    installation.install(f"{wheel}[all]", upgrade=True)
    await start(platform, DAEMONS[release])

    async def are_adopted() -> bool:
        async with platform.client() as client:
            dev = await client.sessions.get("dev")
            endpoint = await client.endpoints.get("tiny")
        assert (dev.status, dev.attempt, endpoint.status) == (
            Status.RUNNING,
            1,
            EndpointStatus.READY,
        )
        return True

    await until("the sessions are adopted", are_adopted)
    assert kernels_below(platform.home) == before, "no program was started again"

    async def keeps_its_file() -> bool:
        return platform.run("exec", "dev", "--", "cat", "note").stdout == "kept\n"

    await until("the session keeps its file", keeps_its_file)

    async def answers() -> bool:
        return platform.run("chat", "tiny", "Hi").returncode == 0

    await until("the model answers", answers)
    # The client is a separate installation, as on another machine.
    where = {"MOORAGE_HOME": str(platform.home)}
    listed = client_only.run("moorage", "ps", env=where)
    assert (listed.returncode, "dev" in listed.stdout) == (0, True), listed.stderr

    # As docs/install.md describes: stop the sessions, then the daemons, then remove the package.
    platform.must("stop", "tiny", "dev")
    stop(platform, DAEMONS[release])
    installation.uninstall()
    assert not Path(installation.program("moorage")).exists()
    left = [
        pid for pid, env in processes().items() if env.get("MOORAGE_HOME") == str(platform.home)
    ]
    assert left == []


@pytest.mark.install
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
async def test_a_model_is_served_from_the_wheel(wheel: Path, home: Path, version: str) -> None:
    python = find_python(version)
    if not python:
        pytest.skip(f"NOT TESTED: Python {version} is not on this machine")

    installation = Environment.make(home / "env", python)
    installation.install(f"{wheel}[all]")
    platform = InstalledPlatform(home, installation)
    model = home / "tiny.gguf"
    write_tiny_gguf(model)
    platform.start("up")

    try:
        await platform.wait_until_ready()
        platform.must("serve", str(model), "--name", "tiny")
        assert "tiny" in platform.must("ps", "-o", "json")
        assert (
            platform.must(
                "run", "--resources", "cpu=0.1", "--resources", "mem=64MiB", "--", "echo", "ran"
            ).strip()
            == "ran"
        )
        platform.must("stop", "tiny")
    finally:
        platform.close()
