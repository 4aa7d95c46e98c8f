"""Query plans: a statement that reads a table that grows scans no table sequentially.

``enable_seqscan=off`` does not forbid a sequential scan where there is no index, but it makes the
costs of all plans with one nearly equal. Postgres then chose, for a statement that joins a small
table without an index, a plan that read all ended sessions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from moorage.manager.store.database.queries import SQL

# As on the store's dedicated connections.
SETTINGS = (
    "SET enable_seqscan = off; SET random_page_cost = 1.1; SET plan_cache_mode = force_generic_plan"
)
# Tables that grow as long as an installation runs, or with its load.
GROWING = {
    "agent_history", "agent_load_spans", "allocations", "audit_log", "decisions", "deliveries",
    "endpoint_load_spans", "endpoint_revisions", "event_outbox", "executions", "expected_starts",
    "idempotency_keys", "kernel_usage_spans", "kernels", "ledger", "lineage", "occupancy_spans",
    "pipeline_steps", "pipelines", "queue_spans", "scaling_decisions", "session_dependencies",
    "session_history", "session_traffic", "sessions", "usage_hours", "usage_records",
}  # fmt: skip
# Statements that were reviewed, and why each may scan.
REVIEWED = {
    "agent_contacts": "it reads all agents, each second",
    "agent_list": "a listing of all agents, whose managers are few",
    "agents_delete_forgotten": "once a minute, and only for an agent that was forgotten",
    "counts": "it counts all agents",
    "expected_starts_calibration": "once a minute, for each resource group",
    "failed_over": "once per term, after a loss of the database",
    "group_list": "a listing of all resource groups",
    "lineage_copy": "for an administrator",
    "lineage_find": "for an administrator",
    "lineage_identity": "for an administrator",
    "pipeline_list": "its conditions are composed at run time",
    "restored": "once, after a restore",
    "subscription_list": "a listing of subscriptions, each with its newest delivery by index",
    "upgrade_facts": "for `moorage upgrade plan`",
    "usage_records_page": "a report: the keys are joined to its sums",
}


@dataclass
class Tree:
    """The tables of a plan whose parts are compared with each other by cost."""

    scanned: set[str] = field(default_factory=set)
    by_index: set[str] = field(default_factory=set)


def trees(plan: dict[str, Any], tree: Tree) -> Iterator[Tree]:
    """All trees of a plan. The cost of a subquery that runs once is added after the choice."""
    if plan.get("Parent Relationship") == "InitPlan":
        tree = Tree()

    if "Relation Name" in plan and plan["Node Type"] != "ModifyTable":
        tables = tree.scanned if plan["Node Type"] == "Seq Scan" else tree.by_index
        tables.add(plan["Relation Name"])

    yield tree
    for below in plan.get("Plans", ()):
        yield from trees(below, tree)


async def generic_plan(connection: asyncpg.Connection, sql: str) -> dict[str, Any]:
    parameters = len((await connection.prepare(sql)).get_parameters())
    await connection.execute(f"PREPARE statement AS {sql}")
    arguments = f"({', '.join(['NULL'] * parameters)})" if parameters else ""
    text = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE statement{arguments}")
    await connection.execute("DEALLOCATE statement")
    plan: dict[str, Any] = json.loads(text)[0]["Plan"]
    return plan


async def test_statements_on_tables_that_grow_use_indexes_only(migrated_database: str) -> None:
    connection = await asyncpg.connect(migrated_database)
    try:
        await connection.execute(SETTINGS)
        found = {}
        for name, sql in SQL.items():
            plan = await generic_plan(connection, sql)
            scanned = {
                table
                for tree in trees(plan, Tree())
                if (tree.scanned | tree.by_index) & GROWING
                for table in tree.scanned
            }
            if scanned:
                found[name] = sorted(scanned)
    finally:
        await connection.close()

    new = {name: tables for name, tables in found.items() if name not in REVIEWED}
    assert not new, f"sequential scans: {new}"
