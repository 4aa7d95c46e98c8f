"""Fixtures: real etcd servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.etcd.servers import EtcdServers, is_installed


@pytest.fixture
def one(home: Path) -> Iterator[EtcdServers]:
    """A server without TLS or users."""
    yield from running(EtcdServers(home / "etcd"))


@pytest.fixture
def three(home: Path) -> Iterator[EtcdServers]:
    """Three servers with TLS and a user."""
    yield from running(EtcdServers(home / "etcd", count=3, tls=True, users=True))


def running(servers: EtcdServers) -> Iterator[EtcdServers]:
    if not is_installed():
        pytest.skip("etcd is not installed: make test-etcd installs it")
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()
