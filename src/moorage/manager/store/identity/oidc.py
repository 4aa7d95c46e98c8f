"""People known to the OpenID provider, in Postgres: each person's user, and the roles that rules
have granted."""

from __future__ import annotations

import re

import structlog

from moorage.common.model.errors import Conflict, NotFound
from moorage.manager.identity.scope import Scope
from moorage.manager.oidc import Person, SignInRefused
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.notifier import Notifier, Topic
from moorage.manager.store.database.queries import SQL

log = structlog.get_logger("moorage.oidc")
# Owners of resources that do not belong to a person.
_RESERVED = frozenset({"admin", "anonymous", "manager", "root", "system"})
_NAMES = 50


class OidcStore:
    def __init__(self, db: Database, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier

    async def identify(self, person: Person) -> str:
        """Find the user for ``person``, with the roles that the rules now grant; create a user if
        there is none and a rule matches.

        Raises ``SignInRefused``."""
        who = person.issuer, person.subject
        row = await self._db.fetchrow(SQL["oidc_find"], *who)
        if row is None and person.grants:
            await self._db.fetch(SQL["oidc_create_user"], *who, person.email, _candidates(person))
            row = await self._db.fetchrow(SQL["oidc_find"], *who)

        if row is None:
            raise SignInRefused(
                f"{person.issuer} knows you as {person.subject!r}; no user is linked to this "
                "account, and no rule matches you",
                next_step="ask an administrator: `moorage users set NAME --subject "
                f"{person.subject}`, or "
                "a rule in manager.oidc_rules",
            )

        user = str(row["user_name"])
        if row["is_archived"]:
            raise SignInRefused(
                f"user {user!r} is archived",
                next_step=f"ask an administrator: `moorage users restore {user}`",
            )

        granted = row["granted_role"]
        wanted = person.grants.platform_role

        # otherwise, someone has changed the role by hand
        if row["platform_role"] == granted and granted != wanted:
            args = user, row["email"], row["status"], wanted, None
            if await self._db.fetch(SQL["user_update"], *args):
                granted = wanted
            else:
                log.warning(
                    "the last administrator keeps the role, although no rule gives it any longer",
                    user=user,
                )
        elif wanted is None:
            granted = None

        projects = dict(person.grants.projects)
        await self._db.fetch(SQL["oidc_grant"], *who, granted, projects)
        if missing := await self._db.fetch(SQL["oidc_missing_projects"], sorted(projects)):
            log.warning(
                "manager.oidc_rules name unknown or archived projects",
                projects=[row["name"] for row in missing],
            )

        self._notifier.notify([Topic.KEYS])
        return user

    async def link(self, scope: Scope, user: str, issuer: str, subject: str) -> None:
        """Link a person known to the provider to ``user``. Raises ``NotFound`` and ``Conflict``."""
        scope.require_all("users")
        rows = await self._db.fetch(SQL["oidc_link"], user, issuer, subject)
        if not rows:
            raise NotFound(f"there is no user {user!r}", next_step="`moorage users` lists them")

        if rows[0]["taken_by"] is not None:
            raise Conflict(
                f"{subject!r} is already linked to user {rows[0]['taken_by']!r}",
                next_step=(
                    f"`moorage users set {rows[0]['taken_by']} --subject none` removes that link"
                ),
            )

        self._notifier.notify([Topic.KEYS])

    async def unlink(self, scope: Scope, user: str) -> None:
        """Unlink a user. Ends the console sessions that the user opened through the provider, and
        withdraws roles granted by rules.

        Raises ``NotFound`` for a user that is not linked."""
        scope.require_all("users")
        removed = await self._db.fetch(SQL["oidc_unlink"], user)
        if not removed:
            raise NotFound(f"user {user!r} does not exist, or is not linked to the provider")
        if removed[0]["granted_role"] is not None:
            args = user, removed[0]["email"], removed[0]["status"], None, None
            await self._db.fetch(SQL["user_update"], *args)

        self._notifier.notify([Topic.KEYS])


def _candidates(person: Person) -> list[str]:
    """Candidate names for a new user, best first. An existing user is never taken over."""
    found = []
    for given in person.names:
        name = re.sub(r"[^a-z0-9._-]+", "-", given.partition("@")[0].lower()).strip("._-")[:60]
        if name and name not in _RESERVED:
            found.append(name)
    stem = found[0] if found else "user"
    return [*found, *(f"{stem}-{number}" for number in range(2, _NAMES))]
