"""Schema functions that read JSON values: a value of the wrong type becomes NULL or empty."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moorage.manager.store import Store

UUID = "0193a1b2-0000-7000-8000-000000000001"
ODD: tuple[Any, ...] = (None, "moons", "", "1", True, [], [1], {}, {"a": 1}, "\ud7ff")
HUGE = ("1e300", "-1e300", "1e12", "99999999999999999999")

CASES: dict[str, list[tuple[str, Any]]] = {
    "as_number": [("1", 1.0), ("-2.5", -2.5), ("0", 0.0), ("1e11", 1e11)],
    "as_integer": [
        ("1", 1),
        ("-3", -3),
        ("2.0", 2),
        ("2.5", None),
        ("1e15", 10**15),
        ("1e16", None),
    ],
    "as_boolean": [("true", True), ("false", False)],
    "as_uuid": [
        (json.dumps(UUID), UUID),
        (json.dumps(UUID[:-1]), None),
        (json.dumps(UUID + "\n"), None),
    ],
    "as_array": [("[1, 2]", [1, 2])],
    "as_object": [('{"a": 1}', {"a": 1})],
    "as_document": [(json.dumps('{"b": 1, "a": 2}'), {"b": 1, "a": 2}), (json.dumps("{"), None)],
}
EMPTY: dict[str, Any] = {"as_array": [], "as_object": {}}


@pytest.mark.parametrize("function", CASES)
async def test_what_is_of_the_type_is_the_value(store: Store, function: str) -> None:
    for stored, expected in CASES[function]:
        assert await read(store, function, stored) == expected, stored


@pytest.mark.parametrize("function", sorted(CASES.keys() - {"as_document"}))
async def test_what_is_not_of_the_type_is_none(store: Store, function: str) -> None:
    known = {"as_number": (), "as_integer": (), "as_boolean": (True,), "as_uuid": ()}
    kinds = {"as_array": list, "as_object": dict}
    for value in ODD:
        if value in known.get(function, ()) or isinstance(value, kinds.get(function, ())):
            continue
        assert await read(store, function, json.dumps(value)) == EMPTY.get(function), value

    for stored in HUGE if function not in {"as_integer"} else HUGE[:2]:
        assert await read(store, function, stored) == EMPTY.get(function), stored

    [row] = await store.database.fetch(f"SELECT {function}(NULL) AS value")
    assert row["value"] == EMPTY.get(function)


async def test_seconds_of_any_number_are_a_time(store: Store) -> None:
    """The type must also be known to Python, because a row with an unknown type could not be read
    either."""
    rows = await store.database.fetch(
        "SELECT now() + make_interval(secs => as_number(n)) AS at FROM unnest($1::jsonb[]) n",
        [-1e10, 1e10, 1e11, 1e12, 1e300],
    )
    assert [row["at"] is None for row in rows] == [False, False, False, True, True]


async def test_sums_of_any_integers_are_integers(store: Store) -> None:
    [row] = await store.database.fetch(
        "SELECT sum(as_integer(n))::bigint AS total FROM unnest($1::jsonb[]) n",
        [10**15] * 5000 + [10**18],
    )
    assert row["total"] == 5 * 10**18


@pytest.mark.parametrize("function", sorted(CASES.keys() - {"as_document"}))
async def test_postgres_inlines_it(store: Store, function: str) -> None:
    """A call per row costs more than the statement around it."""
    [row] = await store.database.fetch(
        f"EXPLAIN (VERBOSE, FORMAT JSON) SELECT {function}(spec -> 'timeout_s') AS value FROM sessions"
    )
    plan = row["QUERY PLAN"]
    assert f"{function}(" not in (plan if isinstance(plan, str) else json.dumps(plan))


async def read(store: Store, function: str, stored: str) -> Any:
    [row] = await store.database.fetch(f"SELECT {function}($1::text::jsonb) AS value", stored)
    return str(row["value"]) if function == "as_uuid" and row["value"] is not None else row["value"]
