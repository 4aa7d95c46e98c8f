"""Required settings of runtimes that submit jobs to a site.

Agents import this module, so it does not use pydantic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moorage.common.config.settings import AgentSettings


def missing_for_heappe(settings: AgentSettings) -> list[str]:
    required = ("heappe_url", "heappe_secret", "heappe_project")
    names = required if settings.heappe_auth == "bearer" else ("heappe_user", *required)
    return [name for name in names if not getattr(settings, name)]


# The missing settings, according to ``RuntimeTraits.settings``.
MISSING: Mapping[str, Callable[[AgentSettings], list[str]]] = {"heappe_": missing_for_heappe}
