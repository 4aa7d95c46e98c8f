"""Faults in the reuse of equal sessions, in node-hours and in renaming resource groups. A part of
the catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

FIND = "manager/store/sessions/sql/reuse_find.sql"
SUCCEED = "manager/store/sessions/sql/reuse_succeed.sql"
FUNCTIONS = "manager/store/schema/functions"
RENAME = f"{FUNCTIONS}/rename_group.sql"
REUSE = ("tests/store/test_reuse.py",)
RENAMED = ("tests/store/test_group_aliases.py",)
NODE_HOURS = ("tests/store/test_node_hours.py",)

MUTATIONS = (
    Mutation(
        "a secret in the variables of a session goes unsaid",
        "manager/api/sessions/handlers.py",
        "    found += plain_secrets.warnings(plain_secrets.of_workload(spec))\n",
        "",
        ("tests/store/test_plain_secrets.py",),
    ),
    Mutation(
        "a secret in the variables of a cluster's sub kernels goes unsaid",
        "manager/workloads/plain_secrets.py",
        "        yield spec.cluster.sub.env\n",
        "        pass\n",
        ("tests/store/test_plain_secrets.py",),
    ),
    Mutation(
        "members read the secrets in a group's defaults",
        "manager/api/groups/handlers.py",
        "defaults = masked(options.template_defaults)",
        "defaults = options.template_defaults",
        ("tests/store/test_plain_secrets.py",),
    ),
    Mutation(
        "a template stores the mask of a secret",
        "manager/api/sessions/templates.py",
        "    check_no_mask(plain_secrets.of_template(call.body))\n",
        "",
        ("tests/store/test_plain_secrets.py",),
    ),
    Mutation(
        "equal sessions of two projects share a run",
        "common/model/reuse.py",
        '{"project": project, "spec": meaning}',
        '{"project": "", "spec": meaning}',
        ("tests/unit/common/test_reuse.py", *REUSE),
    ),
    Mutation(
        "a request takes the result of a session that failed",
        FIND,
        (
            "s.status = 'TERMINATED' AND s.result = 'SUCCESS'\n"
            "            AND s.ready_at IS NOT NULL"
        ),
        "s.status IN ('TERMINATED', 'ERROR')",
        REUSE,
    ),
    Mutation(
        "a request shares the run of a session that is stopping",
        FIND,
        "NOT IN (:TERMINAL, 'TERMINATING'))",
        "NOT IN (:TERMINAL))",
        REUSE,
    ),
    Mutation(
        "what shared a run that was stopped runs beside an equal session",
        SUCCEED,
        "coalesce(r.id, w.id) AS heir\n    FROM orphaned w LEFT",
        "w.id AS heir\n    FROM orphaned w LEFT",
        REUSE,
    ),
    Mutation(
        "live sessions stay in the former name of their group",
        RENAME,
        "WHERE s.resource_group = from_name AND s.status NOT IN (:TERMINAL);",
        "WHERE false;",
        RENAMED,
    ),
    Mutation(
        "a rename forgets the quota of the group",
        RENAME,
        "UPDATE quotas SET name = to_name WHERE scope = 'group' AND name = from_name;",
        "",
        RENAMED,
    ),
    Mutation(
        "an alias points at an alias",
        RENAME,
        "WHERE (name = from_name OR renamed_to = from_name) AND name <> to_name;",
        "WHERE name = from_name;",
        RENAMED,
    ),
    Mutation(
        "an agent that says the former name stands alone in it",
        f"{FUNCTIONS}/agents_make_group.sql",
        "NEW.resource_group := current_group(NEW.resource_group);\n    RETURN NEW;",
        "RETURN NEW;",
        RENAMED,
    ),
    Mutation(
        "a session that says the former name is created in it",
        f"{FUNCTIONS}/sessions_current_group.sql",
        "IF name <> NEW.resource_group THEN",
        "IF false THEN",
        RENAMED,
    ),
    Mutation(
        "history of two names loses the weights of their samples",
        f"{FUNCTIONS}/settle_aliases.sql",
        "used = o.used + (excluded.used - o.used)\n"
        "            * excluded.samples / (o.samples + excluded.samples),",
        "used = excluded.used,",
        RENAMED,
    ),
    Mutation(
        "a restriction that says the former name allows nothing",
        f"{FUNCTIONS}/allowed_current_groups.sql",
        "NEW.resource_groups := current_groups(NEW.resource_groups);",
        "",
        RENAMED,
    ),
    Mutation(
        "a rename changes prices of hours that have passed",
        RENAME,
        "WHERE excluded.since >= date_trunc('hour', now(), 'UTC');",
        ";",
        RENAMED,
    ),
    Mutation(
        "a renamed group has the node-hours of its month again",
        "manager/store/scheduling/node_hours.py",
        "if now_is != (settled.month_ends, settled.aliases)",
        "if now_is[0] != settled.month_ends",
        NODE_HOURS,
    ),
)
