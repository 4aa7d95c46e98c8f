"""The API's keys kept in memory: part of ``MemoryStore``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import Conflict, InvalidInput, NotFound
from moorage.common.views.keys import KeySpec, KeyView, NewKeyView
from moorage.manager.identity.keys import ApiKey, Owner

ADMIN_KEY, MEMBER_KEY = "mg-admin-secret", "mg-member-secret"


class MemoryKeys:
    """``told``: a manager hears of what changed; False: its notifications are lost."""

    def __init__(self, clock: Clock) -> None:
        self._time, self.told = clock, True
        self._heard: list[Callable[[], None]] = []
        self.views: dict[str, KeyView] = {}
        self.keys: dict[str, ApiKey] = {}
        self._keep(ADMIN_KEY, KeySpec(name="root", role="admin"), "")
        self._keep(MEMBER_KEY, KeySpec(name="ada", project="lovelace"), "")

    def on_keys(self, heard: Callable[[], None]) -> None:
        self._heard.append(heard)

    async def create_key(self, spec: KeySpec, *, actor: str) -> NewKeyView:
        if spec.expires_at is not None and spec.expires_at <= self._time.now():
            raise InvalidInput("expires_at is in the past")
        if spec.name in self.views:
            raise Conflict(f"there is a key named {spec.name!r}")
        secret = f"mg-{self._time.secret()}"
        view = self._keep(secret, spec, actor)
        return NewKeyView.model_validate({**view.model_dump(), "secret": secret})

    async def list_keys(self) -> list[KeyView]:
        return [self.views[name] for name in sorted(self.views)]

    async def get_key(self, name: str) -> KeyView:
        if name not in self.views:
            raise NotFound(f"there is no key named {name!r}")
        return self.views[name]

    async def revoke_key(self, name: str, *, actor: str) -> KeyView:
        view = await self.get_key(name)
        if view.role == "admin" and sum(one.role == "admin" for one in self.views.values()) == 1:
            raise Conflict(f"{name!r} is the last administrator's key")
        del self.views[name]
        self.keys = {sha256: key for sha256, key in self.keys.items() if key.name != name}
        self._notify()
        return view

    def _keep(self, secret: str, spec: KeySpec, actor: str) -> KeyView:
        made, user = self._time.new_id(), spec.user or spec.name
        view = KeyView(
            id=made, name=spec.name, prefix=secret[:8], role=spec.role, user=user, project=spec.project,
            created_at=self._time.now(), created_by=actor, expires_at=spec.expires_at,
        )  # fmt: skip
        self.views[spec.name] = view
        owner = Owner(user, spec.project)
        self.keys[hashlib.sha256(secret.encode()).hexdigest()] = ApiKey(made, spec.name, spec.role, owner)
        self._notify()
        return view

    def _notify(self) -> None:
        for heard in self._heard if self.told else ():
            heard()
