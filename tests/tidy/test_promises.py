"""Security promises name existing tests, and the table of the session rule matches the code."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from moorage.common.model.roles import Role
from moorage.common.model.session_access import INSIDE, MAY, Action, Relation

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
MODEL = ROOT / "docs" / "threat-model.md"
_TEST = re.compile(r"`(tests/[a-z0-9_/]+\.py)(?:::(test_\w+))?`")
COLUMNS = [
    (Role.VIEWER, Relation.PROJECT),
    (Role.MEMBER, Relation.OWN),
    (Role.MEMBER, Relation.PROJECT),
    (Role.PROJECT_ADMIN, Relation.PROJECT),
    (Role.AUDITOR, Relation.PROJECT),
    (Role.ADMIN, Relation.PROJECT),
]
ATTACKERS = {
    *("A tenant inside a kernel", "A member", "A project admin", "An anonymous network"),
    *("A hostile agent node", "A hostile proxy", "A writer of etcd", "A writer of Postgres"),
    "An operator of a site (HPC)",
}


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


def section(page: Path, title: str) -> str:
    parts = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[title]


def rows(text: str) -> list[list[str]]:
    """The rows of a section's only table, without its header."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("page", [PAGE, MODEL], ids=lambda page: page.name)
def test_tests_that_are_named_exist(page: Path) -> None:
    for file, name in _TEST.findall(page.read_text()):
        assert (ROOT / file).is_file(), file
        assert not name or name in names_in(file), f"{file} has no {name}"


def test_every_promise_is_tried() -> None:
    table = rows(section(PAGE, "What is promised, to whom, and what tries it"))
    assert len(table) > 20
    for promise, to, kept_by, tried_by in table:
        assert promise
        assert to
        assert kept_by
        assert all(name for _, name in _TEST.findall(tried_by))
        assert _TEST.findall(tried_by), f"what tries {promise!r}?"


def test_the_table_of_sessions_is_the_rule() -> None:
    found = {}
    for what, *cells in rows(section(PAGE, "The rule of sessions")):
        action = Action(what.split("`")[1])
        for (role, relation), cell in zip(COLUMNS, cells, strict=True):
            is_limited = action in INSIDE and role is not Role.ADMIN
            allowed = "yes ¹" if is_limited else "yes"
            assert cell == (allowed if action in MAY[role][relation] else "–"), (
                action,
                role,
                relation,
            )

        found[action] = cells

    assert found.keys() == set(Action)


def test_every_attacker_has_promises_and_limits() -> None:
    parts = re.split(r"^## (.+)$", MODEL.read_text(), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert sections.keys() == ATTACKERS
    for name, text in sections.items():
        assert "**Promised.**" in text, name
        assert "**Not promised.**" in text, name
