"""Bootstrap of a component: logging, state directory, link token, and registered settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moorage.common.aio.clock import Clock, SystemClock
from moorage.common.aio.sockets import source_address
from moorage.common.config import logging
from moorage.common.config.loader import LoadedSettings, link_token, resolve_home
from moorage.common.config.settings import Settings
from moorage.common.link.identity import identity_file
from moorage.common.model.addresses import split_address, split_addresses
from moorage.common.views.peers import PeerKind


@dataclass(frozen=True)
class Bootstrap:
    """Everything a component needs to start. ``home``: the state directory. ``token``: the link token."""

    loaded: LoadedSettings
    clock: Clock
    home: Path
    token: str


def bootstrap(loaded: LoadedSettings) -> Bootstrap:
    """Set up logging, create the state directory if needed, and read or create the link token."""
    settings = loaded.settings
    logging.setup(settings.common.log_format, settings.common.log_level)
    clock = SystemClock()
    home = resolve_home(settings)
    return Bootstrap(loaded, clock, home, link_token(settings, home, clock))


def apply_registration(loaded: LoadedSettings, home: Path, kind: PeerKind) -> Settings:
    """The settings, with values from the stored identity in place of defaults.

    The identity supplies the name, the manager's address and the resource group. An agent's own address is
    derived from the route to the manager. Values that the user set always win.

    Raises ``ConfigError`` if several peers of this kind have registered below ``home`` and the settings name
    none of them.
    """
    settings, origins = loaded.settings, loaded.origins
    if settings.common.link_tls == "off":
        return settings
    section = getattr(settings, kind)
    identity = identity_file(home, kind, section.id).load()
    if identity is None:
        return settings
    registered = {
        "id": identity.name,
        "manager": identity.link,
        "resource_group": identity.resource_group,
        "address": source_address(*split_address(split_addresses(identity.link)[0]))
        if kind == "agent"
        else None,
    }
    overrides = {
        key: value
        for key, value in registered.items()
        if value is not None and origins.get(f"{kind}.{key}") == "default"
    }
    return settings.model_copy(update={kind: section.model_copy(update=overrides)})
