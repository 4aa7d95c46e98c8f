"""Greeting of the probe port of an agent: what it says to a proxy. Pure."""

from __future__ import annotations

MAX_GREETING = 300


def greeting(agent_id: str) -> bytes:
    return f"moorage agent {agent_id}\n".encode()[:MAX_GREETING]
