"""API keys in Postgres, stored under the SHA-256 of their secret."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import Text

from moorage.common.aio.clock import Clock
from moorage.common.link.messages import BudgetGrant, KeyGrant, ProjectGrant, RequestLimits
from moorage.common.model.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    MoorageError,
    NotFound,
    Unauthenticated,
)
from moorage.common.model.paging import FIRST, Paging
from moorage.common.model.roles import Role
from moorage.common.model.session_access import Action, refused_at_once
from moorage.common.views.keys import KeyLimits, KeySpec, KeyView, NewKeyView
from moorage.common.views.resources import Page
from moorage.manager.identity.keys import ApiKey, ConsoleSession, Owner, digest_of
from moorage.manager.identity.roles import (
    UserFacts,
    decide_key,
    effective_role,
    model_access,
    owner_of_new_key,
    role_of_user,
)
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.cursors import Listing
from moorage.manager.store.database.notifier import Notifier, Topic
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.unreadable import UnreadableRows, read_one, read_page
from moorage.manager.store.database.versions import Versions, check_version, sent
from moorage.manager.store.schema.base import TIME

KEY_PREFIX = "mg-"
RATES = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
_RESTRICTIONS = (
    *("scopes", "models", "resource_groups", "max_priority"),
    *RATES,
    *("max_body_bytes", "max_time_s", "max_per_session"),
)
# A key with one of these cannot create other keys, which would be without it.
_RIGHTS = (*_RESTRICTIONS[:4], "max_time_s", "max_per_session")
_ASK = "check the key, or ask an administrator for a new one"

_LISTING = Listing(
    SQL["key_list"],
    {"name": Text(), "user": Text(), "project": Text(), "role": Text(), "created_at": TIME},
    sorts=("name", "created_at"),
    key=("name",),
    default="name",
)


class KeyStore:
    def __init__(
        self, db: Database, notifier: Notifier, clock: Clock, unreadable: UnreadableRows
    ) -> None:
        self._db = db
        self._notifier = notifier
        self._clock = clock
        self._unreadable = unreadable
        self._connection = db.shared_connection(Purpose.ADMINISTRATION)

    async def create_first(self, given: str | None = None) -> str | None:
        """Create the first admin key and return its secret; None if any key exists. ``given``: used
        as the secret instead of a new one."""
        secret, digest = (given, digest_of(given)) if given else self._new_secret()
        rows = await self._db.fetch(
            SQL["key_create_first"], self._clock.new_id(), secret[:8], digest
        )
        return secret if rows else None

    def _new_secret(self) -> tuple[str, str]:
        """Generate a secret and its SHA-256 in hex."""
        secret = KEY_PREFIX + self._clock.secret(32)
        return secret, digest_of(secret)

    async def create(self, scope: Scope, spec: KeySpec) -> NewKeyView:
        """Create a key. Raises ``Conflict`` for a name that is taken, ``InvalidInput`` for an
        expiry in the past, and the errors of ``decide_key``."""
        self._check_expiry(spec.expires_at)
        owner = owner_of_new_key(scope, spec)
        facts = UserFacts(**await self._db.fetchrow(SQL["key_facts"], owner.user, owner.project))
        decided = decide_key(scope, spec, facts)
        if isinstance(decided, MoorageError):
            raise decided

        secret, digest = self._new_secret()
        rows = await self._connection.fetch(
            SQL["key_create"],
            self._clock.new_id(),
            spec.name,
            decided.role,
            secret[:8],
            digest,
            decided.owner.user,
            decided.owner.project,
            spec.expires_at,
            scope.projects is None,
            scope.actor,
            *(getattr(spec, field) for field in _RESTRICTIONS),
        )
        if not rows:
            raise Conflict(
                f"a key named {spec.name!r} already exists",
                next_step="choose another name, or revoke that one: `moorage keys list` shows it",
            )

        self._notify()
        return NewKeyView.model_validate({**_key_fields(rows[0]), "secret": secret})

    async def page(
        self,
        scope: Scope,
        paging: Paging = FIRST,
        *,
        user: str | None = None,
        project: str | None = None,
        role: Role | None = None,
    ) -> Page[KeyView]:
        only = {"user": user, "project": project, "role": role}
        rows, following = await _LISTING.page(
            self._db, paging, None, scope.projects, scope.user, only=only
        )
        return read_page(KeyView, "key", rows=rows, read=_view, following=following)

    async def get(self, scope: Scope, name: str) -> KeyView:
        """Get a key. Raises ``NotFound``, and ``Conflict`` for one that needs a newer manager to be
        shown."""
        row = await self._db.fetchrow(SQL["key_list"], name, scope.projects, scope.user)
        if row is None:
            raise NotFound(
                f"there is no key named {name!r}", next_step="`moorage keys list` lists them"
            )
        return read_one("key", name, row, _view)

    async def update(
        self, scope: Scope, name: str, limits: KeyLimits, *, if_match: Versions = None
    ) -> KeyView:
        """Replace all restrictions and the expiry. ``if_match``: the versions that it may have now.
        Raises ``NotFound``, ``PreconditionFailed`` for another version, ``InvalidInput`` for an
        expiry in the past, and ``Conflict`` for an expiry on the last administrator's key."""
        self._check_expiry(limits.expires_at)
        restrictions = (getattr(limits, field) for field in _RESTRICTIONS)
        args = name, scope.projects, scope.user, *restrictions, limits.expires_at, sent(if_match)
        rows = await self._connection.fetch(SQL["key_update"], *args)

        return await self._changed(scope, name, rows=rows, done="was changed", if_match=if_match)

    async def rotate(self, scope: Scope, name: str, *, grace_s: int) -> NewKeyView:
        """Replace the secret; the previous one stays valid for ``grace_s`` seconds.

        Raises ``NotFound``, and ``Conflict`` for a key that needs a newer manager, because its new
        secret could not be returned to anybody."""
        await self.get(scope, name)
        secret, digest = self._new_secret()
        rows = await self._connection.fetch(
            SQL["key_rotate"], name, scope.projects, scope.user, secret[:8], digest, grace_s
        )
        view = await self._changed(scope, name, rows, "was changed")
        return NewKeyView.model_validate({**view.model_dump(), "secret": secret})

    async def revoke(self, scope: Scope, name: str) -> KeyView:
        """Revoke a key. Returns its last state.

        Raises ``NotFound``, and ``Conflict`` for the last administrator's key that does not
        expire."""
        rows = await self._connection.fetch(
            SQL["key_revoke"], name, scope.actor, scope.projects, scope.user
        )
        return await self._changed(scope, name, rows, "was revoked")

    async def _changed(
        self, scope: Scope, name: str, rows: list[Any], done: str, *, if_match: Versions = None
    ) -> KeyView:
        if not rows:
            check_version(f"key {name!r}", (await self.get(scope, name)).version, if_match)
            raise Conflict(
                f"{name!r} is the last administrator's key that does not expire",
                next_step="create another one first: `moorage keys create NAME --role admin`",
            )

        self._notify()
        return read_one("key", name, rows[0], _view, done=done)

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` when keys, users or projects change. Returns a function that
        unsubscribes."""
        return self._notifier.on(Topic.KEYS, callback)

    async def find(self, sha256: str) -> ApiKey | None:
        """Find a valid key; None if the key is unknown, expired or revoked, or if its user has lost
        every role. Records when the key was last used. Raises ``Conflict`` for one that needs a
        newer manager."""
        row = await self._db.fetchrow(SQL["key_find"], sha256)
        if row is None:
            return None

        found = read_one(
            "key",
            row["name"],
            row,
            lambda key_row: key_of_row(key_row, key_row["name"], Role(key_row["role"])),
        )
        if found is not None and row["use_unrecorded"]:
            await self._connection.fetch(SQL["key_record_use"], row["id"])

        return found

    async def of_user(self, owner: Owner, granted: Role) -> ApiKey:
        """The rights that a key of this user in this project would have now, if it had been created
        with the role ``granted``. Raises ``Forbidden`` with the reason if it would have none."""
        row = await self._db.fetchrow(SQL["user_rights"], owner.user, owner.project)
        for kind, name, status in (
            ("user", owner.user, row["user_status"]),
            ("project", owner.project, row["project_status"]),
        ):
            if status != "active":
                raise Forbidden(
                    f"{kind} {name!r} is {status or 'unknown'}", next_step="ask an administrator"
                )

        key = key_of_row(row, owner.user, granted)
        if key is None:
            raise Forbidden(
                f"user {owner.user!r} has no role in project {owner.project!r}",
                next_step="ask a project admin: `moorage projects members set`",
            )
        return key

    async def refusal(self, sha256: str) -> Unauthenticated:
        """Why ``find`` found no valid key. Only its owner has the secret and learns the reason."""
        row = await self._db.fetchrow(SQL["key_refusal"], sha256)
        if row is None:
            return Unauthenticated("the API key is invalid", next_step=_ASK)

        name = f"the API key {row['name']!r}"
        if row["revoked_at"] is not None:
            return Unauthenticated(
                f"{name} was revoked at {_utc(row['revoked_at'])}", next_step=_ASK
            )
        if row["is_expired"]:
            return Unauthenticated(
                f"{name} expired at {_utc(row['expires_at'])}",
                next_step=f"use another key, or extend it: `moorage keys set {row['name']} "
                "--expires 30d`",
            )
        if row["is_replaced"]:
            return Unauthenticated(
                f"{name} has a new secret: it was rotated", next_step="use the new secret"
            )

        for kind, who, status in (
            ("user", row["owner"], row["user_status"]),
            ("project", row["project"], row["project_status"]),
        ):
            if status != "active":
                return Unauthenticated(
                    f"{name} is refused: {kind} {who!r} is {status or 'unknown'}",
                    next_step="ask an administrator",
                )

        return Unauthenticated(
            f"{name} is refused: user {row['owner']!r} has no role in project {row['project']!r}",
            next_step="ask a project admin: `moorage projects members set`",
        )

    async def grants(self) -> tuple[KeyGrant, ...]:
        """Valid keys, as proxies check them."""
        rows = await self._db.fetch(SQL["key_grants"])
        found = self._unreadable.each("key", rows, _grant)
        return tuple(key for key in found if key is not None)

    async def project_grants(self) -> tuple[ProjectGrant, ...]:
        """The limits of projects that have any."""
        rows = await self._db.fetch(SQL["project_grants"])
        return tuple(ProjectGrant(row["name"], request_limits(row)) for row in rows)

    def _check_expiry(self, expires_at: datetime | None) -> None:
        if expires_at is not None and expires_at <= (now := self._clock.now()):
            raise InvalidInput(
                f"expires_at = {expires_at.isoformat()} is in the past (it is "
                f"{now:%Y-%m-%dT%H:%M:%SZ})",
                field="expires_at",
                next_step="set a later time, or omit it",
            )

    def _notify(self) -> None:
        self._notifier.notify([Topic.KEYS])


def key_of_row(
    row: Any, name: str, granted: Role, console: ConsoleSession | None = None
) -> ApiKey | None:
    """Key of a row; None if its user has lost every role."""
    role = effective_role(granted, row["member_role"], row["platform_role"])
    if role is None:
        return None

    allowed = row["resource_groups"], row["project_groups"]
    groups = [set(names) for names in allowed if names is not None]
    priorities = [p for p in (row["max_priority"], row["project_priority"]) if p is not None]
    return ApiKey(
        id=row["id"],
        name=name,
        role=role,
        owner=Owner(row["owner"], row["project"], isolated=role is not Role.ADMIN),
        scopes=None if row["scopes"] is None else frozenset(row["scopes"]),
        models=None if row["models"] is None else frozenset(row["models"]),
        resource_groups=frozenset(set.intersection(*groups)) if groups else None,
        max_priority=min(priorities, default=None),
        kept_priority=row["kept_priority"] or 0,
        max_time_s=row["max_time_s"],
        max_per_session=row["max_per_session"] or {},
        restricted=any(row[name] is not None for name in _RIGHTS),
        console=console,
    )


def key_of_user(row: Any, name: str, console: ConsoleSession | None = None) -> ApiKey | None:
    """An authenticated user's rights, or those of a key if ``role`` is set."""
    own = role_of_user(row["member_role"], row["platform_role"])
    granted = Role(row["role"]) if row["role"] is not None else own
    return None if granted is None else key_of_row(row, name, granted, console)


def _role(row: Any) -> Role | None:
    return effective_role(Role(row["role"]), row["member_role"], row["platform_role"])


def _grant(row: Any) -> KeyGrant | None:
    """Grant of a key; None if its user has lost every role."""
    if (role := _role(row)) is None:
        return None

    expires_at = int(row["expires_at"].timestamp()) if row["expires_at"] else 0
    uses_apps = refused_at_once(role, row["scopes"], Action.PORTS) is None
    models = model_access(role, row["scopes"], row["models"])
    priorities = [p for p in (row["max_priority"], row["project_priority"]) if p is not None]

    return KeyGrant(
        row["sha256"],
        expires_at,
        row["owner"] if uses_apps else "",
        row["project"],
        admin=role is Role.ADMIN and uses_apps,
        project_admin=role is Role.PROJECT_ADMIN and uses_apps,
        limits_models=models is not None,
        models=tuple(sorted(models or ())),
        id=row["id"],
        owner=row["owner"],
        limits=request_limits(row) or None,
        priority=min(priorities, default=None),
        exhausted_until=row["exhausted_until"],
        warned_until=row["warned_until"],
        budgets=tuple(BudgetGrant(*budget) for budget in row["budgets"] or ()),
        max_body_bytes=row["max_body_bytes"] or 0,
    )


def request_limits(row: Any) -> RequestLimits:
    return RequestLimits(*(row[field] for field in RATES))


def _view(row: Any) -> KeyView:
    return KeyView.model_validate(_key_fields(row))


def _utc(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _key_fields(row: Any) -> dict[str, Any]:
    return {**row, "id": str(row["id"])}
