"""The conformance suite from ``moorage.testing`` on every runtime that we ship. A new runtime adds
its harness."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_asyncio
from tests.conformance.harnesses import (
    DockerHarness,
    FakeHarness,
    FakeSiteHarness,
    HeappeHarness,
    NewerHeappeHarness,
    ProcessHarness,
    SlurmHarness,
)

from moorage.testing import RuntimeConformance
from moorage.testing import RuntimeHarness as Harness


@pytest_asyncio.fixture(
    params=[
        FakeHarness,
        FakeSiteHarness,
        ProcessHarness,
        pytest.param(DockerHarness, marks=pytest.mark.docker),
        pytest.param(SlurmHarness, marks=pytest.mark.hpc),
        HeappeHarness,
        NewerHeappeHarness,
    ]
)
async def new_harness(request: pytest.FixtureRequest, tmp_path: Path) -> Harness:
    arguments: list[object] = []
    if request.param is DockerHarness:
        arguments = [request.getfixturevalue("docker_engine").socket]
    elif request.param is SlurmHarness:
        arguments = [request.getfixturevalue("slurm_cluster")]
    harness: Harness = request.param(tmp_path, *arguments)
    if isinstance(harness, HeappeHarness):
        await harness.start()
    return harness


class TestRuntimes(RuntimeConformance):
    pass
