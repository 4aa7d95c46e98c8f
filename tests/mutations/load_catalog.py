"""Faults in the load over time. A part of the catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

HISTORY = ("tests/store/test_load_history.py",)
SQL = "manager/store/endpoints/sql"

MUTATIONS = (
    Mutation(
        "requests count in each sample again",
        f"{SQL}/endpoint_load_record.sql",
        "UPDATE model_loads l SET counted = u.counts",
        "UPDATE model_loads l SET counted = u.counted",
        HISTORY,
    ),
    Mutation(
        "requests of a proxy that served without a manager are those of one minute",
        f"{SQL}/loads_put.sql",
        "CASE WHEN proxy_id NOT IN (SELECT id FROM unconnected) THEN",
        "CASE WHEN true THEN",
        HISTORY,
    ),
    Mutation(
        "requests during a pause of the samples are those of one minute",
        f"{SQL}/endpoint_load_record.sql",
        "CASE WHEN s.covered_s > 0 THEN coalesce(t.requests, 0) ELSE 0 END",
        "coalesce(t.requests, 0)",
        HISTORY,
    ),
    Mutation(
        "a clock that is set back stops the samples",
        f"{SQL}/endpoint_load_record.sql",
        "BETWEEN now() - make_interval(secs => $3) AND now()",
        "> now() - make_interval(secs => $3)",
        HISTORY,
    ),
    Mutation(
        "a counter that started again at zero counts nothing",
        f"{SQL}/endpoint_load_record.sql",
        "WHEN c.now < c.before THEN c.now",
        "WHEN c.now < c.before THEN 0",
        HISTORY,
    ),
    Mutation(
        "a silent node keeps its last load",
        f"{SQL}/agent_load_record.sql",
        "    WHERE u.at > now() - make_interval(secs => $2)\n",
        "",
        HISTORY,
    ),
    Mutation(
        "a former leader records load",
        f"{SQL}/agent_load_record.sql",
        "WHERE EXISTS (SELECT FROM leases WHERE name = 'leader' AND term = $1 "
        "AND expires_at > now())",
        "WHERE $1::bigint IS NOT NULL",
        HISTORY,
    ),
    Mutation(
        "everybody reads the load of every node",
        "manager/api/metering/load.py",
        "view = await visible_agent(call)",
        'view = await call.deps.store.agents.get(call.path("id"))',
        HISTORY,
    ),
    Mutation(
        "proxies report no errors",
        "proxy/control/load.py",
        "errors=errors,",
        "errors=0,",
        ("tests/unit/proxy/test_load_meter.py",),
    ),
    Mutation(
        "a simulated device that is held is idle",
        "simulator/fleet/usage.py",
        "held[grant.device_id] += grant.amount",
        "held[grant.device_id] += 0",
        ("tests/wire/test_fleet_simulation.py", "-k", "usage"),
    ),
    Mutation(
        "describe shows load of an hour ago as current",
        "cli/load_lines.py",
        "if load.at[at] < load.until.timestamp() - CURRENT_S:",
        "if False:",
        ("tests/unit/cli/test_cli_load.py",),
    ),
)
