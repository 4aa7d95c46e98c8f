"""Completeness of the status sets: ``common/model/status.py`` defines them, for every language."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest

import moorage
from moorage.cli.output import STYLES
from moorage.common.model import status as statuses
from moorage.common.model.status import (
    RESULT_OF,
    TERMINAL,
    AgentStatus,
    EndpointStatus,
    Outcome,
    Result,
    Status,
)
from moorage.manager.api.sessions.handlers import ListedStatus
from moorage.manager.store.database.queries import SETS, SQL, expand, statements_of

SRC = Path(moorage.__file__).parent
NAMED = {
    name: value
    for name, value in vars(statuses).items()
    if isinstance(value, frozenset) and all(isinstance(member, Status) for member in value)
}

# Lists in statements that are not a set in the model, because only this statement needs them.
OWN_LISTS = {
    (
        "check_kernels",
        ("TERMINATED", "ERROR"),
    ): "a session that took part in another run never CANCELLED",
    (
        "check_stuck",
        ("SCHEDULED", "PREPARING", "CREATING"),
    ): "QUEUED may be unlimited: the next line",
    ("check_stuck", ("PREPARING", "CREATING")): "jobs, whose time passes at the site",
    ("reuse_succeed", ("TERMINATED", "CANCELLED")): "an ERROR passes on",
}
_LIST = re.compile(r"\bIN \(((?::[A-Z_]+|'[A-Z]+')(?:, (?::[A-Z_]+|'[A-Z]+'))*)\)")
_COMPARED = re.compile(r"\b(?:\w+_)?status\s*(?:=|<>)\s*'([A-Z]+)'")


def written_lists(text: str) -> Iterator[tuple[str, ...]]:
    """The status lists in a statement that match no set, or that repeat one next to another."""
    for match in _LIST.finditer(text):
        members = tuple(re.findall(r"'([A-Z]+)'", match[1]))
        is_list = len(members) > 1 and ":" not in match[1]
        repeats = any(value <= set(members) for value in NAMED.values())
        if (is_list or repeats) and all(member in set(Status) for member in members):
            yield members


def statements() -> dict[str, str]:
    files = sorted((SRC / "manager" / "store").glob("*/sql/**/*.sql"))
    found = {name: text for file in files for name, text in statements_of(file).items()}
    assert len(found) > 300
    return found


def test_statements_name_the_sets() -> None:
    found = {
        (name, members) for name, text in statements().items() for members in written_lists(text)
    }
    assert found == OWN_LISTS.keys()


def test_a_list_that_repeats_a_set_is_found() -> None:
    assert list(written_lists("k.status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')")) == [
        ("TERMINATED", "CANCELLED", "ERROR")
    ]
    assert list(written_lists("k.status IN ('PENDING', 'QUEUED', :TERMINAL)")) == [
        ("PENDING", "QUEUED")
    ]
    assert list(written_lists("k.status NOT IN ('PENDING', :TERMINAL, 'TERMINATING')")) == []
    assert list(written_lists("k.observed IN ('EXITED', 'GONE')")) == []


def test_statements_compare_with_statuses_that_exist() -> None:
    known = {*Status, *AgentStatus}
    for name, text in SQL.items():
        assert set(_COMPARED.findall(text)) <= known, name


def test_sets_become_literals() -> None:
    types = {"ATTENDED": statuses.ATTENDED, "ORDINARY": statuses.ORDINARY}
    assert NAMED | types == SETS
    assert expand("status IN (:TERMINAL)") == "status IN ('TERMINATED', 'CANCELLED', 'ERROR')"
    assert expand("type IN (:ATTENDED)") == "type IN ('interactive', 'system')"
    assert expand("$1::TEXT[]") == "$1::TEXT[]"
    with pytest.raises(KeyError):
        expand("status IN (:TERMINALS)")


def test_every_status_is_before_running_running_stopping_or_terminal() -> None:
    parts = [statuses.BEFORE_RUNNING, {Status.RUNNING}, {Status.TERMINATING}, TERMINAL]
    assert sorted(member for part in parts for member in part) == sorted(Status)
    assert set(Status) - TERMINAL == statuses.LIVE


def _members(node: ast.expr) -> set[Status]:
    """The statuses in a literal set, list or tuple, including those from sets that it names."""
    found: set[Status] = set()
    for element in node.elts if isinstance(node, ast.Set | ast.List | ast.Tuple) else ():
        name = ast.unparse(element)
        if name.startswith("Status.") and name.removeprefix("Status.") in Status.__members__:
            found.add(Status[name.removeprefix("Status.")])
        elif isinstance(element, ast.Starred) and name.rpartition(".")[2].lstrip("*") in NAMED:
            found |= NAMED[name.rpartition(".")[2].lstrip("*")]
    return found


def repeated_sets(text: str) -> list[str]:
    """Python collections that have exactly the members of a named set."""
    names = {members: name for name, members in NAMED.items()}
    return [
        f"line {node.lineno}: {names[frozenset(members)]}"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Set | ast.List | ast.Tuple)
        and (members := _members(node))
        and frozenset(members) in names
        and len(members) == len(node.elts) + sum(_extra(element) for element in node.elts)
    ]


def _extra(element: ast.expr) -> int:
    """How many members beyond one a starred set has."""
    name = ast.unparse(element).rpartition(".")[2].lstrip("*")
    return len(NAMED[name]) - 1 if isinstance(element, ast.Starred) and name in NAMED else 0


def test_python_names_the_sets() -> None:
    source = [file for file in SRC.rglob("*.py") if "pb" not in file.parts]
    found = [
        f"{file.relative_to(SRC)}: {repeated}"
        for file in source
        if file.name != "status.py" and "Status." in (text := file.read_text())
        for repeated in repeated_sets(text)
    ]
    assert found == []


def test_a_repeated_set_is_found() -> None:
    assert repeated_sets("x = {Status.TERMINATED, Status.ERROR, Status.CANCELLED}") == [
        "line 1: TERMINAL"
    ]
    assert repeated_sets("x in (Status.PENDING, *STARTING)") == ["line 1: BEFORE_RUNNING"]
    assert repeated_sets("x = (*STARTING, AgentStatus.SUSPECT)") == []
    assert repeated_sets("x = {Status.TERMINATED, Status.ERROR}") == []


def test_the_command_line_has_a_style_for_every_status() -> None:
    kinds: tuple[type[StrEnum], ...] = (Status, EndpointStatus, AgentStatus, Outcome, Result)
    assert {str(member) for kind in kinds for member in kind} == {str(member) for member in STYLES}


def test_sessions_are_listed_by_every_status_and_outcome() -> None:
    assert {str(member) for member in ListedStatus} == {*Status, *Outcome}
    assert set(RESULT_OF) == set(Outcome)
