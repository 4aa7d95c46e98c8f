"""Senders of secrets over loopback without TLS, which cannot verify this manager.

A process that took over the port while the manager was down would receive the same secrets.
`moorage doctor --cluster` names them.
"""

from __future__ import annotations

from typing import Literal

from moorage.manager.rpc.peer_addresses import source_of

_MOST_NAMES = 100
PlainKind = Literal["agents", "proxies", "keys"]


class PlainSenders:
    """``agents`` and ``proxies`` whose newest connection is of this kind, and names of the API
    ``keys`` that have arrived this way since the manager started."""

    def __init__(self) -> None:
        self._names: dict[PlainKind, dict[str, None]] = {"agents": {}, "proxies": {}, "keys": {}}

    def note(self, kind: PlainKind, name: str) -> None:
        names = self._names[kind]
        names[name] = None
        if len(names) > _MOST_NAMES:
            del names[next(iter(names))]

    def note_peer(self, kind: PlainKind, name: str, connection: str, *, has_tls: bool) -> None:
        """``connection``: the peer, as gRPC names it."""
        source = source_of(connection)
        if has_tls or connection.startswith("unix:") or source is None or not source.is_loopback:
            self._names[kind].pop(name, None)
        else:
            self.note(kind, name)

    def all(self) -> dict[str, list[str]]:
        return {kind: sorted(names) for kind, names in self._names.items() if names}
