"""Admission of sessions to resource groups: the statements' decisions, compared with the rule in
Python."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product

from moorage.common.model.group_options import GroupOptions
from moorage.common.model.status import ORDINARY, SessionType
from moorage.manager.identity.limits import admits
from moorage.manager.store import Store
from moorage.manager.store.database.queries import fragment

PROJECTS = (None, [], ["vision"], ["speech", "vision"], ["ann"])
USERS = (None, [], ["ann"], ["bob", "ann"], ["vision"])
TYPES = (None, [SessionType.BATCH], [SessionType.SYSTEM], list(SessionType))
RETIRED = (None, datetime(2026, 1, 1, tzinfo=UTC))
OWNERS = ("ann", "bob")

Case = tuple[GroupOptions, datetime | None, str, str, SessionType]
# As in the statements that create sessions: `g` is the group, `i` the session.
QUERY = f"""
SELECT
{fragment("group_admits")} AS admits,
{fragment("group_allows_type")} AS allows,
{fragment("group_types")} AS types
FROM unnest($1::jsonb[], $2::timestamptz[]) WITH ORDINALITY AS g(options, retired_at, n)
JOIN unnest($3::text[], $4::text[], $5::text[]) WITH ORDINALITY AS i(project, owner, type, n) USING (n)
ORDER BY n
"""


def cases() -> Iterator[Case]:
    for projects, users, types in product(PROJECTS, USERS, TYPES):
        options = GroupOptions(projects=projects, users=users, session_types=types)
        yield from product([options], RETIRED, ("vision", "speech"), OWNERS, SessionType)


async def test_the_statements_admit_whom_the_rule_admits(store: Store) -> None:
    table = list(cases())
    rows = await store.database.fetch(
        QUERY,
        [options.model_dump(mode="json") for options, *_ in table],
        [retired for _, retired, *_ in table],
        [project for _, _, project, _, _ in table],
        [owner for _, _, _, owner, _ in table],
        [kind for *_, kind in table],
    )
    assert len(rows) == len(table) == 3200

    for (options, retired, project, owner, kind), row in zip(table, rows, strict=True):
        case = (
            f"{options.projects} {options.users} {options.session_types} {project} {owner} {kind}"
        )
        types = ORDINARY if options.session_types is None else frozenset(options.session_types)
        assert row["admits"] is (retired is None and admits(options, {project}, owner)), case
        assert row["allows"] is (kind in types), case
        assert set(row["types"]) == types, case

    assert {row["admits"] for row in rows} == {row["allows"] for row in rows} == {True, False}


async def test_absent_options_restrict_nobody(store: Store) -> None:
    """A group created before an option existed has no key for it."""
    columns = [{}, {"projects": None}], [None, None], ["vision"] * 2, ["ann"] * 2, ["batch"] * 2
    rows = await store.database.fetch(QUERY, *columns)
    assert [(row["admits"], row["allows"]) for row in rows] == [(True, True)] * 2
