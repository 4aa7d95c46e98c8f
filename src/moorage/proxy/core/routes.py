"""The route table as the proxy looks things up in it. Pure: it only knows what it was given."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.link.messages import AccessTokenGrant, AppRoute, KeyGrant, ModelRoute, RouteTable
from moorage.common.model.ids import KernelId


@dataclass(frozen=True, slots=True)
class Stale:
    """A table that was refused because a newer one is held."""

    held: int
    offered: int


class Table:
    """One generation of routes, indexed by model name, key digest, kernel, and app of a session."""

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
            access_token.sha256: access_token for access_token in source.access_tokens
        }

    @property
    def generation(self) -> int:
        return self.source.generation

    def model(self, name: str) -> ModelRoute | None:
        return self.models.get(name)

    def grants(self, sha256: str, unix_now: float) -> bool:
        """Whether a key with this lower-case hex digest exists and is not expired at ``unix_now`` seconds."""
        return self.key(sha256, unix_now) is not None

    def key(self, sha256: str, unix_now: float) -> KeyGrant | None:
        """The same, with what it opens."""
        grant = self._keys.get(sha256)
        return grant if grant is not None and (not grant.expires_at or unix_now < grant.expires_at) else None


def replace(held: Table | None, new: RouteTable) -> Table | Stale:
    """The table to hold from now on, or ``Stale`` when ``new`` is older than the one held.

    The same generation again is taken: a reconnect brings the current table once more.
    """
    if held is not None and new.generation < held.generation:
        return Stale(held.generation, new.generation)
    return Table(new)
