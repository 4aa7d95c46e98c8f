"""Checks of an installation: what each finds, and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest

from moorage.server.doctor.checks import CheckResult, exit_code
from moorage.server.doctor.cluster import check_cluster

DAY_S = 86_400.0
NOW = 2e9
GOOD: dict[str, Any] = {
    "now": NOW,
    "revision": "0100",
    "standbys": 2,
    "synchronous": True,
    "connections": 97,
    "price_gaps": [],
    "budget_doubts": [],
    "managers": [
        {
            "link": "198.51.100.1:8701",
            "version": "0.4.0",
            "clock_ahead_s": 0.2,
            "proxies": ["edge-1"],
            "dialout": [],
            "asks": {},
            "plain_senders": {},
        },
        {
            "link": "198.51.100.2:8701",
            "version": "0.4.0",
            "clock_ahead_s": -0.1,
            "proxies": ["edge-2"],
            "dialout": [],
            "asks": {},
            "plain_senders": {},
        },
    ],
    "agents": [
        {
            "id": "node-1",
            "address": "203.0.113.1",
            "version": "0.4.0",
            "connected": True,
            "undialed": {},
        },
        {
            "id": "node-2",
            "address": "203.0.113.2",
            "version": "0.3.9",
            "connected": True,
            "undialed": {},
        },
    ],
    "certificates": [{"kind": "agent", "name": "node-1", "until": NOW + 60 * DAY_S}],
    "backup_at": NOW - 3600,
    "tested_at": NOW - 30 * DAY_S,
}


def check(
    facts: dict[str, Any], *, embedded: bool = False, hosts: Sequence[str] = ("db-1", "db-2")
) -> list[CheckResult]:
    return check_cluster(facts, version="0.4.0", revision="0100", embedded=embedded, hosts=hosts)


def changed(path: str, value: Any) -> dict[str, Any]:
    """``path``: keys and indices, separated by dots."""
    facts = deepcopy(GOOD)
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place: Any = facts
    for part in way:
        place = place[part]
    place[last] = value
    return facts


def test_a_good_installation_passes_every_check() -> None:
    results = check(GOOD)
    assert [result.status for result in results] == ["ok"] * 9
    assert all(not result.next_step for result in results)


CASES: list[tuple[str, Any, str, str, str, str]] = [
    ("managers", [], "fail", "managers", "none", "moorage manager"),
    (
        "managers",
        GOOD["managers"][:1],
        "warn",
        "managers",
        "one, at 198.51.100.1",
        "another machine",
    ),
    (
        "managers.1.link",
        "198.51.100.1:9701",
        "warn",
        "managers",
        "all on 198.51.100.1",
        "another machine",
    ),
    ("managers.1.proxies", [], "warn", "proxies", "one, edge-1", "DNS or a load balancer"),
    ("managers.1.proxies", ["edge-1"], "warn", "proxies", "one, edge-1", "another proxy"),
    ("standbys", 0, "warn", "Postgres", "no standby", "streaming standby"),
    ("connections", 79, "warn", "Postgres", "79 connections for 2 managers", "max_connections"),
    ("backup_at", None, "fail", "backup", "no backup has been taken", "moorage db backup"),
    ("backup_at", NOW - 2 * DAY_S, "warn", "backup", "2 days old", "each day"),
    ("backup_at", NOW - 9 * DAY_S, "fail", "backup", "9 days old", "each day"),
    ("tested_at", None, "warn", "restore", "no backup has ever been tested", "moorage db verify"),
    ("tested_at", NOW - 100 * DAY_S, "warn", "restore", "tested 100 days ago", "moorage db verify"),
    (
        "certificates.0.until",
        NOW - 1,
        "fail",
        "certificates",
        "expired: agent node-1",
        "join again",
    ),
    (
        "certificates.0.until",
        NOW + DAY_S,
        "warn",
        "certificates",
        "overdue: agent node-1",
        "find out why",
    ),
    (
        "managers.1.clock_ahead_s",
        7.0,
        "warn",
        "clocks",
        "198.51.100.2:8701 differs from Postgres by +7.0",
        "ntp",
    ),
    ("managers.1.clock_ahead_s", -400.0, "fail", "clocks", "-400.0 s", "ntp"),
    (
        "managers.1.version",
        "0.3.0",
        "warn",
        "versions",
        "managers of other versions than 0.4.0",
        "upgrade",
    ),
    (
        "agents.1.version",
        "0.2.0",
        "warn",
        "versions",
        "agents with incompatible versions for 0.4.0: node-2",
        "docs/upgrades.md",
    ),
    (
        "revision",
        "0101",
        "warn",
        "schema",
        "schema 0101, this release has 0100",
        "upgrade this machine",
    ),
    ("revision", "0099", "warn", "schema", "schema 0099", "migrates"),
    ("agents", [], "fail", "agents", "none", "agent join"),
    ("agents", GOOD["agents"][:1], "warn", "agents", "one, node-1", "another node"),
    (
        "agents.0.address",
        "203.0.113.2",
        "warn",
        "agents",
        "2, all on 203.0.113.2",
        "another machine",
    ),
    ("agents.0.connected", False, "warn", "agents", "no manager: node-1", "moorage agents"),
    ("agents.0.address", "127.0.0.1", "warn", "agents", "own machine: node-1", "agent.address"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[2]}")
def test_what_is_found(case: tuple[str, Any, str, str, str, str]) -> None:
    path, value, status, name, detail, cure = case
    results = check(changed(path, value))
    found = [result for result in results if result.status == status and result.name == name]
    assert any(detail in one.detail and cure in one.next_step for one in found), results
    assert exit_code(results) == (status == "fail")


def test_an_embedded_postgres_is_a_single_point_of_failure() -> None:
    (found,) = [one for one in check(GOOD, embedded=True) if one.name == "Postgres"]
    assert (found.status, "embedded" in found.detail) == ("warn", True)


def test_a_standby_that_the_settings_do_not_name_helps_nobody() -> None:
    (found,) = [one for one in check(GOOD, hosts=["db-1"]) if one.name == "Postgres"]
    assert (found.status, "manager.dsn" in found.next_step) == ("warn", True)


def test_a_standby_on_the_machine_of_its_primary_is_lost_with_it() -> None:
    (found,) = [one for one in check(GOOD, hosts=["db-1", "db-1"]) if one.name == "Postgres"]
    assert (found.status, found.detail) == ("warn", "primary and standby are on one machine, db-1")
    assert "another machine" in found.next_step


def test_no_proxy_reaches_no_model() -> None:
    facts = changed("managers.1.proxies", [])
    facts["managers"][0]["proxies"] = []
    (found,) = [one for one in check(facts) if one.name == "proxies"]
    assert (found.status, found.detail) == ("warn", "none: no model can be reached")


def test_who_sends_secrets_to_whatever_listens_is_named() -> None:
    senders = {"agents": ["node-1", "node-2"], "proxies": ["edge-1"], "keys": ["ci"]}
    found = [
        one for one in check(changed("managers.1.plain_senders", senders)) if one.status != "ok"
    ]
    assert [(one.status, one.name) for one in found] == [("warn", "secrets")]
    for part in ("198.51.100.2:8701", "agents: node-1, node-2", "proxies: edge-1", "its start: ci"):
        assert part in found[0].detail


def test_agents_that_only_dial_out_need_a_proxy_that_listens() -> None:
    facts = changed("agents.0.address", "node-1.agent.invalid")
    (found,) = [one for one in check(facts) if one.status != "ok"]
    assert (found.status, "no proxy listens for them: node-1" in found.detail) == ("fail", True)
    assert "proxy.dialout_listen" in found.next_step
    facts["managers"][1]["dialout"] = ["edge-2:8802"]
    assert all(one.status == "ok" for one in check(facts))
    assert "1 reached only over connections that they open: node-1" in [
        one.detail for one in check(facts)
    ]


@pytest.mark.parametrize(
    ("undialed", "status", "detail"),
    [
        (
            {"edge-1:8802": "timed out"},
            "warn",
            "every proxy: node-1 (node-1 to edge-1:8802: timed out)",
        ),
        ({"edge-1:8802": "timed out", "edge-2:8802": ""}, "fail", "any proxy: node-1"),
        ({"gone:8802": "timed out"}, "ok", "1 reached only over connections that they open"),
    ],
)
def test_agents_that_cannot_dial(undialed: dict[str, str], status: str, detail: str) -> None:
    facts = changed("agents.0.address", "node-1.agent.invalid")
    facts["agents"][0]["undialed"] = undialed
    for number in (0, 1):
        facts["managers"][number]["dialout"] = [f"edge-{number + 1}:8802"]
    found = next(one for one in check(facts) if detail in one.detail)
    assert (found.status, "proxy.dialout_address" in found.next_step) == (status, status != "ok")


@pytest.mark.parametrize(
    ("asks", "status"),
    [
        ({"edge-1": ["203.0.113.1"], "edge-2": []}, "warn"),
        ({"edge-1": ["203.0.113.1"], "edge-2": ["203.0.113.1"]}, "fail"),
    ],
)
def test_agents_that_proxies_do_not_reach(asks: dict[str, list[str]], status: str) -> None:
    facts = changed("managers.0.asks", asks)
    (found,) = [one for one in check(facts) if one.status != "ok"]
    assert (found.status, "node-1 at 203.0.113.1 does not answer edge-1" in found.detail) == (
        status,
        True,
    )
    assert "agent.port_range" in found.next_step
    facts["agents"][0]["connected"] = False
    assert "does not answer" not in str(check(facts))


def test_a_manager_of_the_release_before_tells_no_clock() -> None:
    facts = changed("managers.0.clock_ahead_s", None)
    assert all(one.status == "ok" for one in check(facts))


def test_prices_and_budgets_that_charge_nobody() -> None:
    gap = {"unit": "gpu", "resource_group": "default", "device": "NVIDIA A100", "begins": None}
    doubt = {"scope": "user", "name": "ann", "unit": "gpu", "period": "month", "archived": True}
    facts = GOOD | {
        "price_gaps": [gap],
        "budget_doubts": [doubt | {"without_gpus": False, "unpriced": False}],
    }
    prices, budgets = (one for one in check(facts) if one.status == "warn")
    assert "hours of 'NVIDIA A100' in resource group 'default' cost nothing" in prices.detail
    assert "user/ann gpu: user 'ann' is archived" in budgets.detail
