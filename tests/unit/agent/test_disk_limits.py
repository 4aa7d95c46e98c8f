"""Disk limits of kernels: the setting, the quota passed to Linux, and whether the file system has
quotas."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from pydantic import ValidationError

from moorage.agent.runtimes.process import quotas
from moorage.agent.runtimes.process.disks import remove_disk
from moorage.agent.runtimes.process.isolation import rules_of
from moorage.common.config.settings import AgentSettings


@pytest.mark.parametrize(("size", "files"), [(64 << 20, 10_000), (50 << 30, 3_276_800)])
def test_a_quota_has_hard_limits_of_bytes_and_files(size: int, files: int) -> None:
    fields = struct.unpack("=8QI4x", quotas.quota(size))
    assert fields[0] * 1024 == size
    assert fields[3] == files
    assert fields[1:3] == (0, 0)
    assert fields[4:8] == (0, 0, 0, 0)
    assert fields[8] == 0b101, "limits of blocks and of files are valid, and nothing else"


def test_memory_has_no_quotas(tmp_path: Path) -> None:
    assert not quotas.is_enforced(Path("/dev/shm"))


@pytest.mark.parametrize("value", ["63MiB", "1", "-1", "much"])
def test_a_disk_that_is_too_small_is_refused(value: str) -> None:
    with pytest.raises(ValidationError):
        AgentSettings(process_disk=value)


@pytest.mark.parametrize(("value", "size"), [(None, 50 << 30), ("64MiB", 64 << 20), ("0", 0)])
def test_processes_have_a_limit_unless_it_is_given_up(
    tmp_path: Path, value: str | None, size: int
) -> None:
    settings = AgentSettings() if value is None else AgentSettings(process_disk=value)
    assert rules_of(settings, tmp_path).disk == size


def test_removal_leaves_what_is_no_disk(tmp_path: Path) -> None:
    """A directory with nothing mounted on it belongs to someone else."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "file").touch()
    remove_disk(tmp_path / "work", tmp_path / "disks" / "kernel-k.img")
    assert (tmp_path / "work" / "file").exists()
