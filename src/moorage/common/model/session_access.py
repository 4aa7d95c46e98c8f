"""Access to sessions: what a caller may do with a session, by the caller's role, its relation to
the session and the session's kind. Pure.

This single rule applies to every door: the manager's REST API with its WebSockets, service ports on
the proxies, SSH and SFTP. Commands and the MCP server's tools use one of these. docs/security.md
shows the rule as a table, and tests/store/test_doors.py tests every door.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from moorage.common.model.roles import KeyScope, Role
from moorage.common.model.runtimes import traits_of


class Action(StrEnum):
    """What a caller does with a session."""

    SEE = "see"
    """Read what its project may know: its specification, status, history, usage and ports."""
    LOGS = "logs"
    """Read its log and its last output."""
    TOKENS = "tokens"
    """List the access tokens of its ports."""
    CHANGE = "change"
    """Stop, extend, reload, rename, label and remove it, revoke access tokens, delete its
    workspace."""
    EXEC = "exec"
    """Run a command or a terminal in it, connect from it to an address, or copy files."""
    CODE = "code"
    """Run code in it, send input to a run, interrupt it, or follow it over a WebSocket."""
    RESULTS = "results"
    """Read the output of code runs."""
    FILES = "files"
    """Read and write its files over SFTP."""
    PORTS = "ports"
    """Open a service port, or create an access token that opens it for whoever has the token."""


class Relation(StrEnum):
    """A caller's relation to a session."""

    OWN = "own"
    """The caller started it, in a project that the caller may read."""
    PROJECT = "project"
    """Another user started it, in a project that the caller may read."""
    FOREIGN = "foreign"
    """It belongs to a project that the caller may not read."""


class SessionKind(StrEnum):
    """Kind of a session: the user that its programs run as."""

    ISOLATED = "isolated"
    """A separate user, in a container or as a job."""
    AS_AGENT = "as-agent"
    """The agent's user, with all that user's rights, because an administrator started it."""


class Verdict(StrEnum):
    """Whether a caller may perform an action, and if not, why."""

    ALLOWED = "allowed"
    SCOPES = "scopes"
    """The key lacks the scope, regardless of the session."""
    ROLE = "role"
    """The role never allows the action, regardless of the session."""
    UNKNOWN = "unknown"
    """The caller may not know that the session exists."""
    OTHERS = "others"
    """It belongs to another user."""
    AS_AGENT = "as-agent"
    """Its programs run as the agent's user, and the caller is not an administrator."""

    @property
    def http(self) -> int:
        """Status of the response; 200 if the action is allowed."""
        return {Verdict.ALLOWED: 200, Verdict.UNKNOWN: 404}.get(self, 403)


_ALL = frozenset(Action)
_SEE = frozenset({Action.SEE})
_NONE = frozenset[Action]()
MAY: Mapping[Role, Mapping[Relation, frozenset[Action]]] = {
    Role.VIEWER: {Relation.OWN: _SEE, Relation.PROJECT: _SEE, Relation.FOREIGN: _NONE},
    Role.MEMBER: {Relation.OWN: _ALL, Relation.PROJECT: _SEE, Relation.FOREIGN: _NONE},
    Role.PROJECT_ADMIN: {Relation.OWN: _ALL, Relation.PROJECT: _ALL, Relation.FOREIGN: _NONE},
    Role.AUDITOR: {Relation.OWN: _SEE, Relation.PROJECT: _SEE, Relation.FOREIGN: _NONE},
    Role.ADMIN: {Relation.OWN: _ALL, Relation.PROJECT: _ALL, Relation.FOREIGN: _NONE},
}
"""Administrators and auditors read every project, so no session is foreign to them."""

INSIDE = frozenset({Action.EXEC, Action.CODE, Action.RESULTS, Action.FILES, Action.PORTS})
"""Actions with the rights of the session's programs. In a session of the kind ``AS_AGENT`` these
are the rights of the agent's user, so only administrators may perform them."""

_READS = frozenset({Action.SEE, Action.LOGS, Action.TOKENS, Action.RESULTS})
NEEDS: Mapping[Action, KeyScope] = {
    action: "sessions:read" if action in _READS else "sessions:write" for action in Action
}
"""The scope that a key with scopes must have."""


@dataclass(frozen=True, slots=True)
class Caller:
    """``projects``: the projects that the caller reads; None means all. ``scopes``: the scopes of
    its key; None means no restriction."""

    role: Role
    user: str
    projects: Collection[str] | None
    scopes: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """The session properties that the rule needs. They are sent along with the session's routes."""

    user: str
    project: str
    kind: SessionKind


def kind_of(runtime: str, *, isolated: bool) -> SessionKind:
    """Kind of a session. ``isolated``: whether it runs isolated because its user is not an
    administrator."""
    return (
        SessionKind.AS_AGENT
        if traits_of(runtime).isolated_as and not isolated
        else SessionKind.ISOLATED
    )


def relation_of(user: str, projects: Collection[str] | None, owner: str, project: str) -> Relation:
    """Relation of ``user``, who reads ``projects`` (None means all), to a session of ``owner`` in
    ``project``."""
    if projects is not None and project not in projects:
        return Relation.FOREIGN
    return Relation.OWN if user == owner else Relation.PROJECT


def refused_at_once(role: Role, scopes: Collection[str] | None, action: Action) -> Verdict | None:
    """The verdict on a caller that may not do this with any session; None if it depends on the
    session.

    It is reached before a session is looked up, so it reveals nothing about any session."""
    if scopes is not None and NEEDS[action] not in scopes:
        return Verdict.SCOPES
    return None if action in MAY[role][Relation.OWN] else Verdict.ROLE


def decide(caller: Caller, session: Subject | None, action: Action) -> Verdict:
    """Decide whether ``caller`` may do this with ``session``, which is None if it does not exist or
    the door does not know it."""
    if (refused := refused_at_once(caller.role, caller.scopes, action)) is not None:
        return refused
    if session is None:
        return Verdict.UNKNOWN

    relation = relation_of(caller.user, caller.projects, session.user, session.project)
    if relation is Relation.FOREIGN:
        return Verdict.UNKNOWN
    if action not in MAY[caller.role][relation]:
        return Verdict.OTHERS
    if session.kind is SessionKind.AS_AGENT and action in INSIDE and caller.role is not Role.ADMIN:
        return Verdict.AS_AGENT

    return Verdict.ALLOWED
