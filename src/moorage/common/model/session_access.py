"""Access to sessions: what a caller may do with one, by its role, its relation to it and its kind.
Pure.

The one rule of every door: the manager's REST API with its WebSockets, service ports at the
proxies, SSH and SFTP. Tools of the MCP server and commands go through one of these.
docs/security.md shows it as a table, and tests/store/test_doors.py asks every door.
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
    """Run a command in it, or a terminal, or connect from it to an address; copy files."""
    CODE = "code"
    """Run code in it, answer and interrupt a run, follow one over a WebSocket."""
    RESULTS = "results"
    """Read what runs of code have printed."""
    FILES = "files"
    """Read and write its files over SFTP."""
    PORTS = "ports"
    """Open a service port, or make an access token that opens it for whoever has the token."""


class Relation(StrEnum):
    """Of a caller to a session."""

    OWN = "own"
    """Its user started it, in a project that the caller reads."""
    PROJECT = "project"
    """Another user did."""
    FOREIGN = "foreign"
    """It is of a project that the caller does not read."""


class SessionKind(StrEnum):
    """Of a session: as whom its programs run."""

    ISOLATED = "isolated"
    """As a user of their own, in a container or as a job."""
    AS_AGENT = "as-agent"
    """As the user of the agent, with all that it may do: an administrator started it."""


class Verdict(StrEnum):
    """Whether a caller may do it, and if not, why not."""

    ALLOWED = "allowed"
    SCOPES = "scopes"
    """The key lacks the scope, whatever session it names."""
    ROLE = "role"
    """The role never allows it, whatever session is named."""
    UNKNOWN = "unknown"
    """The caller may not know that the session exists."""
    OTHERS = "others"
    """It belongs to another user."""
    AS_AGENT = "as-agent"
    """Its programs run as the user of the agent, and the caller is no administrator."""

    @property
    def http(self) -> int:
        """The status of the answer; 200 for what is allowed."""
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
"""Administrators and auditors read every project, so that to them no session is foreign."""

INSIDE = frozenset({Action.EXEC, Action.CODE, Action.RESULTS, Action.FILES, Action.PORTS})
"""What acts with the rights of the session's programs. In a session of the kind ``AS_AGENT`` these
are the rights of the agent's user, so it is for administrators only."""

_READS = frozenset({Action.SEE, Action.LOGS, Action.TOKENS, Action.RESULTS})
NEEDS: Mapping[Action, KeyScope] = {
    action: "sessions:read" if action in _READS else "sessions:write" for action in Action
}
"""The scope that a key with scopes must have."""


@dataclass(frozen=True, slots=True)
class Caller:
    """``projects``: those that it reads; None: all. ``scopes``: of its key; None: no
    restriction."""

    role: Role
    user: str
    projects: Collection[str] | None
    scopes: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """A session, as far as the rule goes. It travels with the routes of the session."""

    user: str
    project: str
    kind: SessionKind


def kind_of(runtime: str, *, isolated: bool) -> SessionKind:
    """``isolated``: of the session, whose user is no administrator."""
    return (
        SessionKind.AS_AGENT
        if traits_of(runtime).isolated_as and not isolated
        else SessionKind.ISOLATED
    )


def relation_of(user: str, projects: Collection[str] | None, owner: str, project: str) -> Relation:
    """Of ``user``, who reads ``projects`` (None: all), to what ``owner`` has in ``project``."""
    if projects is not None and project not in projects:
        return Relation.FOREIGN
    return Relation.OWN if user == owner else Relation.PROJECT


def refused_at_once(role: Role, scopes: Collection[str] | None, action: Action) -> Verdict | None:
    """The verdict on a caller that may do this with no session at all; None: it depends on the
    session. It is given before a session is looked up, and so tells nothing about one."""
    if scopes is not None and NEEDS[action] not in scopes:
        return Verdict.SCOPES
    return None if action in MAY[role][Relation.OWN] else Verdict.ROLE


def decide(caller: Caller, session: Subject | None, action: Action) -> Verdict:
    """Whether ``caller`` may do this with ``session``; None: there is none, or the door does not
    know it."""
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
