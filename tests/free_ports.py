"""Ports that stay free until they are listened on."""

from __future__ import annotations

import random
import socket

# Below those that systems give to outgoing connections (32768 and up on Linux): one of these was taken by a
# connection of somebody else, between being found free and being listened on.
_LOW, _HIGH = 10_000, 19_999
_chance = random.SystemRandom()


def free_port(host: str = "127.0.0.1") -> int:
    while True:
        port = _chance.randint(_LOW, _HIGH)
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
