"""Table of runtimes: what the manager and its clients know about each before an agent is asked.

Code that depends on a runtime's properties reads a trait here and never compares names. The
capabilities of an agent's runtimes are in ``Capabilities`` in ``moorage.agent.runtimes``.

A runtime from another package is named ``custom:NAME``; the manager learns about it when an agent
offers it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

RuntimeName = Literal["process", "docker", "slurm", "heappe", "celery", "fake"]


@dataclass(frozen=True, slots=True)
class RuntimeTraits:
    """``images``: kernels run in container images, which contain the engine. ``own_network``:
    kernels listen on their own addresses, so they choose their ports. ``isolated_as``: the name
    that an agent offers in addition to the runtime if it isolates kernels from its own user and
    from each other; "" where kernels do not run as processes of the agent's node. ``site_jobs``:
    kernels may be jobs of a site, with its queue. ``settings``: prefix of the settings of an agent
    that submits to such a site; "" for runtimes on a node. ``service_ports``: the proxy reaches
    more of a kernel's ports than the one that serves requests. ``job_fields``: fields of
    ``SiteJob`` that the runtime supports in addition to ``options``. ``simulated``: nothing runs;
    for tests and demonstrations. ``outputs``: agents find files that a kernel leaves in its working
    directory. ``signals``: the runtime can send a program a signal that does not end it.
    ``hostnames``: where clusters' names main1, sub1, … resolve; None if nowhere or unknown."""

    images: bool = False
    own_network: bool = False
    isolated_as: str = ""
    site_jobs: bool = False
    settings: str = ""
    service_ports: bool = True
    job_fields: tuple[str, ...] = ()
    simulated: bool = False
    outputs: bool = False
    signals: bool = False
    hostnames: Literal["everywhere", "sandbox"] | None = None


RUNTIMES: Mapping[RuntimeName, RuntimeTraits] = MappingProxyType(
    {
        "process": RuntimeTraits(
            isolated_as="isolated-process", outputs=True, signals=True, hostnames="sandbox"
        ),
        "docker": RuntimeTraits(
            images=True, own_network=True, outputs=True, signals=True, hostnames="everywhere"
        ),
        "slurm": RuntimeTraits(
            site_jobs=True, settings="slurm_", job_fields=("partition", "qos", "account")
        ),
        "heappe": RuntimeTraits(
            site_jobs=True,
            settings="heappe_",
            service_ports=False,
            job_fields=("cluster", "node_type", "project", "template"),
        ),
        "celery": RuntimeTraits(isolated_as="isolated-celery"),
        "fake": RuntimeTraits(site_jobs=True, simulated=True, signals=True),
    }
)
DEFAULT_RUNTIME: RuntimeName = "process"
# Used for a specification that names an image but no runtime.
IMAGE_RUNTIME: RuntimeName = next(name for name, traits in RUNTIMES.items() if traits.images)
# Traits by name, for placement. Agents may offer names that the table lacks.
WITH_IMAGES: frozenset[str] = frozenset(name for name, traits in RUNTIMES.items() if traits.images)

# Name prefix of a runtime from another package.
CUSTOM = "custom:"
_CUSTOM_NAME = re.compile(r"custom:[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_ISOLATED = "isolated-"


def is_runtime(name: str) -> bool:
    """Whether the name is in the table or is a plug-in's, installed anywhere or not."""
    return name in RUNTIMES or is_custom(name)


def is_custom(name: str) -> bool:
    return _CUSTOM_NAME.fullmatch(name) is not None


def traits_of(name: str) -> RuntimeTraits:
    """Traits of a runtime. Raises ``KeyError`` if no runtime can have this name.

    Nothing is known about a plug-in until an agent is asked. Until an agent reports that it
    isolates kernels, they are assumed to be processes of the agent's user."""
    if is_custom(name):
        return RuntimeTraits(isolated_as=f"{_ISOLATED}{name}", site_jobs=True, signals=True)
    return _BY_NAME[name]


def offered_runtimes(offered: Iterable[str]) -> list[str]:
    """Runtimes among the names that agents offer, isolated or not: first those in the table, in its
    order, then plug-ins."""
    names = {unisolated(name) or name for name in offered}
    return [*(name for name in RUNTIMES if name in names), *sorted(filter(is_custom, names))]


def required_runtime(runtime: str, isolated: bool) -> str:
    """Name that an agent must offer for a kernel of this runtime. ``isolated``: see
    ``KernelSpec``."""
    return (isolated and isolated_name(runtime)) or runtime


def isolated_name(runtime: str) -> str:
    """Name that an agent offers in addition to the runtime if it isolates the runtime's kernels; ""
    if it need not report this."""
    return traits_of(runtime).isolated_as if is_runtime(runtime) else ""


def hostnames_resolve(runtime: str, isolated: bool) -> bool:
    """Whether a cluster's names main1, sub1, … resolve in its kernels, whichever agents run
    them."""
    hostnames = traits_of(runtime).hostnames
    return hostnames == "everywhere" or (hostnames == "sandbox" and isolated)


def unisolated(offered: str) -> str:
    """The runtime whose ``isolated_name`` this is; "" for any other name."""
    name = offered.removeprefix(_ISOLATED)
    return name if name != offered and isolated_name(name) == offered else ""


_BY_NAME: Mapping[str, RuntimeTraits] = {str(name): traits for name, traits in RUNTIMES.items()}
