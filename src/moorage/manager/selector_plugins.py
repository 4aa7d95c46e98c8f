"""Agent selector plug-ins: entry points of the group ``moorage.agent_selectors``, loaded on first
use.

``scheduling.placement.selector_plugin`` defines what a selector receives and returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import NoReturn

import structlog

from moorage.common.model.errors import InvalidInput
from moorage.common.model.group_options import CUSTOM, SELECTIONS, GroupOptions
from moorage.manager.scheduling.placement.selector_plugin import Selector

log = structlog.get_logger("moorage.selectors")

GROUP = "moorage.agent_selectors"


class SelectorPlugins:
    """Loaded selectors. A selector that cannot be loaded refuses every session, with the reason."""

    def __init__(self) -> None:
        self._loaded: dict[str, Selector] = {}

    def load(self, name: str | None) -> Mapping[str, Selector]:
        """Load the selector, and return it under its name for the planner. The result is empty for
        None, or if the selector is not installed."""
        if name is None:
            return {}

        if name not in self._loaded:
            found = installed().get(name)
            if found is None:
                return {}

            try:
                self._loaded[name] = found.load()
            except Exception as error:
                log.exception("an agent selector cannot be loaded", name=name)
                self._loaded[name] = _failing_selector(error)

        return {name: self._loaded[name]}


def installed() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def check(options: GroupOptions) -> None:
    """Raise ``InvalidInput`` for a custom selector that is not installed with this manager."""
    given = options.agent_selection
    names = sorted(installed())
    if given.startswith(CUSTOM) and given.removeprefix(CUSTOM) not in names:
        allowed = ", ".join((*SELECTIONS, *(f"{CUSTOM}{name}" for name in names)))
        raise InvalidInput(
            f"agent_selection = {given!r} is not installed; allowed: {allowed}",
            field="agent_selection",
            next_step=(
                f"install a package with such an entry point ({GROUP}) where the manager runs"
            ),
        )


def _failing_selector(error: Exception) -> Selector:
    def refuse(*_: object) -> NoReturn:
        raise error

    return refuse
