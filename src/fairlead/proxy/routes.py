"""The route table as the proxy looks things up in it. Pure: it only knows what it was given."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.common.ids import KernelId
from fairlead.common.messages import ModelRoute, RouteTable


@dataclass(frozen=True, slots=True)
class Stale:
    """A table that was refused because a newer one is held."""

    held: int
    offered: int


class Table:
    """One generation of routes, indexed by model name, key digest and kernel."""

    __slots__ = ("_keys", "kernels", "models", "source")

    def __init__(self, source: RouteTable) -> None:
        self.source = source
        self.models: dict[str, ModelRoute] = {route.name: route for route in source.models}
        self.kernels: frozenset[KernelId] = frozenset(
            target.kernel_id for route in source.models for target in route.targets
        )
        self._keys = {grant.sha256: grant.expires_at for grant in source.keys}

    @property
    def generation(self) -> int:
        return self.source.generation

    def model(self, name: str) -> ModelRoute | None:
        return self.models.get(name)

    def grants(self, sha256: str, unix_now: float) -> bool:
        """Whether a key with this lower-case hex digest exists and is not expired at ``unix_now`` seconds."""
        expires_at = self._keys.get(sha256)
        return expires_at is not None and (expires_at == 0 or unix_now < expires_at)


def replace(held: Table | None, new: RouteTable) -> Table | Stale:
    """The table to hold from now on, or ``Stale`` when ``new`` is older than the one held.

    The same generation again is taken: a reconnect brings the current table once more.
    """
    if held is not None and new.generation < held.generation:
        return Stale(held.generation, new.generation)
    return Table(new)
