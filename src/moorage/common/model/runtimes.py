"""The table of runtimes: what the manager and its clients know of each, before an agent is asked.

Whoever needs to know something about a runtime reads a trait here, and never compares names. What the
runtimes of an agent can do is theirs to tell: ``Capabilities`` in ``moorage.agent.runtimes``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

RuntimeName = Literal["process", "docker", "slurm", "heappe", "fake"]
# Those with ``RuntimeTraits.site_jobs``.
SiteRuntimeName = Literal["slurm", "heappe", "fake"]


@dataclass(frozen=True, slots=True)
class RuntimeTraits:
    """``images``: kernels run in container images, which bring the engine along. ``own_network``: kernels
    listen on addresses of their own, so that they choose their ports. ``isolated_as``: what an agent offers
    beside the runtime if it isolates kernels from its own user and from each other; "" where kernels do not
    run as processes of the agent's node. ``site_jobs``: kernels may be jobs of a site, with its queue.
    ``settings``: how the settings of an agent that submits to such a site begin; "" for runtimes of a node.
    ``job_fields``: those of ``SiteJob`` that the runtime knows, beside ``options``. ``simulated``: nothing
    runs, for tests and demonstrations."""

    images: bool = False
    own_network: bool = False
    isolated_as: str = ""
    site_jobs: bool = False
    settings: str = ""
    job_fields: tuple[str, ...] = ()
    simulated: bool = False


RUNTIMES: Mapping[RuntimeName, RuntimeTraits] = MappingProxyType(
    {
        "process": RuntimeTraits(isolated_as="isolated-process"),
        "docker": RuntimeTraits(images=True, own_network=True),
        "slurm": RuntimeTraits(site_jobs=True, settings="slurm_", job_fields=("partition", "qos", "account")),
        "heappe": RuntimeTraits(
            site_jobs=True,
            settings="heappe_",
            job_fields=("cluster", "node_type", "project", "template"),
        ),
        "fake": RuntimeTraits(site_jobs=True, simulated=True),
    }
)
DEFAULT_RUNTIME: RuntimeName = "process"
# For a spec that names an image and no runtime.
IMAGE_RUNTIME: RuntimeName = next(name for name, traits in RUNTIMES.items() if traits.images)

# Traits by name, for placement. Agents may offer names that are not in the table.
WITH_IMAGES: frozenset[str] = frozenset(name for name, traits in RUNTIMES.items() if traits.images)
ISOLATED_AS: Mapping[str, str] = {
    name: traits.isolated_as for name, traits in RUNTIMES.items() if traits.isolated_as
}
ISOLATION_OF: Mapping[str, str] = {isolated: name for name, isolated in ISOLATED_AS.items()}


def offered_runtimes(offered: Iterable[str]) -> list[RuntimeName]:
    """Those of the table among what agents offer, isolated or not, in the table's order."""
    names = {ISOLATION_OF.get(name, name) for name in offered}
    return [name for name in RUNTIMES if name in names]


def required_runtime(runtime: str, isolated: bool) -> str:
    """What an agent must offer for a kernel of this runtime. ``isolated``: see ``KernelSpec``."""
    return ISOLATED_AS.get(runtime, runtime) if isolated else runtime
