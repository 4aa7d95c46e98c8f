"""Free space on the disk with an agent's state: when it stops accepting new kernels, and when it
resumes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage.agent.state.free_space import FreeSpace

MIB = 1 << 20


class Disk:
    """Stands in for the disk that ``statvfs`` checks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free_mib = 1000
        self.files = 10_000
        self.free_files = 5_000
        monkeypatch.setattr(os, "statvfs", self._look)

    def _look(self, path: Path) -> os.statvfs_result:
        blocks = self.free_mib * MIB // 4096
        free = (
            4096,
            4096,
            1 << 20,
            blocks,
            blocks,
            self.files,
            self.free_files,
            self.free_files,
            0,
            255,
        )
        return os.statvfs_result(free)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def test_it_is_full_below_a_limit_and_not_before_there_is_more_again(disk: Disk) -> None:
    changes: list[str] = []
    space = FreeSpace(Path("/state"), lambda: changes.append(space.problem))
    for free_mib, is_full in (
        (16, False),
        (15, True),
        (31, True),
        (15, True),
        (32, False),
        (16, False),
    ):
        disk.free_mib = free_mib
        await space.check()
        assert bool(space.problem) is is_full, free_mib

    assert changes == ["the disk of its state (/state) is full: 15 MiB left", ""]


async def test_a_disk_without_files_is_full_too(disk: Disk) -> None:
    space = FreeSpace(Path("/state"))
    for free_files, is_full in ((100, False), (99, True), (199, True), (200, False)):
        disk.free_files = free_files
        await space.check()
        assert bool(space.problem) is is_full, free_files

    # as btrfs reports
    disk.files = 0
    disk.free_files = 0
    await space.check()
    assert space.problem == ""


async def test_a_disk_that_cannot_be_looked_at_is_as_it_was(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.free_mib = 1
    space = FreeSpace(Path("/state"))
    await space.check()

    def fail(path: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "statvfs", fail)
    await space.check()
    assert space.problem.endswith("is full: 1 MiB left")
