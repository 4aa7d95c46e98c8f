"""Checks of ``moorage agent doctor`` against a real Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moorage.common.config.settings import AgentSettings
from moorage.server.doctor.slurm import check_slurm
from tests.hpc.slurm import SlurmCluster

pytestmark = pytest.mark.hpc


@pytest.mark.parametrize(
    ("change", "failed", "text"),
    [
        ({}, [], ""),
        ({"slurm_partition": "nope"}, ["slurm partition", "slurm job"], "one of main, short"),
        ({"slurm_options": ("--gres=gpu:8",)}, ["slurm job"], "Invalid generic resource"),
        ({"slurm_work_dir": "/proc/nope"}, ["slurm work_dir"], "share"),
        ({"slurm_commands": "/nowhere"}, ["slurm"], "login node"),
    ],
)
async def test_site_is_checked(
    slurm_cluster: SlurmCluster,
    tmp_path: Path,
    change: dict[str, Any],
    failed: list[str],
    text: str,
) -> None:
    settings = AgentSettings(
        **{"slurm_commands": str(slurm_cluster.commands), "runtimes": ("slurm",)} | change
    )
    results = await check_slurm(settings, tmp_path)
    assert [result.name for result in results if result.status == "fail"] == failed
    assert text in " ".join(f"{result.detail} {result.next_step}" for result in results)
    assert slurm_cluster.jobs() == []
