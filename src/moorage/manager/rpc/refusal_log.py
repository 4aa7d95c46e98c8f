"""Log of refused agents and proxies. They retry every few seconds, so each cause is logged once per
host."""

from __future__ import annotations

import structlog

log = structlog.get_logger("moorage.link")
_HOSTS = 1000


class RefusalLog:
    """``event``: the text to log. ``peer``: a connection in gRPC's notation."""

    def __init__(self, event: str = "agent refused") -> None:
        self._event = event
        self._logged: dict[str, str] = {}  # by host

    def refused(self, peer: str, message: str) -> None:
        host = _host(peer)
        if self._logged.get(host) != message:
            log.warning(self._event, peer=peer, why=message)
            self._logged[host] = message
            while len(self._logged) > _HOSTS:
                del self._logged[next(iter(self._logged))]

    def accepted(self, peer: str) -> None:
        self._logged.pop(_host(peer), None)


def _host(peer: str) -> str:
    """``ipv4:127.0.0.1:40000`` without the port, which differs for every connection."""
    return peer.rpartition(":")[0]
