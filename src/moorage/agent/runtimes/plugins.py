"""Loader for runtimes: entry points in the group ``moorage.runtimes``.

This package's entry points are the shipped runtimes, each under its own name. The entry point NAME
of another package is the runtime ``custom:NAME``, so that no package can replace a shipped runtime.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moorage.agent.runtimes.base import Runtime
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import Clock
from moorage.common.model.errors import ConfigError
from moorage.common.model.runtimes import CUSTOM, is_custom

if TYPE_CHECKING:
    from pydantic import BaseModel

    from moorage.common.config.settings import AgentSettings

GROUP = "moorage.runtimes"
# Version of ``Runtime``, ``RuntimePlugin`` and their arguments. It increases with each change that
# breaks a plug-in.
INTERFACE = 1
_OWN = "moorage"


@dataclass(frozen=True, slots=True)
class AgentParts:
    """The agent's parts for building runtimes. ``state``: the agent's own directory within
    ``home``, the installation's directory. ``identity`` belongs to ``state`` and is unique to this
    agent."""

    settings: AgentSettings
    state: Path
    home: Path
    logs: LogStore
    clock: Clock
    identity: str


@dataclass(frozen=True, slots=True)
class RuntimePlugin:
    """A runtime's plug-in, named by its entry point.

    ``interface``: the version of the interface that it was written for. ``create`` builds the
    runtime from the agent's parts and the plug-in's own ``settings``, which are None if it has
    none. It returns None if the runtime is switched off. It may block, raises ``ConfigError``,
    ``StartupError`` and ``OSError``, and need not reach the runtime's backend, which
    ``Runtime.probe`` does. ``site``: the runtime submits jobs to a queue elsewhere, and its agent
    offers none of the node's resources; such runtimes have ``Capabilities.max_jobs``. ``upkeep``:
    the seconds between two calls, and the function that is called with the runtime. ``in_agent``:
    the runtime needs only the agent, which checks only when it starts whether the runtime can be
    used.
    """

    interface: int
    create: Callable[[AgentParts, Any], Runtime | None]
    settings: type[BaseModel] | None = None
    site: bool = False
    in_agent: bool = False
    upkeep: tuple[float, Callable[[Any], Awaitable[None]]] | None = None


def load(name: str, entries: Iterable[EntryPoint] | None = None) -> RuntimePlugin:
    """Load a runtime's plug-in. ``entries``: None means the installed ones. Raises ``ConfigError``
    if the plug-in is missing, ambiguous, broken or written for another interface."""
    found = [
        entry
        for entry in (entry_points(group=GROUP) if entries is None else entries)
        if name_of(entry) == name
    ]
    if not found:
        raise ConfigError(
            f"no installed package has the runtime {name!r}", next_step=_how_to_install(name)
        )

    if len(found) > 1:
        packages = " and ".join(sorted(_package(entry) for entry in found))
        raise ConfigError(
            f"the runtime {name!r} is in {packages}",
            next_step="uninstall all but one of these packages",
        )

    (entry,) = found
    try:
        plugin = entry.load()
    except Exception as error:
        raise ConfigError(
            f"the runtime {name!r} of {_package(entry)} cannot be loaded: {entry.value}: {error!r}",
            next_step=(
                f"repair or reinstall {_package(entry)}, or take {name} out of agent.runtimes"
            ),
        ) from error

    if not isinstance(plugin, RuntimePlugin):
        raise ConfigError(
            f"the runtime {name!r} of {_package(entry)} is a {type(plugin).__name__}: "
            f"{entry.value}",
            next_step="its entry point must name a RuntimePlugin: see docs/runtimes.md",
        )

    if plugin.interface != INTERFACE:
        raise ConfigError(
            f"the runtime {name!r} of {_package(entry)} is written for version {plugin.interface} "
            "of the "
            f"interface; this agent has version {INTERFACE}",
            next_step=f"install a version of {entry.dist.name if entry.dist else 'the package'} "
            "for "
            f"version {INTERFACE}, or another version of moorage",
        )

    return plugin


def settings_of(
    name: str, plugin: RuntimePlugin, given: dict[str, dict[str, Any]]
) -> BaseModel | None:
    """The plug-in's own settings from ``agent.plugins``. Raises ``ConfigError``."""
    section = name.removeprefix(CUSTOM)
    if plugin.settings is None:
        if given.get(section):
            raise ConfigError(
                f"agent.plugins.{section}: the runtime {name} has no settings",
                next_step="remove the section",
            )

        return None

    # Imported here so that agents without such a runtime do not load pydantic.
    from pydantic import ValidationError

    try:
        return plugin.settings.model_validate(given.get(section, {}))
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(['agent.plugins', section, *map(str, problem['loc'])])} = "
            f"{problem['input']!r}: "
            f"{problem['msg']}"
            for problem in error.errors()
        )
        known = ", ".join(plugin.settings.model_fields) or "none"
        raise ConfigError(wrong, next_step=f"settings of the runtime {name}: {known}") from None


def check_sections(sections: Iterable[str], runtimes: Iterable[str]) -> None:
    """Check the sections. Raises ``ConfigError`` for the settings of a plug-in that the agent does
    not offer."""
    offered = {name.removeprefix(CUSTOM) for name in runtimes if is_custom(name)}
    for section in sorted(set(sections) - offered):
        raise ConfigError(
            f"agent.plugins.{section}: agent.runtimes does not have {CUSTOM}{section}",
            next_step=f'add "{CUSTOM}{section}" to agent.runtimes, or remove the section',
        )


def check_built(name: str, plugin: RuntimePlugin, runtime: Runtime) -> None:
    """Check a runtime. Raises ``ConfigError`` if it contradicts its plug-in."""
    if runtime.name != name:
        raise ConfigError(
            f"the runtime {name!r} calls itself {runtime.name!r}",
            next_step=f"its package must set `name` of the runtime to {name!r}",
        )

    if runtime.capabilities.batch is not plugin.site:
        raise ConfigError(
            f"the runtime {name!r} has Capabilities.max_jobs = {runtime.capabilities.max_jobs}, "
            f"but its plug-in says site = {plugin.site}",
            next_step=(
                "its package must set both for jobs of a site, and neither for kernels of the node"
            ),
        )


def name_of(entry: EntryPoint) -> str:
    return entry.name if _is_ours(entry) else f"{CUSTOM}{entry.name}"


def _is_ours(entry: EntryPoint) -> bool:
    return entry.dist is not None and entry.dist.name == _OWN


def _package(entry: EntryPoint) -> str:
    return (
        f"{entry.dist.name} {entry.dist.version}"
        if entry.dist is not None
        else "an unnamed package"
    )


def _how_to_install(name: str) -> str:
    if is_custom(name):
        entry = name.removeprefix(CUSTOM)
        return (
            f"install a package with the entry point {entry!r} of the group {GROUP} where the "
            "agent runs, or "
            f"take {name} out of agent.runtimes"
        )
    return "install moorage again on this node: its entry points are missing"
