"""Route table, indexed for lookups. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.link.messages import AccessTokenGrant, AppRoute, KeyGrant, ModelRoute, RouteTable
from moorage.common.model.ids import KernelId


@dataclass(frozen=True, slots=True)
class StaleTable:
    """A table that was rejected because a newer one is in use. Both fields are generations."""

    held: int
    offered: int


class IndexedTable:
    """One generation of the route table, indexed by model name, key digest, kernel, and session and app."""

    __slots__ = ("_keys", "access_tokens", "apps", "kernels", "models", "source")

    def __init__(self, source: RouteTable) -> None:
        self.source = source
        self.models: dict[str, ModelRoute] = {route.name: route for route in source.models}
        self.kernels: frozenset[KernelId] = frozenset(
            target.kernel_id for route in source.models for target in route.targets
        )
        self._keys = {grant.sha256: grant for grant in source.keys}
        self.apps: dict[tuple[str, str], AppRoute] = {(app.session_id, app.app): app for app in source.apps}
        self.access_tokens: dict[str, AccessTokenGrant] = {
            grant.sha256: grant for grant in source.access_tokens
        }

    @property
    def generation(self) -> int:
        return self.source.generation

    def model(self, name: str) -> ModelRoute | None:
        return self.models.get(name)

    def has_key(self, sha256: str, unix_now: float) -> bool:
        """Return whether a key with this lower-case hex digest exists and has not expired at ``unix_now``."""
        return self.find_key(sha256, unix_now) is not None

    def find_key(self, sha256: str, unix_now: float) -> KeyGrant | None:
        """The key with this digest, unless it is unknown or has expired."""
        grant = self._keys.get(sha256)
        return grant if grant is not None and (not grant.expires_at or unix_now < grant.expires_at) else None


def newest_table(held: IndexedTable | None, new: RouteTable) -> IndexedTable | StaleTable:
    """The table to use from now on, or ``StaleTable`` if ``new`` is older than ``held``.

    The same generation is accepted: after a reconnect the manager sends the current table again.
    """
    if held is not None and new.generation < held.generation:
        return StaleTable(held.generation, new.generation)
    return IndexedTable(new)
