"""The plan for a rolling upgrade: its order, and unsafe cases."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.manager.store.schema.baseline import RELEASE_BEFORE
from moorage.manager.store.schema.migration_locks import Migration, TableLock
from moorage.server.upgrade_plan import UpgradePlan, oldest_beside, plan_lines, plan_upgrade

DAY_S = 86_400.0
NOW = 2e9
OLD = "0.3.9"
NEW = "0.4.0"
ADDS = Migration("0101", "Names of things", "expand", (TableLock("sessions", "reads and writes"),))
TAKES = Migration(
    "0102", "The former names go", "contract", (TableLock("sessions", "reads and writes"),)
)
RUNS: dict[str, Any] = {
    "revision": "0100",
    "now": NOW,
    "backup_at": NOW - 3600,
    "managers": [
        {"link": "198.51.100.1:8701", "version": OLD, "leads": True, "proxies": ["edge-1"]},
        {"link": "198.51.100.2:8701", "version": OLD, "leads": False, "proxies": ["edge-2"]},
        {"link": "198.51.100.3:8701", "version": OLD, "leads": False, "proxies": []},
    ],
    "agents": [
        {"id": "node-1", "version": OLD, "connected": True, "kernels": 2},
        {"id": "node-2", "version": OLD, "connected": True, "kernels": 1},
    ],
    "rows": {"sessions": 5000, "agents": 2},
    "transactions": [],
}


def plan(
    facts: dict[str, Any],
    migrations: Sequence[Migration] = (ADDS,),
    proxies: dict[str, str] | None = None,
) -> UpgradePlan:
    return plan_upgrade(
        facts, migrations, version=NEW, oldest_schema="0050", newest_revision="0102",
        compatible_since="0100",
        proxy_versions=proxies or {},
    )  # fmt: skip


def changed(path: str, value: Any) -> dict[str, Any]:
    """``path``: keys and indices, separated by dots."""
    facts = deepcopy(RUNS)
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place: Any = facts
    for part in way:
        place = place[part]
    place[last] = value
    return facts


def test_order() -> None:
    """The database, the standbys, the leader, the proxies, the agents."""
    steps = [(step.part, step.subjects, step.action.split()[0]) for step in plan(RUNS).steps]
    assert steps == [
        ("database", (), "back"),
        ("database", (), "migrate"),
        ("manager", ("198.51.100.2:8701",), "install"),
        ("manager", ("198.51.100.3:8701",), "install"),
        ("manager", ("198.51.100.1:8701",), "install"),
        ("proxy", ("edge-1",), "install,"),
        ("proxy", ("edge-2",), "install,"),
        ("agent", ("node-1", "node-2"), "install"),
    ]
    assert "resigns first" in plan(RUNS).steps[4].action
    assert "3 kernels keep running and are adopted" in plan(RUNS).steps[-1].effect


def test_text_names_commands_locks_and_what_is_noticed() -> None:
    text = "\n".join(plan_lines(plan(RUNS, [ADDS, TAKES])))
    for part in (
        "upgrade to 0.4.0, schema 0100 → 0102",
        "of 0.3 and later work beside it",
        "0101 expand   Names of things; locks: sessions (reads and writes)",
        "0102 contract The former names go",
        "moorage db backup /backups/moorage-before-0.4.0.dump",
        "systemctl restart moorage-manager",
        "3. manager 198.51.100.2:8701, 0.3.9 → 0.4.0",
        "6. proxy edge-1, unknown → 0.4.0",
    ):
        assert part in text, text


def test_nothing_to_do() -> None:
    facts = deepcopy(RUNS)
    for one in facts["managers"] + facts["agents"]:
        one["version"] = NEW
    done = plan(facts, [], {"edge-1": NEW, "edge-2": NEW})
    assert (done.steps, done.problems) == ((), ())
    assert list(plan_lines(done))[-1].startswith("nothing to do")


def test_managers_are_restarted_for_pending_migrations_alone() -> None:
    facts = deepcopy(RUNS)
    for one in facts["managers"] + facts["agents"]:
        one["version"] = NEW

    steps = plan(facts, [ADDS], {"edge-1": NEW, "edge-2": NEW}).steps
    assert [step.part for step in steps] == [
        "database",
        "database",
        "manager",
        "manager",
        "manager",
    ]


# Facts, migrations, and what the plan shows: status, name, part of the detail, and part of the next
# step.
CASES: list[tuple[dict[str, Any], Sequence[Migration], str, str, str, str]] = [
    (changed("revision", None), (), "fail", "schema", "empty", "moorage manager"),
    (changed("revision", "0100:unprepared"), (), "fail", "schema", "not finished", "db restore"),
    (
        changed("revision", "0103"),
        (),
        "fail",
        "schema",
        "newer than 0102",
        "of the release that created it",
    ),
    (
        {"revision": "0049"},
        (ADDS,),
        "fail",
        "schema",
        "0049 is older than 0050",
        f"commit {RELEASE_BEFORE} first",
    ),
    (
        changed("managers.1.version", "0.5.0"),
        (),
        "fail",
        "managers",
        "newer than 0.4.0",
        "newest release",
    ),
    (
        changed("managers.1.version", "0.2.1"),
        (),
        "fail",
        "managers",
        "more than one",
        "to 0.3 first",
    ),
    (
        changed("managers.1.version", "0.2.1"),
        (TAKES,),
        "fail",
        "managers",
        "0102 removes",
        "stop all",
    ),
    (changed("agents.0.version", "0.2.1"), (), "warn", "agents", "more than one", "to 0.3 first"),
    (changed("agents.0.version", "0.5.0"), (), "warn", "agents", "newer", "newest release"),
    (
        changed("agents.0.connected", False),
        (),
        "warn",
        "agents",
        "not connected: node-1",
        "before it starts",
    ),
    (
        changed("managers", RUNS["managers"][:1]),
        (),
        "warn",
        "managers",
        "there is only one",
        "second manager",
    ),
    (
        changed("managers", RUNS["managers"][:1]),
        (),
        "warn",
        "proxies",
        "there is only one",
        "proxy.workers",
    ),
    (changed("backup_at", None), (ADDS,), "warn", "backup", "none is recorded", "step 1"),
    (changed("backup_at", NOW - 3 * DAY_S), (ADDS,), "warn", "backup", "3 days old", "step 1"),
    (RUNS, (ADDS,), "ok", "way back", "cannot become leader", "db downgrade"),
    (changed("revision", "0099"), (ADDS,), "warn", "way back", "cannot start again", "db restore"),
    (
        changed("rows.sessions", 12_000_000),
        (ADDS,),
        "warn",
        "locks",
        "sessions (12,000,000 rows)",
        "quiet",
    ),
    (
        changed("transactions", [{"pid": 7, "user": "ann", "age_s": 90.0}]),
        (ADDS,),
        "warn",
        "locks",
        "ann has been open for 90 s",
        "pg_terminate_backend(7)",
    ),
]


@pytest.mark.parametrize(("facts", "migrations", "status", "name", "detail", "next_step"), CASES)
def test_problems(
    facts: dict[str, Any],
    migrations: Sequence[Migration],
    status: str,
    name: str,
    detail: str,
    next_step: str,
) -> None:
    made = plan(facts, migrations)
    [found] = [one for one in made.problems if one.name == name and detail in one.detail]
    assert (found.status, next_step in found.next_step) == (status, True), found
    assert (status == "fail") == ("not safe" in "\n".join(plan_lines(made)))


@pytest.mark.parametrize(
    ("version", "oldest"), [("0.4.0", "0.3"), ("1.0.2", "1.0"), ("2.11.0", "2.10"), ("dev", "dev")]
)
def test_oldest_beside(version: str, oldest: str) -> None:
    assert oldest_beside(version) == oldest


VERSIONS = st.sampled_from([OLD, NEW])


@given(
    managers=st.lists(st.tuples(VERSIONS, st.booleans()), min_size=1, max_size=5),
    agents=st.lists(VERSIONS, max_size=5),
    migrations=st.sampled_from([(), (ADDS,), (ADDS, TAKES)]),
)
def test_every_old_part_is_upgraded_once_and_in_order(
    managers: list[tuple[str, bool]], agents: list[str], migrations: Sequence[Migration]
) -> None:
    leader = next((number for number, (_, leads) in enumerate(managers) if leads), None)
    facts = RUNS | {
        "managers": [
            {
                "link": f"198.51.100.{n}:8701",
                "version": version,
                "leads": n == leader,
                "proxies": ["edge"],
            }
            for n, (version, _) in enumerate(managers)
        ],
        "agents": [
            {"id": f"node-{n}", "version": version, "connected": True, "kernels": 0}
            for n, version in enumerate(agents)
        ],
    }
    steps = plan(facts, migrations).steps
    parts = [step.part for step in steps]
    assert parts == sorted(parts, key=["database", "manager", "proxy", "agent"].index)
    restarted = [link for step in steps if step.part == "manager" for link in step.subjects]
    old = {m["link"] for m in facts["managers"] if migrations or m["version"] == OLD}
    assert sorted(restarted) == sorted(old)
    if leader is not None and (link := facts["managers"][leader]["link"]) in old:
        assert restarted[-1] == link

    upgraded = {name for step in steps if step.part == "agent" for name in step.subjects}
    assert upgraded == {one["id"] for one in facts["agents"] if one["version"] == OLD}
