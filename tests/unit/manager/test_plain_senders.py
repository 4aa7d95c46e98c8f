"""The names of clients that send secrets over loopback without TLS."""

from __future__ import annotations

import pytest

from moorage.manager.plain_senders import PlainSenders
from moorage.manager.rpc.peer_addresses import source_of


@pytest.mark.parametrize(
    ("connection", "has_tls", "noted"),
    [
        ("ipv4:127.0.0.1:40000", False, True),
        ("ipv6:%5B::1%5D:40000", False, True),
        ("unix:", False, False),
        ("unix:127.0.0.1:1", False, False),
        ("ipv4:127.0.0.1:40000", True, False),
        ("ipv4:192.0.2.1:40000", False, False),
    ],
)
def test_peers_are_noted_by_their_newest_connection(
    connection: str, has_tls: bool, noted: bool
) -> None:
    senders = PlainSenders()
    senders.note_peer("agents", "one", connection, has_tls=has_tls)
    assert senders.all() == ({"agents": ["one"]} if noted else {})
    senders.note_peer("agents", "one", "unix:", has_tls=False)
    assert senders.all() == {}


@pytest.mark.parametrize("name", ["", "198.51.100.7:1", "/run/x", "/run/198.51.100.7:1"])
def test_a_peer_over_a_unix_socket_is_on_this_host(name: str) -> None:
    """This is independent of the name to which the client has bound its end."""
    assert str(source_of(f"unix:{name}")) == "127.0.0.1"


def test_names_are_bounded() -> None:
    senders = PlainSenders()
    for number in range(200):
        senders.note("keys", f"key-{number:03}")
    assert senders.all() == {"keys": [f"key-{number:03}" for number in range(100, 200)]}
