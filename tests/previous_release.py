"""The sources of the previous release: the commit in ``tests/PREVIOUS_RELEASE``, from this
repository's history. They run with the installed dependencies."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Variables that tests set for all components, for settings that the previous release does not have.
NEWER_SETTINGS: frozenset[str] = frozenset()


def unpack_previous_release(directory: Path) -> Path:
    """A value for PYTHONPATH. Skips the test if the history is missing."""
    return unpack_release(directory, (ROOT / "tests/PREVIOUS_RELEASE").read_text().split()[0])


def unpack_release(directory: Path, commit: str) -> Path:
    """Like ``unpack_previous_release``, for another commit."""
    archived = subprocess.run(
        ["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=False
    )
    if archived.returncode:
        pytest.skip(
            f"NOT TESTED: compatibility with the release at {commit}, which is not in this clone: "
            f"git fetch --unshallow ({archived.stderr.decode().strip()})"
        )

    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as files:
        files.extractall(directory, filter="data")

    return directory / "src"


def without_newer_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """For a program of the previous release, which refuses unknown settings."""
    return {name: value for name, value in environment.items() if name not in NEWER_SETTINGS}
