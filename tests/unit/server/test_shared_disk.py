"""The disk of the embedded Postgres: whether sessions can also fill it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.common.config.settings import AgentSettings, ManagerSettings, Settings
from moorage.server.doctor.shared_disk import check_shared_disk, database_directory


def settings(dsn: str | None = None, **agent: Any) -> Settings:
    given = AgentSettings.model_validate({"id": "one"} | agent)
    return Settings(agent=given, manager=ManagerSettings(dsn=dsn))


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        assert os.stat(folder).st_dev != os.stat(tmp_path).st_dev
        yield Path(folder)


@pytest.mark.parametrize(
    ("limit", "bound"),
    [("20GiB", "processes of members at most 20GiB each"), ("0", "without any limit")],
)
def test_one_disk_is_named_with_what_bounds_it_and_the_cure(
    tmp_path: Path, limit: str, bound: str
) -> None:
    [found] = check_shared_disk(settings(process_disk=limit), tmp_path)
    assert found.status == "warn"
    assert f"sessions can fill the disk of {tmp_path}/postgres/data" in found.detail
    assert f"the agent's state ({tmp_path}/agent-one), {bound}" in found.detail
    assert f"mount a separate disk at {tmp_path}/agent-one" in found.next_step
    assert "manager.dsn" in found.next_step


def test_two_disks_are_well(tmp_path: Path, other_disk: Path) -> None:
    (tmp_path / "agent-one").symlink_to(other_disk)
    [found] = check_shared_disk(settings(), tmp_path)
    assert found.status == "ok"


def test_a_cache_of_models_counts(tmp_path: Path, other_disk: Path) -> None:
    (tmp_path / "agent-one").symlink_to(other_disk)
    [found] = check_shared_disk(settings(model_cache=f"{tmp_path}/models"), tmp_path)
    assert (found.status, "agent's state" in found.detail) == ("warn", False)
    assert f"agent.model_cache ({tmp_path}/models)" in found.detail


@pytest.mark.parametrize("given", [settings("postgresql://a@b/c"), settings(runtimes=("slurm",))])
def test_nothing_is_said_where_nothing_is_shared(tmp_path: Path, given: Settings) -> None:
    assert check_shared_disk(given, tmp_path) == []


def test_the_database_may_be_elsewhere(tmp_path: Path, other_disk: Path) -> None:
    """If its user cannot reach the state directory, a file states where it is."""
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "place").write_text(f"{other_disk}\n")
    assert database_directory(tmp_path) == other_disk / "data"
    [found] = check_shared_disk(settings(), tmp_path)
    assert found.status == "ok"
