"""Fixtures: a platform of real processes whose resource group is a site."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.harness import Platform
from tests.hpc.sites import DirectSite, HeappeSite
from tests.hpc.slurm import SlurmCluster


@pytest_asyncio.fixture(params=[DirectSite, HeappeSite], ids=lambda kind: kind.name)
async def site(
    request: pytest.FixtureRequest, slurm_cluster: SlurmCluster
) -> AsyncIterator[DirectSite]:
    made: DirectSite = request.param(slurm_cluster)
    await made.start()
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def platform(home: Path, site: DirectSite) -> AsyncIterator[Platform]:
    """The manager and proxy of a platform whose agents, once started, use the site."""
    running = Platform(home)
    running.env |= site.agent()
    running.env["MOORAGE_AGENT__RESOURCE_GROUP"] = "default"
    running.start("manager")
    running.start("proxy")
    yield running
    for name in ("manager", "agent"):
        if (home / f"{name}.out").exists():
            print(f"-- {name}", running.output(name)[-4000:], sep="\n")

    running.close()
    assert not site.cluster.jobs(), "no job is left in the queue"
