"""Addresses that no other test process on the machine uses: ports, networks, and numbers for names.

Concurrent test runs have different lanes, and the workers of a run have different numbers. Each
range of addresses is divided among the lanes, and a lane's part among its workers.
``MOORAGE_TEST_LANE`` sets the lane; without it, a run takes the first free one.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import random
import socket
import tempfile
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

LANE = "MOORAGE_TEST_LANE"
LANES = 8
# Below the range that systems use for outgoing connections (32768 and up on Linux): a foreign
# connection once took one of those ports between the moment it was found free and the moment it was
# listened on.
PORTS = range(10_000, 32_768)
# Numbers of private Docker Engines, and of networks between namespaces.
ENGINES = range(64)
NETWORKS = range(256)
AGENT_PORTS = 40


@dataclass(frozen=True)
class Place:
    """``worker``: this worker's number among the ``workers`` of this run. A worker that replaces a
    crashed one has a higher number, and the addresses of another worker."""

    lane: int
    worker: int
    workers: int

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Place:
        lane = int(environ.get(LANE, "0"))
        if lane not in range(LANES):
            raise ValueError(f"{LANE}={lane}: there are the lanes 0 to {LANES - 1}")
        worker = int(environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        workers = int(environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        return cls(lane, worker % workers, workers)

    def share(self, room: range) -> range:
        """The part of ``room`` that only this process uses."""
        of_lane = len(room) // LANES
        width = of_lane // self.workers
        if width == 0:
            raise ValueError(
                f"{of_lane} addresses for {self.workers} workers: use fewer (pytest -n)"
            )
        first = self.lane * of_lane + self.worker * width
        return room[first : first + width]

    def single_ports(self) -> range:
        """Ports for ``free_port``; all others are in the agents' ranges."""
        ports = self.share(PORTS)
        return ports[: len(ports) // 3]

    def agent_ranges(self, count: int) -> Iterator[range]:
        """Ranges of ``count`` ports, which start over after the last one."""
        ports = self.share(PORTS)
        ports = ports[len(ports) // 3 :]
        starts = range(0, len(ports) - count + 1, count)
        return itertools.cycle([ports[start : start + count] for start in starts])


def claim_lane(environ: MutableMapping[str, str], folder: str = tempfile.gettempdir()) -> None:
    """Hold the given lane, or otherwise the first free one, until this process ends. Its child
    processes also hold it."""
    given = environ.get(LANE)
    for lane in [given] if given else map(str, range(LANES)):
        file = Path(folder, f"moorage-test-lane-{lane}")
        with contextlib.suppress(FileExistsError):
            file.touch(exist_ok=False)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(os.open(file, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
            break

    environ.setdefault(LANE, lane)


claim_lane(os.environ)
OWN = Place.of(os.environ)
# A port is returned a second time only after all others: two components of a test had once found
# the same port free.
_ports = itertools.cycle(random.SystemRandom().sample(OWN.single_ports(), len(OWN.single_ports())))
_agent_ranges = OWN.agent_ranges(AGENT_PORTS)
_numbers: dict[range, Iterator[int]] = {}


def free_port(host: str = "127.0.0.1") -> int:
    """A port on which nothing listens, reserved until the caller listens on it."""
    for port in _ports:
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable: the ports are a cycle")


def agent_ports() -> range:
    """Ports for the kernels of one agent. Agents with the same name try the ports of a range in the
    same order, so two that run at the same time need two ranges."""
    return next(_agent_ranges)


def port_range(ports: range) -> str:
    """The setting ``agent.port_range``."""
    return f"{ports[0]}-{ports[-1]}"


def number(room: range, used: Collection[int] = ()) -> int:
    """One of this process's numbers in ``ENGINES`` or ``NETWORKS`` that is not in ``used``,
    starting over after the last one."""
    share = OWN.share(room)
    if set(share) <= set(used):
        raise ValueError(f"all {len(share)} numbers of this process are in use")
    if room not in _numbers:
        _numbers[room] = itertools.cycle(share)
    return next(one for one in _numbers[room] if one not in used)
