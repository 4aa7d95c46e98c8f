"""Agent selectors of somebody else: entry points ``moorage.agent_selectors``, loaded when asked for.

What they promise is in ``scheduling.custom``.
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


class Selectors:
    """``load(name)`` gives what the planner needs. One that cannot be loaded refuses, and says why."""

    def __init__(self) -> None:
        self._known: dict[str, Selector] = {}

    def load(self, name: str | None) -> Mapping[str, Selector]:
        """The selector of this name, under its name; nothing for None, or where none is installed."""
        if name is None:
            return {}
        if name not in self._known:
            found = installed().get(name)
            if found is None:
                return {}
            try:
                self._known[name] = found.load()
            except Exception as error:
                log.exception("an agent selector cannot be loaded", name=name)
                self._known[name] = _broken(error)
        return {name: self._known[name]}


def installed() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def check(options: GroupOptions) -> None:
    """Raises ``InvalidInput`` for a custom selector that is not installed beside this manager."""
    given = options.agent_selection
    names = sorted(installed())
    if given.startswith(CUSTOM) and given.removeprefix(CUSTOM) not in names:
        allowed = ", ".join((*SELECTIONS, *(f"{CUSTOM}{name}" for name in names)))
        raise InvalidInput(
            f"agent_selection = {given!r} is not installed: allowed is {allowed}",
            next_step=f"install a package with an entry point {GROUP!r} of that name beside the manager",
        )


def _broken(error: Exception) -> Selector:
    def refuse(*_: object) -> NoReturn:
        raise error

    return refuse
