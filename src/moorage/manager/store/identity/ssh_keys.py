"""Users' public keys in Postgres: who may log in over SSH, and with which API key's rights."""

from __future__ import annotations

from typing import Any, NamedTuple

import asyncpg
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Text

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import Conflict, NotFound
from moorage.common.model.paging import FIRST, Paging
from moorage.common.model.public_keys import PublicKey
from moorage.common.model.spec import Name
from moorage.common.views.resources import Page
from moorage.common.views.ssh_keys import SshKeyView
from moorage.manager.identity.keys import ApiKey
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.cursors import Listing
from moorage.manager.store.database.notifier import Notifier, Topic
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.unreadable import read_one, read_page
from moorage.manager.store.identity.keys import key_of_user
from moorage.manager.store.schema.base import TIME

_LISTING = Listing(
    SQL["ssh_key_list"],
    {"name": Text(), "user": Text(), "fingerprint": Text(), "created_at": TIME},
    sorts=("name", "created_at"),
    key=("fingerprint",),
    default="name",
)
_NAME: TypeAdapter[str] = TypeAdapter(Name)


class SshUser(NamedTuple):
    """Owner of an SSH key. ``projects``: the projects in which it may act."""

    user: str
    key: str
    projects: list[str]


class SshKeyStore:
    def __init__(self, db: Database, notifier: Notifier, clock: Clock) -> None:
        self._db = db
        self._notifier = notifier
        self._clock = clock

    async def create(self, scope: Scope, key: PublicKey, name: str | None = None) -> SshKeyView:
        """Register a key whose private key the caller has proved to hold. ¶ If an API key registers
        it, it has the rights of that key and ends with it. It replaces a key that someone
        registered without a proof. Raises ``Conflict`` for a registered key."""
        name = name or _default_name(key)
        by = scope.key.id if scope.key is not None and scope.key.console is None else None
        user = scope.owner.user
        args = self._clock.new_id(), user, name, by, key.fingerprint, key.text, scope.actor
        try:
            is_made = bool(await self._db.fetch(SQL["ssh_key_create"], *args))
        except asyncpg.UniqueViolationError:  # of the name
            is_made = False

        if not is_made:
            raise Conflict(
                f"the key {key.fingerprint} is already registered, or {user!r} has another SSH "
                f"key named {name!r}",
                next_step=(
                    "`moorage keys list-ssh` lists yours; choose another name, or create a new key"
                ),
            )

        self._notifier.notify([Topic.KEYS])  # the user who registered it earlier without a proof
        return await self.get(scope, key.fingerprint)

    async def page(
        self, scope: Scope, paging: Paging = FIRST, *, user: str | None = None
    ) -> Page[SshKeyView]:
        rows, following = await _LISTING.page(
            self._db, paging, None, *_sight(scope), only={"user": user}
        )
        return read_page(SshKeyView, "SSH key", rows=rows, read=_view, following=following)

    async def get(self, scope: Scope, ref: str) -> SshKeyView:
        """Get a key by fingerprint, or by name among the caller's. Raises ``NotFound``."""
        return _view(await self._row(scope, ref))

    async def delete(self, scope: Scope, ref: str) -> SshKeyView:
        """Delete a key and return its last state. Its open connections are closed. Raises
        ``NotFound``."""
        row = await self._row(scope, ref)
        await self._db.fetch(SQL["ssh_key_delete"], row["id"])
        self._notifier.notify([Topic.KEYS])
        return _view(row)

    async def _row(self, scope: Scope, ref: str) -> Any:
        row = await self._db.fetchrow(SQL["ssh_key_list"], ref, *_sight(scope))
        if row is None:
            raise NotFound(
                f"there is no SSH key {ref!r}", next_step="`moorage keys list-ssh` lists yours"
            )
        return row

    async def who(self, fingerprint: str) -> SshUser | None:
        """The owner of a key; None if the key is not registered, or its user or API key is no
        longer valid."""
        row = await self._db.fetchrow(SQL["ssh_key_projects"], fingerprint)
        return None if row is None else SshUser(row["owner"], row["name"], list(row["projects"]))

    async def find(self, fingerprint: str, project: str) -> ApiKey | None:
        """Current rights of the key in ``project``: those of the API key that registered it, which
        may be limited to its project, or those of its user. None means no rights. Records when the
        key was last used."""
        row = await self._db.fetchrow(SQL["ssh_key_find"], fingerprint, project)
        if row is None:
            return None

        name = f"ssh/{row['owner']}/{row['name']}"
        found = read_one("SSH key", name, row, lambda stored: key_of_user(stored, name))
        if found is not None and row["use_unrecorded"]:
            await self._db.fetch(SQL["ssh_key_touch"], row["id"])

        return found

    def on_change(self, callback: Any) -> Any:
        """Call ``callback`` when keys, users or projects change. Returns a function that
        unsubscribes."""
        return self._notifier.on(Topic.KEYS, callback)


def _sight(scope: Scope) -> tuple[list[str] | None, str, bool]:
    """Keys that a caller sees and may remove: those of its user, and those of API keys that it
    sees."""
    projects = None if scope.projects is None else list(scope.projects)
    return projects, scope.owner.user, scope.user is None


def _default_name(key: PublicKey) -> str:
    try:
        return _NAME.validate_python(key.comment)
    except ValidationError:
        kind = key.text.partition(" ")[0].removesuffix("@openssh.com")
        return f"{kind}-{key.fingerprint[7:15]}".replace("/", "_").replace("+", "_")


def _view(row: Any) -> SshKeyView:
    return SshKeyView.model_validate(dict(row))
