"""Console sessions and passwords in Postgres, stored under the SHA-256 of their cookies and as
argon2 hashes, respectively."""

from __future__ import annotations

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import Conflict, Forbidden, NotFound
from moorage.common.views.console import WhoAmI
from moorage.manager.identity.keys import ApiKey, ConsoleSession, digest_of
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.notifier import Notifier, Topic
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.unreadable import read_one
from moorage.manager.store.identity.keys import KEY_PREFIX, key_of_user

FREE_ATTEMPTS = 5
LONGEST_LOCK_S = 900


class ConsoleSessionStore:
    def __init__(self, db: Database, notifier: Notifier, clock: Clock) -> None:
        self._db = db
        self._notifier = notifier
        self._clock = clock

    async def begin_sign_in(self, user: str) -> tuple[str | None, int]:
        """Count an attempt. Returns the hash of the user's password, or None if there is none, and
        the number of seconds for which the name is still locked. Unless that is 0, the attempt is
        refused."""
        row = await self._db.fetchrow(SQL["sign_in_begin"], user, FREE_ATTEMPTS, LONGEST_LOCK_S)
        return row["hash"], max(row["seconds"], 1) if row["locked"] else 0

    async def open(
        self,
        user: str,
        key: ApiKey | None,
        *,
        from_address: str,
        lifetime_s: float,
        idle_s: int,
        by_oidc: bool = False,
    ) -> str:
        """Open a console session for a user whose identity is proved by a password, a ``key``, or
        the OpenID provider; returns the secret for its cookie.

        Raises ``Forbidden`` for a user without any rights."""
        # It has a key's prefix, so that filters that hide keys from apps and logs hide it as well.
        secret = KEY_PREFIX + self._clock.secret(32)
        args = self._clock.new_id(), digest_of(secret), user, key.id if key else None
        if not await self._db.fetch(
            SQL["console_session_create"], *args, from_address, lifetime_s, idle_s, by_oidc
        ):
            raise Forbidden(
                f"user {user!r} is disabled, or a member of no project",
                next_step=(
                    "ask an administrator, or a project admin: `moorage projects members set`"
                ),
            )

        if key is None and not by_oidc:
            await self._db.fetch(SQL["sign_in_succeeded"], user)

        return secret

    async def find(self, sha256: str, *, is_act: bool = True) -> ApiKey | None:
        """Current rights of a console session; None if it has ended. ``is_act``: record this as
        user activity."""
        row = await self._db.fetchrow(SQL["console_session_find"], sha256)
        if row is None:
            return None
        if is_act and row["use_unrecorded"]:
            await self._db.fetch(SQL["console_session_touch"], row["id"])

        console = ConsoleSession(
            row["key_name"] or "", row["expires_at"], row["idle_s"], row["by_oidc"]
        )
        return read_one(
            "user", row["owner"], row, lambda stored: key_of_user(stored, stored["owner"], console)
        )

    async def switch(self, scope: Scope, project: str) -> None:
        """Switch to another project. Raises ``NotFound``, and ``Conflict`` for a session opened
        with a key."""
        key = scope.key
        if key is None or key.console is None or key.console.key:
            raise Conflict(
                "a key acts in its own project",
                next_step="sign in with a password to switch projects",
            )

        if not await self._db.fetch(SQL["console_session_switch"], key.id, project):
            raise NotFound(f"there is no project {project!r}, or you are not a member of it")

        self._notifier.notify([Topic.KEYS])

    async def end(self, scope: Scope, *, user: str | None = None) -> int:
        """End the caller's console session, or all of ``user``'s. Returns how many were ended."""
        mine = scope.key.id if scope.key is not None and scope.key.console is not None else None
        ended = await self._db.fetch(SQL["console_sessions_end"], mine, user)
        self._notifier.notify([Topic.KEYS])
        return len(ended)

    async def who(self, scope: Scope) -> WhoAmI:
        """The caller, with its user's projects."""
        key = scope.key
        assert key is not None
        row = await self._db.fetchrow(SQL["user_list"], key.owner.user, True)
        console = key.console

        return WhoAmI(
            kind="key" if console is None else "console",
            user=key.owner.user,
            project=key.owner.project,
            role=key.role,
            platform_role=row["platform_role"],
            projects=row["projects"],
            key=key.name if console is None else console.key,
            expires_at=None if console is None else console.expires_at,
            idle_s=None if console is None else console.idle_s,
            now=self._clock.now(),
        )

    async def put_password(self, scope: Scope, user: str, password_hash: str) -> int:
        """Set a password. Ends the user's other console sessions and returns their number. Raises
        ``NotFound``."""
        mine = scope.key.id if scope.key is not None and scope.key.console is not None else None
        stored = await self._db.fetch(SQL["password_put"], user, password_hash, scope.actor, mine)
        if not stored:
            raise NotFound(f"there is no user {user!r}", next_step="`moorage users` lists them")
        self._notifier.notify([Topic.KEYS])
        return int(stored[0]["ended"])

    async def delete_password(self, scope: Scope, user: str) -> None:
        """Delete a password. Raises ``NotFound`` for a user without a password."""
        if not await self._db.fetch(SQL["password_delete"], user):
            raise NotFound(f"user {user!r} does not exist, or has no password")
        self._notifier.notify([Topic.KEYS])
