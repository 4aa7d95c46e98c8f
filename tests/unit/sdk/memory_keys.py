"""In-memory API keys of the fake manager."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from memory_pages import page

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import (
    Conflict,
    InvalidInput,
    MoorageError,
    NotFound,
    Unauthenticated,
)
from moorage.common.model.paging import Paging
from moorage.common.model.roles import Role
from moorage.common.views.keys import KeyLimits, KeySpec, KeyView, NewKeyView
from moorage.common.views.resources import Page
from moorage.manager.identity.keys import DEFAULT_PROJECT, ApiKey, Owner
from moorage.manager.identity.roles import UserFacts, decide_key, owner_of_new_key
from moorage.manager.identity.scope import Scope

ADMIN_KEY = "mg-admin-secret"
MEMBER_KEY = "mg-member-secret"


class MemoryKeys:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._callbacks: list[Callable[[], None]] = []
        self.views: dict[str, KeyView] = {}
        self.by_sha256: dict[str, ApiKey] = {}
        self._keep(ADMIN_KEY, KeySpec(name="root", role=Role.ADMIN), "key:root")
        self._keep(MEMBER_KEY, KeySpec(name="ada", project="lovelace"), "key:root")

    def on_change(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    async def refusal(self, sha256: str) -> Unauthenticated:
        return Unauthenticated("the API key is invalid")

    async def find(self, sha256: str) -> ApiKey | None:
        return self.by_sha256.get(sha256)

    async def create(self, scope: Scope, spec: KeySpec) -> NewKeyView:
        if spec.expires_at is not None and spec.expires_at <= self._clock.now():
            raise InvalidInput("expires_at is in the past")
        if spec.name in self.views:
            raise Conflict(f"a key named {spec.name!r} already exists")

        secret = f"mg-{self._clock.secret()}"
        owner = owner_of_new_key(scope, spec)
        decided = decide_key(
            scope, spec, UserFacts(False, None, None if scope.role is Role.ADMIN else "member")
        )
        if isinstance(decided, MoorageError):
            raise decided

        spec = spec.model_copy(
            update={"user": owner.user, "project": owner.project, "role": decided.role}
        )
        view = self._keep(secret, spec, scope.actor)
        return NewKeyView.model_validate({**view.model_dump(), "secret": secret})

    async def page(self, scope: Scope, paging: Paging, **_: object) -> Page[KeyView]:
        return page(
            [self.views[name] for name in sorted(self.views) if self._sees(scope, name)], paging
        )

    def _sees(self, scope: Scope, name: str) -> bool:
        view = self.views.get(name)
        return view is not None and scope.reads(view.project) and scope.user in (None, view.user)

    async def get(self, scope: Scope, name: str) -> KeyView:
        if not self._sees(scope, name):
            raise NotFound(f"there is no key named {name!r}")
        return self.views[name]

    async def update(
        self, scope: Scope, name: str, limits: KeyLimits, *, if_match: frozenset[int] | None = None
    ) -> KeyView:
        view = await self.get(scope, name)
        self.views[name] = view.model_copy(update=dict(limits))
        return self.views[name]

    async def rotate(self, scope: Scope, name: str, *, grace_s: int) -> NewKeyView:
        view = await self.get(scope, name)
        secret = f"mg-{self._clock.secret()}"
        limits = {field: getattr(view, field) for field in KeyLimits.model_fields}
        spec = KeySpec(name=name, user=view.user, project=view.project, role=view.role, **limits)
        kept = self._keep(secret, spec, scope.actor)
        return NewKeyView.model_validate({**kept.model_dump(), "secret": secret})

    async def revoke(self, scope: Scope, name: str) -> KeyView:
        view = await self.get(scope, name)
        if view.role == "admin" and sum(one.role == "admin" for one in self.views.values()) == 1:
            raise Conflict(f"{name!r} is the last administrator's key")
        del self.views[name]
        self.by_sha256 = {sha256: key for sha256, key in self.by_sha256.items() if key.name != name}
        self._notify()
        return view

    def _keep(self, secret: str, spec: KeySpec, actor: str) -> KeyView:
        key_id = self._clock.new_id()
        user = spec.user or spec.name
        project = spec.project or DEFAULT_PROJECT
        role = spec.role or Role.MEMBER
        view = KeyView(
            id=key_id, name=spec.name, prefix=secret[:8], role=role, user=user, project=project,
            created_at=self._clock.now(), created_by=actor,
            **{field: getattr(spec, field) for field in KeyLimits.model_fields},
        )  # fmt: skip
        self.views[spec.name] = view
        owner = Owner(user, project)
        self.by_sha256[hashlib.sha256(secret.encode()).hexdigest()] = ApiKey(
            key_id, spec.name, role, owner
        )
        self._notify()

        return view

    def _notify(self) -> None:
        for callback in self._callbacks:
            callback()
