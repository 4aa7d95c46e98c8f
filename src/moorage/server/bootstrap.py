"""What a part of the platform needs to start, from its settings and from what joining left."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from moorage.common.aio.clock import Clock, SystemClock
from moorage.common.config import logging
from moorage.common.config.loader import Loaded, link_token, resolve_home
from moorage.common.config.settings import Settings
from moorage.common.link.identity import identity_file
from moorage.common.model.addresses import split_address
from moorage.common.views.peers import PeerKind


@dataclass(frozen=True)
class Start:
    """What every part needs to start."""

    loaded: Loaded
    clock: Clock
    home: Path
    token: str


def prepare(loaded: Loaded) -> Start:
    """Logging, state directory and link token."""
    settings = loaded.settings
    logging.setup(settings.common.log_format, settings.common.log_level)
    clock = SystemClock()
    home = resolve_home(settings)
    return Start(loaded, clock, home, link_token(settings, home, clock))


def as_joined(loaded: Loaded, home: Path, kind: PeerKind) -> Settings:
    """The settings, with what joining said in the place of defaults: name, manager, resource group.

    Raises ``ConfigError`` where several have joined from here and none is named.
    """
    settings, origins = loaded.settings, loaded.origins
    if settings.common.link_tls == "off":
        return settings
    section = getattr(settings, kind)
    identity = identity_file(home, kind, section.id).load()
    if identity is None:
        return settings
    said = {"id": identity.name, "manager": identity.link, "resource_group": identity.resource_group}
    said["address"] = _own_address(*split_address(identity.link)) if kind == "agent" else None
    taken = {
        key: value
        for key, value in said.items()
        if value is not None and origins.get(f"{kind}.{key}") == "default"
    }
    return settings.model_copy(update={kind: section.model_copy(update=taken)})


def _own_address(host: str, port: int) -> str | None:
    """The address by which this node reaches that one, and others most likely this node. None: not known."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, proto) as route:
            route.connect(address)  # of datagrams: nothing is sent
            return str(route.getsockname()[0])
    except OSError:
        return None
