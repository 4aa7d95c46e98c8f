"""Bootstrap of a component: logging, state directory, link token, and registered settings."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import structlog

from moorage.common.aio.clock import Clock, SystemClock
from moorage.common.aio.sockets import source_address
from moorage.common.config import logging
from moorage.common.config.loader import LoadedSettings, link_token, resolve_home
from moorage.common.config.settings import AgentSettings, ProxySettings, Settings
from moorage.common.config.sites import given_keys
from moorage.common.link.identity import identity_file
from moorage.common.model.addresses import split_address, split_addresses
from moorage.common.views.peers import PeerKind

log = structlog.get_logger("moorage.settings")

S = TypeVar("S", AgentSettings, ProxySettings)


@dataclass(frozen=True)
class Bootstrap:
    """Everything a component needs to start. ``home``: the state directory. ``token``: the link
    token."""

    loaded: LoadedSettings
    clock: Clock
    home: Path
    token: str


def bootstrap(loaded: LoadedSettings, component: logging.Component = "cli") -> Bootstrap:
    """Set up logging, create the state directory if needed, and read or create the link token."""
    settings = loaded.settings
    logging.setup(settings.common.log_format, settings.common.log_level, component)
    for why in loaded.ignored:
        log.warning("shared setting ignored", why=why)
    clock = SystemClock()
    home = resolve_home(settings)
    return Bootstrap(loaded, clock, home, link_token(settings, home, clock))


def apply_registration(loaded: LoadedSettings, home: Path, kind: PeerKind) -> Settings:
    """The settings, with defaults replaced by values from the stored identity.

    The identity supplies the name, the manager's address and the resource group. An agent's own
    address is derived from the route to the manager. Values set by the user always take precedence.

    Raises ``ConfigError`` if several peers of this kind are registered below ``home`` and the
    settings name none of them.
    """
    settings = loaded.settings
    given = _given(loaded, kind)
    return settings.model_copy(
        update={
            kind: _registered(settings, getattr(settings, kind), kind=kind, home=home, given=given)
        }
    )


@dataclass(frozen=True)
class LocalAgents:
    """Settings of the agents in one process. ``of_sites``: they come from ``agent.sites``."""

    settings: tuple[AgentSettings, ...]
    of_sites: bool = False

    @property
    def names(self) -> str:
        return ",".join(setting.id or "" for setting in self.settings)


def agents_of(loaded: LoadedSettings, home: Path) -> LocalAgents:
    """The agents in this process, with defaults replaced by values from their stored identities.
    Raises ``ConfigError`` as ``apply_registration`` does."""
    settings = loaded.settings
    if not loaded.sites:
        return LocalAgents((apply_registration(loaded, home, "agent").agent,))

    shared = _given(loaded, "agent")
    return LocalAgents(
        tuple(
            _registered(
                settings,
                agent,
                kind="agent",
                home=home,
                given=shared | given_keys(settings.agent, name),
            )
            for name, agent in loaded.sites.items()
        ),
        of_sites=True,
    )


def _given(loaded: LoadedSettings, kind: PeerKind) -> frozenset[str]:
    """The settings in this section that the user has set."""
    return frozenset(
        name.partition(".")[2]
        for name, origin in loaded.origins.items()
        if name.startswith(f"{kind}.") and origin != "default"
    )


def _registered(
    settings: Settings, section: S, kind: PeerKind, home: Path, *, given: Set[str]
) -> S:
    """The section with values from the stored identity. ``given``: the names of the settings that
    the user has set."""
    if settings.common.link_tls == "off":
        return section

    identity = identity_file(home, kind, section.id).load()
    if identity is None:
        return section

    registered = {
        "id": identity.name,
        "manager": identity.link,
        "resource_group": identity.resource_group,
        "address": source_address(*split_address(split_addresses(identity.link)[0]))
        if kind == "agent"
        else None,
    }
    overrides = {
        key: value for key, value in registered.items() if value is not None and key not in given
    }
    return section.model_copy(update=overrides)
