"""The access rule for sessions: the intended table, and the properties that any table must have."""

from __future__ import annotations

import itertools

import pytest

from moorage.common.model.roles import Role
from moorage.common.model.runtimes import RUNTIMES, offered_runtimes
from moorage.common.model.session_access import (
    INSIDE,
    NEEDS,
    Action,
    Caller,
    Relation,
    SessionKind,
    Subject,
    Verdict,
    decide,
    kind_of,
    refused_at_once,
    relation_of,
)

SEE = {Action.SEE}
OUTSIDE = {Action.SEE, Action.LOGS, Action.TOKENS, Action.CHANGE}
ALL = set(Action)
MEANT: dict[tuple[Role, Relation, SessionKind], set[Action]] = {
    (Role.VIEWER, Relation.OWN, SessionKind.ISOLATED): SEE,
    (Role.VIEWER, Relation.OWN, SessionKind.AS_AGENT): SEE,
    (Role.VIEWER, Relation.PROJECT, SessionKind.ISOLATED): SEE,
    (Role.VIEWER, Relation.PROJECT, SessionKind.AS_AGENT): SEE,
    (Role.MEMBER, Relation.OWN, SessionKind.ISOLATED): ALL,
    (Role.MEMBER, Relation.OWN, SessionKind.AS_AGENT): OUTSIDE,
    (Role.MEMBER, Relation.PROJECT, SessionKind.ISOLATED): SEE,
    (Role.MEMBER, Relation.PROJECT, SessionKind.AS_AGENT): SEE,
    (Role.PROJECT_ADMIN, Relation.OWN, SessionKind.ISOLATED): ALL,
    (Role.PROJECT_ADMIN, Relation.OWN, SessionKind.AS_AGENT): OUTSIDE,
    (Role.PROJECT_ADMIN, Relation.PROJECT, SessionKind.ISOLATED): ALL,
    (Role.PROJECT_ADMIN, Relation.PROJECT, SessionKind.AS_AGENT): OUTSIDE,
    (Role.AUDITOR, Relation.OWN, SessionKind.ISOLATED): SEE,
    (Role.AUDITOR, Relation.OWN, SessionKind.AS_AGENT): SEE,
    (Role.AUDITOR, Relation.PROJECT, SessionKind.ISOLATED): SEE,
    (Role.AUDITOR, Relation.PROJECT, SessionKind.AS_AGENT): SEE,
    (Role.ADMIN, Relation.OWN, SessionKind.ISOLATED): ALL,
    (Role.ADMIN, Relation.OWN, SessionKind.AS_AGENT): ALL,
    (Role.ADMIN, Relation.PROJECT, SessionKind.ISOLATED): ALL,
    (Role.ADMIN, Relation.PROJECT, SessionKind.AS_AGENT): ALL,
}
"""The rule's table, repeated so that a test fails if an entry is changed only there."""
EVERY = list(itertools.product(Role, Relation, SessionKind, Action))


def ask(
    role: Role,
    relation: Relation,
    kind: SessionKind,
    action: Action,
    *,
    scopes: set[str] | None = None,
) -> Verdict:
    owner = "ann" if relation is Relation.OWN else "bob"
    project = "speech" if relation is Relation.FOREIGN else "vision"
    return decide(Caller(role, "ann", ("vision",), scopes), Subject(owner, project, kind), action)


@pytest.mark.parametrize(("role", "relation", "kind"), MEANT)
def test_what_each_role_may(role: Role, relation: Relation, kind: SessionKind) -> None:
    allowed = {action for action in Action if ask(role, relation, kind, action) is Verdict.ALLOWED}
    assert allowed == MEANT[role, relation, kind]


def test_the_table_is_complete() -> None:
    assert MEANT.keys() == set(
        itertools.product(Role, [Relation.OWN, Relation.PROJECT], SessionKind)
    )


def test_what_is_foreign_looks_as_what_does_not_exist() -> None:
    for role, kind, action in itertools.product(Role, SessionKind, Action):
        verdict = ask(role, Relation.FOREIGN, kind, action)
        assert verdict is decide(Caller(role, "ann", ("vision",)), None, action)
        assert verdict in (Verdict.UNKNOWN, Verdict.ROLE)
        # Checked before anything is looked up, so that the answer does not depend on it.
        assert (verdict is Verdict.ROLE) == (refused_at_once(role, None, action) is Verdict.ROLE)


def test_inside_of_what_runs_as_the_agent_is_for_administrators() -> None:
    for role, relation, action in itertools.product(Role, Relation, INSIDE):
        is_allowed = ask(role, relation, SessionKind.AS_AGENT, action) is Verdict.ALLOWED
        assert is_allowed == (role is Role.ADMIN and relation is not Relation.FOREIGN)


def test_more_power_never_forbids() -> None:
    """The power of roles in a project, of relations and of kinds."""

    def allowed(role: Role, relation: Relation, kind: SessionKind) -> set[Action]:
        return {action for action in Action if ask(role, relation, kind, action) is Verdict.ALLOWED}

    roles = (Role.VIEWER, Role.MEMBER, Role.PROJECT_ADMIN, Role.ADMIN)
    relations = (Relation.FOREIGN, Relation.PROJECT, Relation.OWN)
    for role, kind in itertools.product(Role, SessionKind):
        for less, more in itertools.pairwise(relations):
            assert allowed(role, less, kind) <= allowed(role, more, kind)
    for relation, kind in itertools.product(Relation, SessionKind):
        for lower, higher in itertools.pairwise(roles):
            assert allowed(lower, relation, kind) <= allowed(higher, relation, kind)
    for role, relation in itertools.product(Role, Relation):
        assert allowed(role, relation, SessionKind.AS_AGENT) <= allowed(
            role, relation, SessionKind.ISOLATED
        )


def test_scopes_only_take_away() -> None:
    for role, relation, kind, action in EVERY:
        assert ask(role, relation, kind, action, scopes={NEEDS[action]}) is ask(
            role, relation, kind, action
        )
        for scopes in ({"models:use"}, {"admin"}, set[str]()):
            assert ask(role, relation, kind, action, scopes=scopes) is Verdict.SCOPES
    reading = {action for action in Action if NEEDS[action] == "sessions:read"}
    assert reading == {Action.SEE, Action.LOGS, Action.TOKENS, Action.RESULTS}


def test_who_reads_all_projects_knows_every_session() -> None:
    assert relation_of("root", None, "ann", "vision") is Relation.PROJECT
    assert relation_of("ann", None, "ann", "vision") is Relation.OWN
    assert relation_of("ann", (), "ann", "vision") is Relation.FOREIGN


def test_refusals_are_not_found_only_for_what_must_not_be_known() -> None:
    assert {verdict: verdict.http for verdict in Verdict} == {
        Verdict.ALLOWED: 200,
        Verdict.SCOPES: 403,
        Verdict.ROLE: 403,
        Verdict.UNKNOWN: 404,
        Verdict.OTHERS: 403,
        Verdict.AS_AGENT: 403,
    }


def test_kinds_of_sessions() -> None:
    """Decided by runtime, including those from plug-ins: nothing is known about those, so they are
    treated as processes."""
    as_agent = {
        runtime
        for runtime in (*offered_runtimes(RUNTIMES), "custom:mine")
        if kind_of(runtime, isolated=False) is SessionKind.AS_AGENT
    }
    assert as_agent == {"process", "celery", "custom:mine"}
    for runtime in (*offered_runtimes(RUNTIMES), "custom:mine"):
        assert kind_of(runtime, isolated=True) is SessionKind.ISOLATED
