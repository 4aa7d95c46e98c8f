"""In-memory API keys for tests of the API."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import Conflict, InvalidInput, NotFound
from moorage.common.views.keys import KeySpec, KeyView, NewKeyView
from moorage.manager.identity.keys import ApiKey, Owner

ADMIN_KEY, MEMBER_KEY = "mg-admin-secret", "mg-member-secret"


class MemoryKeys:
    """``notifies``: changes are announced; False: notifications are lost. ``check`` raises while the
    database is unavailable."""

    def __init__(self, check: Callable[[], None], clock: Clock) -> None:
        self._check, self._clock, self.notifies, self.lookups = check, clock, True, 0
        self._callbacks: list[Callable[[], None]] = []
        self.views: dict[str, KeyView] = {}
        self.by_sha256: dict[str, ApiKey] = {}
        self._keep(ADMIN_KEY, KeySpec(name="root", role="admin"), "")
        self._keep(MEMBER_KEY, KeySpec(name="ada", project="lovelace"), "")

    def on_change(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    async def find(self, sha256: str) -> ApiKey | None:
        self._check()
        self.lookups += 1
        return self.by_sha256.get(sha256)

    async def create(self, spec: KeySpec, *, actor: str) -> NewKeyView:
        if spec.expires_at is not None and spec.expires_at <= self._clock.now():
            raise InvalidInput("expires_at is in the past")
        if spec.name in self.views:
            raise Conflict(f"there is a key named {spec.name!r}")
        secret = f"mg-{self._clock.secret()}"
        view = self._keep(secret, spec, actor)
        return NewKeyView.model_validate({**view.model_dump(), "secret": secret})

    async def all(self) -> list[KeyView]:
        return [self.views[name] for name in sorted(self.views)]

    async def get(self, name: str) -> KeyView:
        if name not in self.views:
            raise NotFound(f"there is no key named {name!r}")
        return self.views[name]

    async def revoke(self, name: str, *, actor: str) -> KeyView:
        view = await self.get(name)
        if view.role == "admin" and sum(one.role == "admin" for one in self.views.values()) == 1:
            raise Conflict(f"{name!r} is the last administrator's key")
        del self.views[name]
        self.by_sha256 = {sha256: key for sha256, key in self.by_sha256.items() if key.name != name}
        self._notify()
        return view

    def _keep(self, secret: str, spec: KeySpec, actor: str) -> KeyView:
        key_id, user = self._clock.new_id(), spec.user or spec.name
        view = KeyView(
            id=key_id, name=spec.name, prefix=secret[:8], role=spec.role, user=user, project=spec.project,
            created_at=self._clock.now(), created_by=actor, expires_at=spec.expires_at,
        )  # fmt: skip
        self.views[spec.name] = view
        owner = Owner(user, spec.project)
        self.by_sha256[hashlib.sha256(secret.encode()).hexdigest()] = ApiKey(
            key_id, spec.name, spec.role, owner
        )
        self._notify()
        return view

    def _notify(self) -> None:
        for callback in self._callbacks if self.notifies else ():
            callback()
