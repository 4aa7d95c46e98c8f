"""Two ways to reach one private Slurm in the same tests: directly, and through a server that speaks
HEAppE's protocol."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.heappe import HeappeServer, Site, Template, Timing
from tests.heappe.slurm_site import SlurmSite
from tests.hpc.slurm import SlurmCluster

# The executable of the command template.
PROGRAM = f"MOORAGE_PYTHON={sys.executable} {Path(__file__).parents[2]}/deploy/heappe/run.sh"


def heappe_agent(url: str) -> dict[str, str]:
    """The environment of an agent that uses the server at ``url``."""
    return {
        "MOORAGE_AGENT__RUNTIMES": '["heappe"]',
        "MOORAGE_AGENT__HEAPPE_URL": url,
        "MOORAGE_AGENT__HEAPPE_USER": "agent",
        "MOORAGE_AGENT__HEAPPE_SECRET": "secret-agent",
        "MOORAGE_AGENT__HEAPPE_PROJECT": "EXA-00-1",
        "MOORAGE_AGENT__HEAPPE_NODE_TYPE": "gpu",
        "MOORAGE_AGENT__HEAPPE_TEMPLATE": "moorage",
        "MOORAGE_AGENT__HEAPPE_POLL_S": "1",
        "MOORAGE_AGENT__HEAPPE_MAX_JOBS": "6",
    }


class DirectSite:
    """``name``: the runtime's name. ``relays``: whether answers pass through the agent."""

    name = "slurm"
    relays = False

    def __init__(self, cluster: SlurmCluster) -> None:
        self.cluster = cluster

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def agent(self) -> dict[str, str]:
        """The environment of its agent."""
        return {
            "MOORAGE_AGENT__RUNTIMES": '["slurm"]',
            "MOORAGE_AGENT__SLURM_COMMANDS": str(self.cluster.commands),
            "MOORAGE_AGENT__SLURM_POLL_S": "1",
            "MOORAGE_AGENT__SLURM_MAX_JOBS": "6",
        }

    def group(self, partition: str = "main") -> dict[str, str]:
        """The options of its resource group, which has the kind hpc."""
        return {"runtime": "slurm", "partition": partition}


class HeappeSite(DirectSite):
    """``server`` runs in the test process, and its node types are partitions."""

    name = "heappe"
    relays = True

    def __init__(self, cluster: SlurmCluster, profile: str = "6.5") -> None:
        super().__init__(cluster)
        self.server = HeappeServer(
            profile,
            site=Site(templates=(Template(11, "moorage", 7, command=PROGRAM),)),
            timing=Timing(poll_s=0.5, cache_s=0.2),
            cluster=SlurmSite(cluster.env, partition="main"),
        )

    async def start(self) -> None:
        await self.server.start()

    async def stop(self) -> None:
        await self.server.stop()

    def agent(self) -> dict[str, str]:
        return heappe_agent(self.server.url)

    def group(self, partition: str = "main") -> dict[str, str]:
        self.server.cluster.partition = partition
        return {"runtime": "heappe", "node_type": "gpu", "template": "moorage"}
