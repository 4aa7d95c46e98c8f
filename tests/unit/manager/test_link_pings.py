"""Pings on the links: a dead peer is noticed within the documented time, and only one end of a link
pings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from moorage.agent.link.connection import OPTIONS as AGENT
from moorage.manager.rpc.manager_link import OPTIONS as OTHER_MANAGER
from moorage.manager.rpc.server import OPTIONS as MANAGER
from moorage.proxy.control.feed import CHANNEL_OPTIONS as PROXY

NOTICED_MS = 10_000
"""``docs/configuration.md``: a dead connection is noticed after some ten seconds."""


def ping_ms(options: Iterable[tuple[str, Any]]) -> tuple[int, int]:
    """The silence after which a ping is sent, and how long the sender waits for the answer."""
    found = dict(options)
    return found["grpc.keepalive_time_ms"], found["grpc.keepalive_timeout_ms"]


@pytest.mark.parametrize("peer", [AGENT, PROXY, OTHER_MANAGER])
def test_only_the_peers_of_a_manager_ping(peer: Iterable[tuple[str, Any]]) -> None:
    """A received ping restarts its reader's timer, so the reader has no reason to ping."""
    assert ping_ms(MANAGER)[0] - ping_ms(peer)[0] >= 1000, "time for a ping to arrive"
    assert sum(ping_ms(MANAGER)) <= NOTICED_MS
    assert sum(ping_ms(peer)) < NOTICED_MS
    shortest = dict[str, Any](MANAGER)["grpc.http2.min_ping_interval_without_data_ms"]
    assert shortest < ping_ms(peer)[0], "more pings than allowed end the link"
