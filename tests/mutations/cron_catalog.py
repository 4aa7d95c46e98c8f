"""Faults in cron jobs: their times, their decisions, and the rights of their runs. A part of the
catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

CLAIM = "manager/store/pipelines/sql/cron_claim.sql"
TIMES = "manager/workloads/cron_times.py"
RUNS = "manager/workloads/cron_runs.py"
HANDLERS = "manager/api/pipelines/cron_jobs.py"
LOOP = "manager/loops/cron_controller.py"
PURE = ("tests/unit/manager/test_cron_times.py",)
STOPS = ("tests/store/test_session_stops.py",)
STORED = ("tests/store/api/test_api_cron_jobs.py",)

MUTATIONS = (
    Mutation(
        "a local time that comes twice starts a run again",
        TIMES,
        "if time > last and _exists(local):",
        "if _exists(local):",
        PURE,
    ),
    Mutation(
        "the zone of a cron job is that of the host",
        TIMES,
        'frozenset({"localtime", "posixrules", "Factory"})',
        "frozenset()",
        PURE,
    ),
    Mutation(
        "an expression that never comes is accepted",
        TIMES,
        "is None:\n            raise _never(spec.cron)",
        "is ...:\n            raise _never(spec.cron)",
        PURE,
    ),
    Mutation(
        "a late run starts after its deadline",
        RUNS,
        "if is_late(spec, latest, now):",
        "if False:",
        PURE,
    ),
    Mutation(
        "a former leader starts runs",
        CLAIM,
        "\n      AND ($4::bigint IS NULL OR EXISTS (SELECT FROM lease))",
        "",
        STORED,
    ),
    Mutation(
        "two managers record a run of the same minute",
        CLAIM,
        (
            "runs = $2 AND ($3::timestamptz IS NULL OR next_at = $3)\n"
            "      AND ($4::bigint IS NULL OR EXISTS (SELECT FROM lease))"
        ),
        "($4::bigint IS NULL OR EXISTS (SELECT FROM lease))",
        STORED,
    ),
    Mutation(
        "a run whose record was deleted starts again",
        CLAIM,
        "AND ($3::timestamptz IS NULL OR trimmed_to IS NULL OR trimmed_to < $7)",
        "",
        STORED,
    ),
    Mutation(
        "the next run stays in the far future when the clock goes back",
        LOOP,
        "            if at is not None:\n                known",
        "            if False:\n                known",
        STORED,
    ),
    Mutation(
        "the steps of an overdue pipeline end as if their user had stopped them",
        "manager/termination.py",
        "reason=stop.reason, term=term",
        "term=term",
        STOPS,
    ),
    Mutation(
        "a retry of a pipeline has the rest of its time",
        "manager/store/pipelines/sql/pipeline_create.sql",
        "DO UPDATE SET deadline_at = excluded.deadline_at",
        "DO NOTHING",
        STOPS,
    ),
    Mutation(
        "a former leader stops overdue pipelines",
        "manager/store/sessions/sql/session_stops_overdue.sql",
        " AND EXISTS (SELECT FROM lease)\n",
        "\n",
        STOPS,
    ),
    Mutation(
        "a cron job of a disabled user runs",
        "manager/store/identity/keys.py",
        'if status != "active":\n                raise Forbidden(',
        "if status is None:\n                raise Forbidden(",
        STORED,
    ),
    Mutation(
        "a viewer's cron job runs",
        "manager/api/pipelines/cron_submission.py",
        'if key.role not in MAY["member"]:',
        "if False:",
        STORED,
    ),
    Mutation(
        "a restricted key creates a cron job without its restrictions",
        HANDLERS,
        'about it."""\n    _check_key(call)\n',
        'about it."""\n',
        STORED,
    ),
    Mutation(
        "a project admin decides what runs with the rights of an administrator",
        "manager/store/pipelines/sql/cron_jobs.sql",
        ", owner = $4, granted_role = $5\n",
        ", created_by = coalesce($4::text, $5::text)\n",
        STORED,
    ),
)
