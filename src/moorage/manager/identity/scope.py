"""The scope of a call: whose data it may read and change, and on whose behalf.

It is created once, at the API's edge, from the caller's key. Every repository method that reads or
changes tenant data takes it as its first argument, and its SQL filters by it. ``Scope.system`` is
for loops, ``Scope.all`` for administrators and auditors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from moorage.common.model.errors import NotFound
from moorage.common.model.roles import PLATFORM_ROLES, Role
from moorage.common.model.session_access import MAY, Action, relation_of
from moorage.common.telemetry.spans import SpanContext
from moorage.manager.identity.keys import ApiKey, Owner


@dataclass(frozen=True, slots=True)
class Scope:
    """``actor``: the caller's name in histories. ``owner``: owner of everything that the call
    creates. ``projects``: projects whose data it may read; None means all. ``key``: None for the
    manager itself. ``trace``: the request's span, if it is traced; created resources belong to that
    trace."""

    actor: str
    owner: Owner
    role: Role
    projects: tuple[str, ...] | None
    key: ApiKey | None = None
    trace: SpanContext | None = None

    @staticmethod
    def system(actor: str = "manager", owner: Owner | None = None) -> Scope:
        """Scope of one of the manager's loops, for all projects. ``owner``: owner of what it
        creates for a user."""
        return Scope(actor, owner or Owner(actor), Role.ADMIN, None)

    @staticmethod
    def all(key: ApiKey) -> Scope:
        """Scope of an administrator or auditor, for all projects."""
        return Scope(_actor(key), key.owner, role=key.role, projects=None, key=key)

    @staticmethod
    def of(key: ApiKey) -> Scope:
        if key.role in PLATFORM_ROLES:
            return Scope.all(key)
        return Scope(_actor(key), key.owner, role=key.role, projects=(key.owner.project,), key=key)

    def require_all(self, what: str) -> None:
        """Require access to all projects, for resources that belong to none. Raises ``NotFound`` if
        the scope is limited to some projects."""
        if self.projects is not None:
            raise NotFound(
                f"{what} of the platform are visible to administrators and auditors only"
            )

    @property
    def user(self) -> str | None:
        """User whose resources the call may change in ``projects``; None means everyone's."""
        return self.owner.user if self.role in (Role.VIEWER, Role.MEMBER) else None

    def isolating(self, isolated: bool) -> Scope:
        """Scope for a program that another person has written. If ``isolated``, whatever it creates
        runs isolated, even for an administrator."""
        if not isolated or self.owner.isolated:
            return self
        return replace(self, owner=replace(self.owner, isolated=True))

    def reads(self, project: str) -> bool:
        return self.projects is None or project in self.projects

    def controls(self, user: str, project: str) -> bool:
        """Whether the call may change workloads of ``user`` in ``project``. Sessions have a rule
        for each action: ``session_access``."""
        relation = relation_of(self.owner.user, self.projects, user, project)
        return Action.CHANGE in MAY[self.role][relation]


def _actor(key: ApiKey) -> str:
    return f"key:{key.name}" if key.console is None else f"user:{key.name}"


# Scope of a request to an open route: it sees no project.
ANONYMOUS = Scope("anonymous", Owner("anonymous"), Role.VIEWER, ())
