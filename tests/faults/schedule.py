"""The fault schedule for a seed: which faults happen, when and for how long. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from .cluster import AGENTS, MANAGERS, PROXIES, SITE_AGENT
from .site import SITE, SWITCHED

# One fault from each group at a time: two components may be down together, but never all of them.
_CONTROL_PLANE = [
    (kind, component) for component in (*MANAGERS, "postgres") for kind in ("kill", "pause")
]
_NODES = [
    *((kind, component) for component in (*AGENTS, *PROXIES) for kind in ("kill", "pause")),
    ("unplug", "network"),
    ("throttle", "network"),
]
_SITE = [
    *((kind, SITE_AGENT) for kind in ("kill", "pause")),
    *((kind, SITE) for kind in SWITCHED),
]
# A login node restarts slowly. The other faults last until some request is likely to have hit them.
_SITE_LASTS_S = {
    "login-node-away": (10.0, 30.0),
    "scheduler-away": (5.0, 20.0),
    "submit-lost": (20.0, 40.0),
}
_AT_ONCE = frozenset({"tunnels-die", "job-cancelled"})


@dataclass(frozen=True)
class Fault:
    """``kill``: SIGKILL, and a restart after ``duration_s``. ``pause``: SIGSTOP. ``unplug``,
    ``throttle``: faults of the network link. Others: faults of the site. ``delay_s``: the delay
    after the end of the previous fault."""

    kind: str
    component: str
    delay_s: float
    duration_s: float

    def __str__(self) -> str:
        return f"{self.kind} {self.component} for {self.duration_s:.1f} s"


def fault_sequences(seed: int, network_faults: frozenset[str], site: bool) -> list[Iterator[Fault]]:
    """Endless sequences: faults of the control plane, of nodes, proxy and network, and of the site.
    ``network_faults``: the kinds that this machine supports. ``site``: whether the run includes a
    site."""
    nodes = [(kind, name) for kind, name in _NODES if name != "network" or kind in network_faults]

    # A manager declares an agent LOST only after it has itself run for that long, so faults of
    # managers are further apart.
    control_plane = _sequence(random.Random(f"{seed}-upper"), _CONTROL_PLANE, (3, 16))
    sequences = [control_plane, _sequence(random.Random(f"{seed}-lower"), nodes, (1, 4))]
    if site:
        sequences.append(_sequence(random.Random(f"{seed}-site"), _SITE, (3, 10)))

    return sequences


def _sequence(
    rng: random.Random, faults: list[tuple[str, str]], delay_s: tuple[float, float]
) -> Iterator[Fault]:
    while True:
        for kind, component in rng.sample(faults, len(faults)):
            # Connections time out after about nine seconds of silence, and agents after fifteen.
            duration_s = rng.uniform(0, 3) if kind == "kill" else rng.uniform(3, 16)
            if kind == "kill" and component in (*AGENTS, SITE_AGENT) and rng.random() < 0.3:
                duration_s = rng.uniform(15, 21)
            if kind in _SITE_LASTS_S:
                duration_s = rng.uniform(*_SITE_LASTS_S[kind])
            if kind in _AT_ONCE:
                duration_s = 0.0

            yield Fault(kind, component, rng.uniform(*delay_s), duration_s)
