"""Route table, indexed for lookups. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, fields, replace

from moorage.common.link.messages import (
    AccessTokenGrant,
    AppRoute,
    KeyGrant,
    ModelRoute,
    ProjectGrant,
    RequestLimits,
    RouteTable,
    Target,
)
from moorage.common.model.ids import KernelId


@dataclass(frozen=True, slots=True)
class StaleTable:
    """A table that was rejected because a newer one is in use. Both fields are generations."""

    held: int
    offered: int


@dataclass(frozen=True, slots=True)
class AdapterRoute(ModelRoute):
    """A model that is an endpoint's adapter, with its own name and the replicas that have it."""

    parent: str = ""

    @property
    def endpoint(self) -> str:
        return self.parent


class IndexedTable:
    """One generation of the route table, indexed by model name, key digest, kernel, session and
    app, and project. ``kernels``: each kernel's model. ``adapters``: models derived from those in
    the table. ``apis``: the paths that endpoints list themselves, with the number of these
    endpoints. ``limited_models``: models whose endpoints limit the size of bodies. ``version``: a
    new object after each change, even within a generation.

    ``revoked_agents``: peer ids. Replicas on these agents are left out even if routes contain them,
    because routes and credentials arrive separately.
    """

    __slots__ = (
        "_keys",
        "_projects",
        "access_tokens",
        "adapters",
        "apis",
        "apps",
        "draining",
        "generation",
        "kernels",
        "limited_models",
        "models",
        "revoked_agents",
        "version",
    )

    def __init__(self, source: RouteTable) -> None:
        self.models: dict[str, ModelRoute] = {}
        self.adapters: dict[str, AdapterRoute] = {}
        self.apis: Counter[str] = Counter()
        self.limited_models: set[str] = set()
        self.kernels: dict[KernelId, str] = {}
        self.draining: set[KernelId] = set()
        self._keys: dict[str, KeyGrant] = {}
        self.apps: dict[tuple[str, str], AppRoute] = {}
        self.access_tokens: dict[str, AccessTokenGrant] = {}
        self._projects: dict[str, ProjectGrant] = {}
        self.revoked_agents: set[str] = set()
        self.change(source)

    def change(self, changes: RouteTable) -> None:
        """Apply ``changes`` and become their generation, at a cost proportional to the changes."""
        self.version = object()
        self.generation = changes.generation
        self.revoked_agents.difference_update(changes.removed_revoked_agents)
        self.revoked_agents.update(changes.revoked_agents)

        if changes.revoked_agents:
            self._change_models(
                (), [r for r in self.models.values() if any(map(self._is_revoked, r.targets))]
            )
            self.apps = {name: app for name, app in self.apps.items() if not self._is_revoked(app)}

        self._change_models(changes.removed_models, changes.models)
        for sha256 in changes.removed_keys:
            self._keys.pop(sha256, None)

        self._keys |= {grant.sha256: grant for grant in changes.keys}
        for named in changes.removed_apps:
            session_id, _, app = named.partition("/")
            self.apps.pop((session_id, app), None)

        self.apps |= {
            (app.session_id, app.app): app for app in changes.apps if not self._is_revoked(app)
        }
        for sha256 in changes.removed_access_tokens:
            self.access_tokens.pop(sha256, None)

        self.access_tokens |= {grant.sha256: grant for grant in changes.access_tokens}
        for name in changes.removed_projects:
            self._projects.pop(name, None)

        self._projects |= {grant.name: grant for grant in changes.projects}

    def _change_models(self, removed: Sequence[str], changed: Sequence[ModelRoute]) -> None:
        for name in (*removed, *(route.name for route in changed)):
            if (before := self.models.get(name)) is not None:
                for target in before.targets:
                    self.kernels.pop(target.kernel_id, None)

                self.draining.difference_update(target.kernel_id for target in before.targets)
                for adapter in before.adapters:
                    self.adapters.pop(adapter, None)

                self.limited_models.discard(name)
                for path in before.apis:
                    self.apis[path] -= 1
                    if not self.apis[path]:
                        del self.apis[path]

        for name in removed:
            self.models.pop(name, None)

        for route in changed:
            if self.revoked_agents and any(map(self._is_revoked, route.targets)):
                route = replace(
                    route, targets=tuple(t for t in route.targets if not self._is_revoked(t))
                )

            self.models[route.name] = route
            self.apis.update(route.apis)
            if route.max_body_bytes:
                self.limited_models.add(route.name)
            for name in route.adapters:
                self.adapters[name] = _adapter(route, name)

            self.kernels |= {target.kernel_id: route.name for target in route.targets}
            self.draining.update(target.kernel_id for target in route.targets if target.draining)

    def _is_revoked(self, there: Target | AppRoute) -> bool:
        return there.peer_id in self.revoked_agents

    def whole(self) -> RouteTable:
        """The current complete table."""
        return RouteTable(
            self.generation,
            tuple(self.models.values()),
            keys=tuple(self._keys.values()),
            apps=tuple(self.apps.values()),
            access_tokens=tuple(self.access_tokens.values()),
            projects=tuple(self._projects.values()),
            revoked_agents=tuple(self.revoked_agents),
        )

    def model(self, name: str) -> ModelRoute | None:
        """The model with this name; an endpoint or a session takes precedence over an adapter."""
        route = self.models.get(name)
        return self.adapters.get(name) if route is None else route

    def names(self) -> list[str]:
        """The names of all models."""
        return [*self.models, *(name for name in self.adapters if name not in self.models)]

    def limits_of_project(self, name: str) -> RequestLimits | None:
        """The limits of a project, or None."""
        grant = self._projects.get(name)
        return grant.limits if grant is not None else None

    def find_key(self, sha256: str, unix_now: float) -> KeyGrant | None:
        """The key with this lower-case hex digest, unless it is unknown or has expired by
        ``unix_now``."""
        grant = self._keys.get(sha256)
        return (
            grant
            if grant is not None and (not grant.expires_at or unix_now < grant.expires_at)
            else None
        )


def _adapter(route: ModelRoute, name: str) -> AdapterRoute:
    of_parent = {field.name: getattr(route, field.name) for field in fields(route)}
    targets = tuple(target for target in route.targets if name in target.adapters)
    return AdapterRoute(
        **of_parent | {"name": name, "targets": targets, "adapters": (), "parent": route.name}
    )


def newest_table(held: IndexedTable | None, new: RouteTable) -> IndexedTable | StaleTable:
    """The table to use from now on, or ``StaleTable`` if ``new`` is older than ``held`` or contains
    changes to another table. Changes are applied to ``held`` itself.

    The same generation is accepted, because the manager sends the current table again after a
    reconnect.
    """
    generation = held.generation if held is not None else 0
    if new.generation < generation or (new.base and new.base != generation):
        return StaleTable(generation, new.generation)
    if held is None or not new.base:
        return IndexedTable(new)

    held.change(new)
    return held


def with_credentials(routes: RouteTable, credentials: RouteTable) -> RouteTable:
    """The complete table of ``routes``, with the credentials of another one."""
    return replace(
        routes,
        keys=credentials.keys,
        access_tokens=credentials.access_tokens,
        projects=credentials.projects,
        revoked_agents=credentials.revoked_agents,
    )


def credentials_change(held: IndexedTable, credentials: RouteTable) -> RouteTable:
    """The change that gives ``held`` these credentials: all of them, or only the changes if there
    is a ``base``."""
    if credentials.base:
        return replace(credentials, generation=held.generation, base=held.generation)

    before = held.whole()
    return replace(
        credentials,
        generation=held.generation,
        base=held.generation,
        removed_keys=_gone((k.sha256 for k in before.keys), {k.sha256 for k in credentials.keys}),
        removed_access_tokens=_gone(
            (t.sha256 for t in before.access_tokens), {t.sha256 for t in credentials.access_tokens}
        ),
        removed_projects=_gone(
            (p.name for p in before.projects), {p.name for p in credentials.projects}
        ),
        removed_revoked_agents=_gone(before.revoked_agents, set(credentials.revoked_agents)),
    )


def _gone(before: Iterable[str], now: Container[str]) -> tuple[str, ...]:
    return tuple(name for name in before if name not in now)
