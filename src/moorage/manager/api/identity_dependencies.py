"""Interfaces through which the API uses the stores of identities: users, projects, keys, secrets,
peers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any, Protocol

from moorage.common.model.paging import Paging
from moorage.common.model.public_keys import PublicKey
from moorage.common.model.roles import MemberRole, Role
from moorage.common.views.access_tokens import (
    AccessTokenSpec,
    AccessTokenView,
    AppView,
    NewAccessTokenView,
)
from moorage.common.views.audit import AuditEntry
from moorage.common.views.console import WhoAmI
from moorage.common.views.identity import (
    MemberView,
    ProjectPatch,
    ProjectSpec,
    ProjectView,
    UserPatch,
    UserSpec,
    UserView,
)
from moorage.common.views.keys import KeyLimits, KeySpec, KeyView, NewKeyView
from moorage.common.views.managers import ManagerView
from moorage.common.views.peers import JoinTokenView, PeerView
from moorage.common.views.resources import Page
from moorage.common.views.secrets import SecretView
from moorage.common.views.ssh_keys import SshKeyView
from moorage.manager.identity.keys import ApiKey
from moorage.manager.identity.scope import Scope
from moorage.manager.oidc import Person


class Secrets(Protocol):
    """Of the project of the scope's owner."""

    async def put(self, scope: Scope, name: str, value: str) -> SecretView: ...
    async def page(self, scope: Scope, paging: Paging) -> Page[SecretView]: ...
    async def delete(self, scope: Scope, name: str) -> SecretView: ...
    async def check_exist(self, scope: Scope, names: Collection[str]) -> None: ...


class Keys(Protocol):
    async def create(self, scope: Scope, spec: KeySpec) -> NewKeyView: ...

    async def page(
        self,
        scope: Scope,
        paging: Paging,
        *,
        user: str | None,
        project: str | None,
        role: Role | None,
    ) -> Page[KeyView]: ...

    async def get(self, scope: Scope, name: str) -> KeyView: ...
    async def update(
        self, scope: Scope, name: str, limits: KeyLimits, *, if_match: frozenset[int] | None = None
    ) -> KeyView: ...
    async def rotate(self, scope: Scope, name: str, *, grace_s: int) -> NewKeyView: ...
    async def revoke(self, scope: Scope, name: str) -> KeyView: ...
    async def find(self, sha256: str) -> ApiKey | None: ...

    def on_change(self, callback: Callable[[], None]) -> object:
        """Call ``callback`` when keys, users or projects changed, through this manager or another
        one."""
        ...


class SshKeys(Protocol):
    async def create(self, scope: Scope, key: PublicKey, name: str | None) -> SshKeyView: ...
    async def page(self, scope: Scope, paging: Paging, *, user: str | None) -> Page[SshKeyView]: ...
    async def get(self, scope: Scope, ref: str) -> SshKeyView: ...
    async def delete(self, scope: Scope, ref: str) -> SshKeyView: ...


class Audit(Protocol):
    async def begin(
        self,
        scope: Scope,
        *,
        from_address: str,
        request_id: str,
        action: str,
        resource: str,
        name: str,
        before: dict[str, Any] | None,
    ) -> int: ...

    async def finish(
        self,
        scope: Scope,
        entry: int,
        *,
        status: int,
        code: str,
        after: dict[str, Any] | None,
        name: str,
    ) -> None: ...

    async def page(
        self,
        scope: Scope,
        *,
        filters: dict[str, str],
        since: datetime | None,
        until: datetime | None,
        paging: Paging,
    ) -> Page[AuditEntry]: ...


class ConsoleSessions(Protocol):
    """``store.console_sessions`` describes the methods."""

    async def begin_sign_in(self, user: str) -> tuple[str | None, int]: ...

    async def open(
        self,
        user: str,
        key: ApiKey | None,
        *,
        from_address: str,
        lifetime_s: float,
        idle_s: int,
        by_oidc: bool = False,
    ) -> str: ...

    async def find(self, sha256: str, *, is_act: bool = True) -> ApiKey | None: ...
    async def switch(self, scope: Scope, project: str) -> None: ...
    async def end(self, scope: Scope, *, user: str | None = None) -> int: ...
    async def who(self, scope: Scope) -> WhoAmI: ...
    async def put_password(self, scope: Scope, user: str, password_hash: str) -> int: ...
    async def delete_password(self, scope: Scope, user: str) -> None: ...


class Oidc(Protocol):
    """``store.oidc`` describes the methods."""

    async def identify(self, person: Person) -> str: ...
    async def link(self, scope: Scope, user: str, issuer: str, subject: str) -> None: ...
    async def unlink(self, scope: Scope, user: str) -> None: ...


class Users(Protocol):
    async def create(self, scope: Scope, spec: UserSpec) -> UserView: ...
    async def page(self, scope: Scope, paging: Paging, *, status: str | None) -> Page[UserView]: ...
    async def get(self, scope: Scope, name: str) -> UserView: ...
    async def update(
        self, scope: Scope, name: str, patch: UserPatch, *, if_match: frozenset[int] | None = None
    ) -> UserView: ...


class Projects(Protocol):
    async def create(self, scope: Scope, spec: ProjectSpec) -> ProjectView: ...
    async def page(
        self, scope: Scope, paging: Paging, *, status: str | None
    ) -> Page[ProjectView]: ...
    async def get(self, scope: Scope, name: str) -> ProjectView: ...
    async def update(
        self,
        scope: Scope,
        name: str,
        patch: ProjectPatch,
        *,
        if_match: frozenset[int] | None = None,
    ) -> ProjectView: ...

    async def members(
        self, scope: Scope, project: str, paging: Paging, *, role: MemberRole | None
    ) -> Page[MemberView]: ...

    async def set_member(
        self, scope: Scope, project: str, user: str, role: MemberRole
    ) -> MemberView: ...
    async def remove_member(self, scope: Scope, project: str, user: str) -> MemberView: ...


class AccessTokens(Protocol):
    async def service_ports(self, scope: Scope, session_id: str) -> list[AppView]: ...

    async def create(
        self, scope: Scope, session_id: str, app: str, spec: AccessTokenSpec
    ) -> NewAccessTokenView: ...

    async def valid(
        self, scope: Scope, session_id: str, app: str, paging: Paging
    ) -> Page[AccessTokenView]: ...

    async def revoke(
        self, scope: Scope, session_id: str, app: str, access_token_id: str
    ) -> AccessTokenView: ...


class Peers(Protocol):
    async def join_tokens(self, paging: Paging, *, kind: str | None) -> Page[JoinTokenView]: ...
    async def delete_join_token(self, token_id: str, *, actor: str) -> JoinTokenView: ...
    async def page(self, paging: Paging, *, kind: str | None) -> Page[PeerView]: ...
    async def revoke(self, kind: str, name: str, *, actor: str) -> PeerView: ...


class Managers(Protocol):
    async def installation(self) -> str: ...
    async def views(self) -> list[ManagerView]: ...
