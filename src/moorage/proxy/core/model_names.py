"""Model names that administrators add to those of the routes: aliases and a default. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from moorage.common.link.messages import ModelRoute
from moorage.proxy.core.routes import IndexedTable


@dataclass(frozen=True, slots=True)
class ModelNames:
    """``default``: the model or alias of requests that name no model, or empty. ``aliases``: the
    models by their other names. A model of the routes takes precedence over an alias."""

    default: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict)

    def route(self, name: str, table: IndexedTable) -> ModelRoute | None:
        """The model with this name or alias."""
        route = table.model(name)
        if route is None and (model := self.aliases.get(name)) is not None:
            return table.model(model)
        return route

    def all(self, table: IndexedTable) -> list[str]:
        """The names of all models, then the aliases."""
        return [*table.names(), *(name for name in self.aliases if table.model(name) is None)]


NO_NAMES = ModelNames()
"""Names of models are the only ones."""
