"""Ports that stay free until they are listened on."""

from __future__ import annotations

import itertools
import os
import random
import socket

# Below those that systems give to outgoing connections (32768 and up on Linux): one of these was taken by a
# connection of somebody else, between being found free and being listened on.
_LOW, _WORKERS, _WIDTH = 10_000, 8, 1_250
# Each worker of pytest-xdist has its own: two workers had found the same port free.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
_FIRST = _LOW + _WORKER * _WIDTH
# One is given a second time after all others: two components of a test had found the same port free.
_ports = itertools.cycle(random.SystemRandom().sample(range(_FIRST, _FIRST + _WIDTH), _WIDTH))


def free_port(host: str = "127.0.0.1") -> int:
    for port in _ports:
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable: the ports are a cycle")
